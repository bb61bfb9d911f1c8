"""python -m fedge init of torch modules: the layers that it finds, and clients in C and Python that train one job.

Skipped where there is no torch: bash cmake/setup.sh --torch installs Debian's.
"""

import contextlib
import gzip
import importlib.util
import io
import json
import os
import subprocess
import sys
import unittest

import numpy as np
from python_client import HERE, PACKAGE, PythonTest, harness

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
DATA = "/usr/share/datasets/fashion-mnist"
sys.path[:0] = [PACKAGE, HERE]
ENVIRONMENT = {"PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}

MODELS = {"plain": (3, 4), "residual": (3, 2, 2), "means": (3, 2, 2), "last_step": (5,), "last_state": (3, 4), "attention": (3, 4),
          "gates": (4, 6), "joins": (3, 4, 6)}


class Mapping(unittest.TestCase):
    def setUp(self):
        self.folder = harness.make_folder()
        for name in [name for name in sys.modules if name == "torch_models"]:
            del sys.modules[name]  # each test changes its own
        import torch_models
        self.models = torch_models

    def init(self, name, **options):
        """The job that init writes, and what it prints."""
        from fedge import job
        path = os.path.join(self.folder, f"{name}.json")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            job.main(f"torch_models:{name}", path, True, job.Options(name=name, **options))
        with open(path, encoding="utf-8") as file:
            return json.load(file), out.getvalue()

    def write_examples(self, shape, labels, indices):
        draw = np.random.default_rng(3)
        for part, count in (("train", 60), ("test", 50)):
            x = draw.integers(0, 20, (count, *shape)) if indices else draw.normal(size=(count, *shape))
            y = draw.integers(0, labels, count)
            np.save(os.path.join(self.folder, f"{part}-x.npy"), x.astype("<f4"))
            np.save(os.path.join(self.folder, f"{part}-y.npy"), y.astype("u1"))
        return x.astype(np.float32), y

    def simulate(self, name, job):
        """Trains the job a little in C; returns the last model's tensors and its loss on the server."""
        from fedge import safetensors
        job["training"].update({"learning-rate": 0.1, "batch-size": 10})
        job["test-set"] = {"values": "test-x.npy", "labels": "test-y.npy"}
        job["rounds"]["num-server-rounds"] = 2
        data = {"data": {name: {"values": "train-x.npy", "labels": "train-y.npy"}}}
        for file, value in ((f"{name}.json", job), ("data.json", data)):
            with open(os.path.join(self.folder, file), "w", encoding="utf-8") as out:
                json.dump(value, out)
        out = os.path.join(self.folder, f"{name}-run")
        done = subprocess.run([os.path.join(os.environ["FEDGE_BIN_DIR"], "fedge-simulate"), "--job", f"{name}.json", "--clients", "2",
                               "--data", "data.json", "--partition", "iid", "--out", out, "--quiet", "--threads", "1"], cwd=self.folder,
                              capture_output=True, text=True, timeout=harness.PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            return safetensors.read(os.path.join(out, "model.safetensors")), json.load(file)["loss"]

    def test_what_c_trains_is_what_torch_computes(self):
        import torch
        for name, shape in MODELS.items():
            with self.subTest(name):
                model = getattr(self.models, name)
                job, _ = self.init(name, form="layers", input_shape=",".join(map(str, shape)))
                x, y = self.write_examples(shape, 4, indices=name == "last_step")
                state, loss = self.simulate(name, job)
                mine = {key: tuple(value.shape) for key, value in model.state_dict().items() if value.is_floating_point()}
                self.assertEqual({key: value.shape for key, value in state.items()}, mine)
                before = model.state_dict()[f"{'4' if name == 'plain' else 'head'}.weight"].numpy()
                after = state[f"{'4' if name == 'plain' else 'head'}.weight"]
                self.assertLess(np.abs(before - after).max(), 0.5)  # it began with the module's
                self.assertGreater(np.abs(before - after).max(), 0)
                model.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()}, strict=False)
                with torch.no_grad():
                    own = torch.nn.functional.cross_entropy(model.eval()(torch.from_numpy(x)), torch.from_numpy(y)).item()
                self.assertAlmostEqual(loss, own, delta=2e-5)

    def test_names_and_arguments(self):
        job, said = self.init("residual", input_shape="3,2,2")
        layers = job["model"]["layers"]
        self.assertEqual([layer["name"] for layer in layers],
                         ["stem.0", "stem.1", "stem.2", "conv", "norm", "relu", "add", "dropout", "max_pool2d", "adaptive_avg_pool2d",
                          "view", "head"])
        self.assertEqual(layers[0], {"type": "Conv2d", "name": "stem.0", "in_channels": 3, "out_channels": 4, "kernel_size": 3,
                                     "padding": "same", "bias": False})
        self.assertEqual(layers[3], {"type": "Conv2d", "name": "conv", "in_channels": 4, "out_channels": 4, "kernel_size": 1})
        self.assertEqual(layers[6]["inputs"], ["stem.2", "relu"])
        self.assertEqual(layers[8], {"type": "MaxPool2d", "name": "max_pool2d", "kernel_size": 2, "stride": 1, "padding": 1})
        self.assertEqual(job["data"], {"name": "residual", "shape": [3, 2, 2], "dtype": "f32", "labels": 4})
        self.assertIn("12 layers", said)
        layers = self.init("means", input_shape="3,2,2", loss="MSELoss", input_type="u8")[0]
        self.assertEqual([layer.get("train") for layer in layers["model"]["layers"]][:3], ["none", None, None])
        self.assertEqual(layers["model"]["loss"], {"type": "MSELoss"})
        self.assertEqual(layers["data"]["normalisation"], {"divide-by": 255})

    def test_a_plain_sequential_needs_no_names(self):
        import torch
        self.models.short = torch.nn.Sequential(torch.nn.Linear(12, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
        job, _ = self.init("short", input_shape="12", loss="BCEWithLogitsLoss")
        self.assertEqual(job["model"]["layers"], [
            {"type": "Linear", "in_features": 12, "out_features": 6}, {"type": "ReLU"},
            {"type": "Linear", "in_features": 6, "out_features": 1}])
        self.assertEqual(job["data"]["labels"], 2)

    def test_the_shape_is_that_of_data(self):
        import fedge
        self.models.data = fedge.data.Arrays(np.zeros((5, 12), dtype=np.uint8), np.zeros(5))
        self.assertEqual(self.init("plain")[0]["data"], {"name": "plain", "shape": [12], "dtype": "u8", "labels": 4,
                                                         "normalisation": {"divide-by": 255}})
        self.models.data = [(np.zeros((3, 4), dtype=np.float32), 1)]
        self.assertEqual(self.init("plain")[0]["model"]["input-shape"], [3, 4])

    def test_what_is_missing_is_asked_for(self):
        import fedge
        with self.assertRaisesRegex(fedge.Error, "give --input-shape, such as 1,28,28"):
            self.init("plain")
        with self.assertRaisesRegex(fedge.Error, r"does not take examples of shape \[11\]"):
            self.init("plain", input_shape="11")
        with self.assertRaisesRegex(fedge.Error, "--input-shape is '1x2'"):
            self.init("plain", input_shape="1x2")

    def test_what_fedge_lacks_makes_an_external_model_and_is_named(self):
        import fedge
        from torch import nn
        deep = self.models.LastStep()
        deep.lstm = nn.LSTM(6, 8, num_layers=4, batch_first=True)
        models = {
            "softmax": (nn.Sequential(nn.Linear(12, 4), nn.Softmax(1)), "ends with a Softmax, but the loss takes logits"),
            "mode": (nn.Sequential(nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 4, 1)), "fedge has no layer Unflatten"),
            "start": (nn.Sequential(nn.Linear(12, 4), nn.Flatten(0)), "Flatten '1' has start_dim=0, which fedge's Flatten lacks"),
            "double": (nn.Linear(12, 4).double(), "has type torch.float64"),
            "steps": (nn.Sequential(nn.Linear(12, 4), nn.TransformerEncoderLayer(4, 2, 8, norm_first=True)), "has batch_first=False"),
            "twice": (self.models.Twice(), "Linear 'fc' is used twice"),
            "branch": (self.models.Branch(), "torch.fx cannot trace the model's forward"),
            "joined": (self.models.Joined(), "one index of one dimension"),
            "first": (self.models.LastFirst(), "one index of one dimension"),
            "unused": (self.models.Unused(), r"tensor 'spare.weight' is \[2, 2\] in the module and None in fedge's layers"),
            "deep": (deep, "fedge refuses these layers .*num_layers"),
            "tied": (self.models.tied(), "'0.weight' and '2.weight' are one tensor"),
        }
        for name, (model, text) in models.items():
            with self.subTest(name):
                setattr(self.models, name, model)
                if name != "double":
                    job, said = self.init(name, input_shape="12")
                    self.assertEqual(job["model"]["type"], "external")
                    self.assertRegex(said, text)
                    self.assertNotIn("data", job)
                with self.assertRaisesRegex(fedge.Error, text):
                    self.init(name, input_shape="12", form="layers")
        job, said = self.init("plain", form="external")
        self.assertEqual((job["model"]["type"], said.count("external")), ("external", 0))

    def test_a_client_stands_for_its_model(self):
        import fedge
        self.models.app = fedge.Client(self.models.means)
        self.assertEqual(len(self.init("app", input_shape="3,2,2")[0]["model"]["layers"]), 7)
        self.models.app = fedge.Client(self.models.means, trainable_only=True)
        self.assertEqual([tensor["name"] for tensor in self.init("app")[0]["model"]["tensors"]],
                         ["conv.weight", "conv.bias", "head.weight", "head.bias"])
        with self.assertRaisesRegex(fedge.Error, "leave out --layers, or trainable_only"):
            self.init("app", form="layers")

    def test_a_module_is_as_it_was(self):
        import torch
        model = self.models.residual.train()
        model.stem.eval()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        self.init("residual", input_shape="3,2,2")
        self.assertEqual([model.training, model.stem.training, model.stem[1].training], [True, False, False])
        self.assertTrue(all(torch.equal(value, before[key]) for key, value in model.state_dict().items()))


class Federation(PythonTest):
    def write_device(self, federation, index, data):
        directory = self.device_directory(federation, index)
        for name, array, shape in (("images", data.x[:, 0], 3), ("labels", data.y, 1)):
            header = bytes([0, 0, 8, shape]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            with gzip.open(os.path.join(directory, f"{name}.gz"), "wb", compresslevel=1) as file:
                file.write(header + array.astype(np.uint8).tobytes())
        with open(os.path.join(SOURCE, "examples/pytorch/client.py"), encoding="utf-8") as example, \
                open(os.path.join(directory, "client.py"), "w", encoding="utf-8") as file:
            file.write(example.read())
        return directory

    def test_two_clients_of_c_and_two_of_torch_train_one_model(self):
        import fedge
        import torch
        federation = self.federation(clients=4)
        whole = fedge.data.idx(f"{DATA}/t10k-images-idx3-ubyte.gz", f"{DATA}/t10k-labels-idx1-ubyte.gz")
        test = fedge.data.Arrays(whole.x[:1000], whole.y[:1000])
        train = fedge.data.Arrays(whole.x[1000:9000], whole.y[1000:9000])
        devices = [self.write_device(federation, index, train.part(index, 4)) for index in range(4)]
        self.write_device(federation, 9, test)
        subprocess.run([sys.executable, "-B", "-m", "fedge", "init", "--model", "client:model", "--layers", "--clients", "4",
                        "--rounds", "5", "--output", federation.job_path, "--force"], cwd=devices[0],
                       env={**os.environ, **ENVIRONMENT}, check=True, timeout=harness.PATIENCE_S)
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        job["training"]["learning-rate"] = 0.1
        job["test-set"] = {"values": "device-9/images.gz", "labels": "device-9/labels.gz"}
        federation.write("job.json", job)
        federation.start_aggregator()
        clients = []
        for index, directory in enumerate(devices):
            if index < 2:
                code = f"import client; client.app.run({directory!r}, state={directory + '/state'!r})"
                clients.append(harness.Program(f"torch-{index}", [sys.executable, "-B", "-c", code], directory, ENVIRONMENT))
                federation.seen.append(clients[-1])
            else:
                site = federation.write(f"device-{index}/client.json", {"data": {"client": {"values": "images.gz", "labels": "labels.gz"}}})
                clients.append(federation.start_client(index, config=site, partition_id=None, num_partitions=None))
        federation.complete(harness.PATIENCE_S * 2)
        self.assertEqual([client.wait() for client in clients], [0] * 4, clients[0].tail())
        lines = federation.lines()
        self.assertEqual([(line["clients"], line["examples"]) for line in lines], [(4, 8000)] * 5)
        self.assertGreater(lines[-1]["accuracy"], 0.75)  # all four on their own data: 0.80
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
        model.load_state_dict(fedge.Run(federation.state).state_dict())
        x, y = (torch.from_numpy(array) for array in test[:])
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(x), y).item()
        self.assertAlmostEqual(lines[-1]["loss"], loss, delta=2e-5)


if __name__ == "__main__":
    if not importlib.util.find_spec("torch"):
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
