"""What the package does without a network: models, data, batches, state's values, files."""

import contextlib
import gzip
import io
import json
import os
import pickle
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.join(os.environ["FEDGE_BINARY_DIR"], "python"))

import numpy as np  # noqa: E402

import fedge  # noqa: E402
from fedge import client, job, models, safetensors, task  # noqa: E402
from fedge._fedge import ffi  # noqa: E402

try:
    import torch
except ImportError:
    torch = None


def views_of(**shapes):
    return {name.replace("_", "."): np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for name, shape in shapes.items()}


class Arrays(unittest.TestCase):
    def test_a_trainer_changes_views_in_place_or_puts_other_arrays(self):
        adapter = models.adapter_of({"a": np.zeros((2, 3)), "b": np.zeros(2)})
        adapter.check({"a": (2, 3), "b": (2,)})
        views = views_of(a=(2, 3), b=(2,))
        model = adapter.attach(views)
        self.assertIs(model["a"], views["a"])
        model["a"] += 1
        model["b"] = np.array([5.0, 6.0])
        adapter.detach(views)
        self.assertEqual(views["a"].tolist(), [[1, 2, 3], [4, 5, 6]])
        self.assertEqual(views["b"].tolist(), [5, 6])

    def test_what_does_not_fit_is_named(self):
        adapter = models.adapter_of({"a": np.zeros((2, 3))})
        for shapes, text in (({"a": (3, 2)}, r"'a' is \[3, 2\] in the job and \[2, 3\]"),
                             ({"b": (2, 3)}, r"a tensor 'b' \[2, 3\], which this client's model lacks"),
                             ({"a": (2, 3), "c": (1,)}, "'c'"), ({}, "which the job's model lacks")):
            with self.assertRaisesRegex(fedge.Error, text):
                adapter.check(shapes)
        views = views_of(a=(2, 3))
        del adapter.attach(views)["a"]
        with self.assertRaisesRegex(fedge.Error, "removed 'a'"):
            adapter.detach(views)
        with self.assertRaisesRegex(fedge.Error, "not list"):
            fedge.Client([])


    def test_bf16_is_rounded_to_nearest_even(self):
        values = np.array([1, 1 + 1 / 256, 1 + 3 / 256, -2.5, np.inf, np.nan], np.float32)
        bits = models.bf16_of(values)
        self.assertEqual(bits.tolist(), [0x3F80, 0x3F80, 0x3F82, 0xC020, 0x7F80, 0x7FC0])
        adapter = models.adapter_of({"b": np.zeros(6)})
        views = {"b": bits}
        model = adapter.attach(views)
        self.assertEqual(model["b"][:4].tolist(), [1, 1, 1 + 1 / 64, -2.5])
        model["b"] += 1
        adapter.detach(views)
        self.assertEqual(views["b"].tolist(), [0x4000, 0x4000, 0x4001, 0xBFC0, 0x7F80, 0x7FC0])


class Estimators(unittest.TestCase):
    class Linear:
        """As far as the package knows scikit-learn's."""

        def get_params(self):
            return {}

        def fit(self):
            return self

    def test_coefficients_go_in_and_come_back(self):
        estimator = self.Linear()
        adapter = models.adapter_of(estimator)
        adapter.check({"coef_": (1, 2), "intercept_": (1,)})
        views = {"coef_": np.ones((1, 2), np.float32), "intercept_": np.ones(1, np.float32)}
        self.assertIs(adapter.attach(views), estimator)
        self.assertEqual(estimator.coef_.dtype, np.float64)
        estimator.coef_ = estimator.coef_ * 3
        adapter.detach(views)
        self.assertEqual((views["coef_"].tolist(), views["intercept_"].tolist()), ([[3, 3]], [1]))
        with self.assertRaisesRegex(fedge.Error, "coef_ and intercept_; the job's are weight"):
            adapter.check({"weight": (1,)})

    def test_a_job_needs_a_fitted_one(self):
        with self.assertRaisesRegex(fedge.Error, "fit it to one batch first"):
            models.tensors_of(self.Linear())


@unittest.skipUnless(torch, "there is no torch")
class Modules(unittest.TestCase):
    def setUp(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
        self.adapter = models.adapter_of(self.model)
        self.views = views_of(**{"0_weight": (2, 3), "0_bias": (2,)})

    def test_weights_are_the_views_and_training_needs_no_copy(self):
        self.adapter.check({"0.weight": (2, 3), "0.bias": (2,)})
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1)
        self.adapter.attach(self.views)
        weight = self.model[0].weight
        self.assertEqual(weight.data_ptr(), self.views["0.weight"].ctypes.data)
        before = self.views["0.weight"].copy()
        self.model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        gradient = self.model[0].weight.grad.clone()
        self.adapter.detach(self.views)
        self.adapter.release()
        self.assertEqual((before - self.views["0.weight"]).tolist(), gradient.tolist())

    def test_a_failed_task_leaves_no_reference(self):
        self.adapter.attach(self.views)
        self.model[0].bias.data = torch.zeros(3)
        with self.assertRaises(fedge.Error):
            self.adapter.detach(self.views)
        self.adapter.release()
        self.assertNotEqual(self.model[0].weight.data_ptr(), self.views["0.weight"].ctypes.data)

    def test_tied_weights_have_both_names(self):
        model = torch.nn.ModuleDict({"e": torch.nn.Linear(2, 2, bias=False), "h": torch.nn.Linear(2, 2, bias=False)})
        model["h"].weight = model["e"].weight
        adapter = models.adapter_of(model)
        views = {"e.weight": np.ones((2, 2), np.float32), "h.weight": np.ones((2, 2), np.float32)}
        adapter.attach(views)
        with torch.no_grad():
            model["e"].weight += 1
        adapter.detach(views)
        adapter.release()
        self.assertEqual([view.tolist() for view in views.values()], [[[2, 2], [2, 2]]] * 2)

    def test_scalars_and_integers(self):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        model.register_parameter("scale", torch.nn.Parameter(torch.tensor(1.0)))
        adapter = models.adapter_of(model)
        tensors = {tensor.name: tensor for tensor in models.tensors_of(model)}
        shapes = {name: tensor.initial.shape for name, tensor in tensors.items()}
        self.assertEqual(shapes["scale"], ())
        self.assertEqual(tensors["0.num_batches_tracked"].type, "I64")
        del shapes["0.num_batches_tracked"]  # of a job that lacks it, it stays on the device
        adapter.check(shapes)
        views = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        adapter.attach(views)
        model(torch.ones(3, 2)).sum().backward()
        adapter.detach(views)
        adapter.release()
        self.assertEqual(model[0].num_batches_tracked.item(), 1)
        self.assertIsNone(model[0].weight.grad)
        adapter.end()
        model.load_state_dict({**model.state_dict(), "scale": torch.tensor(3.0)})
        self.assertEqual(model.scale.item(), 3)

    def test_types(self):
        model = torch.nn.ModuleDict({"h": torch.nn.Linear(2, 1).half(), "b": torch.nn.Linear(2, 1).bfloat16(),
                                     "n": torch.nn.BatchNorm1d(1)})
        model["n"].weight.requires_grad_(False)
        tensors = models.tensors_of(model)
        types = {tensor.name: tensor.type for tensor in tensors}
        self.assertEqual([types[name] for name in ("h.weight", "b.bias", "n.num_batches_tracked", "n.running_var")],
                         ["F16", "BF16", "I64", "F32"])
        self.assertEqual([tensor.name for tensor in tensors if tensor.frozen], ["n.weight", "n.num_batches_tracked"])
        adapter = models.adapter_of(model)
        shapes = {tensor.name: tensor.initial.shape for tensor in tensors}
        with self.assertRaisesRegex(fedge.Error, "'h.weight' has type torch.float16, and F32 in the job"):
            adapter.check(shapes, {**types, "h.weight": "F32"})
        adapter.check(shapes, types)
        codes = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64}
        views = {name: np.zeros(shapes[name], codes[types[name]]) for name in shapes}
        views["n.num_batches_tracked"][...] = 41
        views["b.weight"][...] = 0x3F80
        adapter.attach(views)
        self.assertEqual(model["b"].weight.tolist(), [[1, 1]])
        with torch.no_grad():
            model["b"].weight += 1  # in place
            model["b"].bias.data = torch.full((1,), 3.0).bfloat16()  # elsewhere
            model["h"].weight += 0.5
        self.assertEqual(model["n"].num_batches_tracked.item(), 41)
        adapter.detach(views)
        self.assertEqual((views["b.weight"].tolist(), views["b.bias"].tolist()), ([[0x4000] * 2], [0x4040]))
        self.assertEqual(views["h.weight"].tolist(), [[0.5, 0.5]])
        adapter.release()
        adapter.end()

    def test_afterwards_the_model_keeps_its_shapes_and_no_memory(self):
        self.adapter.attach(self.views)
        self.adapter.detach(self.views)
        self.adapter.release()
        weight = self.model[0].weight
        self.assertEqual(tuple(weight.shape), (2, 3))
        self.assertEqual(weight.sum().item(), 0)
        self.assertNotEqual(weight.data_ptr(), self.views["0.weight"].ctypes.data)
        self.adapter.attach(self.views)
        self.assertEqual(weight.sum().item(), self.views["0.weight"].sum())

    def test_weights_put_elsewhere_are_copied_back(self):
        self.adapter.attach(self.views)
        self.model[0].weight.data = torch.full((2, 3), 7.0)
        self.adapter.detach(self.views)
        self.assertEqual(self.views["0.weight"].tolist(), [[7] * 3] * 2)
        self.adapter.attach(self.views)
        self.model[0].bias.data = torch.zeros(3)
        with self.assertRaisesRegex(fedge.Error, r"'0.bias' is \[2\] in the job and \[3\]"):
            self.adapter.detach(self.views)

    def test_trainable_only_leaves_the_others_on_the_device(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        model[0].requires_grad_(False)
        client = fedge.Client(model, trainable_only=True)
        frozen = model[0].weight.clone()
        views = views_of(**{"1_weight": (2,), "1_bias": (2,)})
        client._adapter.check({name: view.shape for name, view in views.items()})
        client._adapter.attach(views)
        model[1].bias.data += 1
        client._adapter.detach(views)
        client._adapter.release()
        client._adapter.end()
        self.assertEqual(views["1.bias"].tolist(), [1, 2])
        self.assertTrue(torch.equal(model[0].weight, frozen))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.json")
            job.write_job(client, path, name="mine")
            with open(path, encoding="utf-8") as file:
                names = [tensor["name"] for tensor in json.load(file)["model"]["tensors"]]
        self.assertEqual(names, ["1.weight", "1.bias"])
        model.requires_grad_(False)
        with self.assertRaisesRegex(fedge.Error, "set requires_grad"):
            fedge.Client(model, trainable_only=True)
        with self.assertRaisesRegex(fedge.Error, "trainable_only is for a torch.nn.Module"):
            fedge.Client({"a": np.zeros(2)}, trainable_only=True)

    def test_types_and_devices_that_do_not_fit_are_named(self):
        with self.assertRaisesRegex(fedge.Error, "torch.float64"):
            models.adapter_of(torch.nn.Linear(3, 2).double()).check({"weight": (2, 3), "bias": (2,)})
        with self.assertRaisesRegex(fedge.Error, "device 'meta'"):
            models.adapter_of(torch.nn.Linear(3, 2, device="meta")).check({"weight": (2, 3), "bias": (2,)})


    def test_what_is_no_model_is_named(self):
        lazy = torch.nn.Sequential(torch.nn.LazyLinear(2))
        for model, message in ((torch.nn.Linear, r"Linear is a class: give a model of it, Linear\(\.\.\.\)"),
                               (lazy, "'0.weight' has no shape yet: run the model on one batch first")):
            with self.assertRaisesRegex(fedge.Error, message):
                fedge.Client(model)
        self.model.register_parameter("phase", torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
        for read in (lambda: models.tensors_of(self.model),
                     lambda: self.adapter.check({"phase": (2,), "0.weight": (2, 3), "0.bias": (2,)})):
            with self.assertRaisesRegex(fedge.Error, "'phase' has type torch.complex64"):
                read()
        with self.assertRaisesRegex(fedge.Error, "'weight' is on device 'meta'"):
            models.tensors_of(torch.nn.Linear(3, 2, device="meta"))

    def test_objects_in_the_state_stay_on_the_device(self):
        kind = type("Kept", (torch.nn.Linear,), {"get_extra_state": lambda _: "mine", "set_extra_state": lambda *_: None})
        self.assertEqual([tensor.name for tensor in models.tensors_of(kind(3, 2))], ["weight", "bias"])

    def test_strides_do_not_matter(self):
        model = torch.nn.Linear(3, 3, bias=False)
        model.weight.data = torch.arange(9.0).reshape(3, 3).t()
        tensor, = models.tensors_of(model)
        self.assertEqual(tensor.initial.tolist(), [[0, 3, 6], [1, 4, 7], [2, 5, 8]])
        adapter = models.adapter_of(model)
        views = {"weight": np.arange(9, dtype=np.float32).reshape(3, 3)}
        adapter.attach(views)
        model.weight.data = model.weight.data.t()  # in the same memory
        adapter.detach(views)
        self.assertEqual(views["weight"].tolist(), [[0, 3, 6], [1, 4, 7], [2, 5, 8]])


class Functions(unittest.TestCase):
    """What a client is given besides its model."""

    def test_decorators_with_and_without_parentheses(self):
        app = fedge.Client({"a": np.zeros(2)})
        for decorator in app.train, app.evaluate, app.loss:
            function = decorator(lambda model, task: 1)
            self.assertIs(decorator()(function), function)
        self.assertIs(app._train(None, None), 1)
        with self.assertRaisesRegex(fedge.Error, r"@app.train stands before a function train\(model, task\), not before int"):
            app.train(3)

    def test_reports(self):
        def take(result):
            report = ffi.new("fedge_client_report *")
            client._take_report(result, types.SimpleNamespace(_check_demands=lambda: None, num_steps=2), report, ffi.new("fedge_error *"))
            return report.num_examples, report.num_steps
        for good in (3, np.int64(3), (3, None), [3, {"loss": np.float32(1)}], (3, {"loss": np.array(0.5)})):
            self.assertEqual(take(good), (3, 2))
        for bad, message in ((None, "a value of type NoneType"), (-1, "returned -1"), (2.0, "returned 2.0"), (True, "returned True"),
                             ((3, 0.5), "metrics of type float; return a dict"), ((3, {"loss": "low"}), "metric 'loss' is of type str"),
                             ((3, {"loss": np.zeros(2)}), r"'loss' is of type ndarray, not one number: .* loss.mean\(\)")):
            with self.assertRaisesRegex(fedge.Error, message):
                take(bad)

    def test_simulations_of_what_is_no_app(self):
        app = fedge.Client({"a": np.zeros(2)})
        for words, message in (((lambda: 1, "job.json", 2), "app is a fedge.Client with a trainer, not function"),
                               ((app, "job.json", "2"), "clients is '2'"), ((app, "job.json", 0), "clients is 0"),
                               ((app, "job.json", 2.5), "clients is 2.5"), ((app, "job.json", 2), "no trainer: put @app.train")):
            with self.assertRaisesRegex(fedge.Error, message):
                fedge.simulate(*words)
        with self.assertRaisesRegex(fedge.Error, "processes is -1; it is an integer of at least 1"):
            fedge.simulate(app, "job.json", 2, processes=-1)

    def test_the_release(self):
        self.assertRegex(fedge.__version__, r"^\d+\.\d+\.\d+$")


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def test_idx_files_become_examples(self):
        images = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0])
        labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])
        data = fedge.data.idx(self.path("images.gz", gzip.compress(images)), self.path("labels", labels))
        self.assertEqual((len(data), data.x.shape), (2, (2, 1, 1, 2)))
        x, y = data[np.array([1, 0])]
        self.assertEqual((x.dtype, y.dtype), (np.float32, np.int64))
        np.testing.assert_allclose(x.ravel(), [0.2, 0, 0, 1])
        self.assertEqual(y.tolist(), [9, 7])
        self.assertEqual(data.part(1, 2).y.tolist(), [9])
        with self.assertRaisesRegex(fedge.Error, "part 2 of 2"):
            data.part(2, 2)
        with self.assertRaisesRegex(fedge.Error, "has 3 values, its header says"):
            fedge.data.idx(self.path("short", images[:-1]), self.path("labels"))
        with self.assertRaisesRegex(fedge.Error, "is not an IDX file"):
            fedge.data.idx(self.path("text", b"hello"), self.path("labels"))
        with self.assertRaisesRegex(fedge.Error, "2 examples and 3 labels"):
            fedge.data.Arrays(np.zeros(2), np.zeros(3))

    def test_safetensors_come_back(self):
        tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "scalar": np.float16(2), "n": np.array([1, 2], np.int64)}
        path = self.path("model.safetensors")
        safetensors.write(path, tensors)
        back = safetensors.read(path)
        self.assertEqual(list(back), list(tensors))
        for name, array in tensors.items():
            self.assertEqual(back[name].dtype, array.dtype)
            np.testing.assert_array_equal(back[name], array)
        with open(path, "rb") as file:
            content = file.read()
        with self.assertRaisesRegex(fedge.Error, "not a whole safetensors file"):
            safetensors.read(self.path("cut", content[:-4]))

    def test_data_is_made_arrays(self):
        x, y = fedge.data.Arrays([[1, 2], [3, 4]], [5, 6])[np.array([1])]
        self.assertEqual((x.tolist(), y.tolist()), ([[3, 4]], [6]))
        if torch:
            x, _ = fedge.data.Arrays(torch.full((2, 1), 255, dtype=torch.uint8), torch.zeros(2))[np.array([1])]
            self.assertEqual(x.tolist(), [[1]])
        with self.assertRaisesRegex(fedge.Error, "one row an example"):
            fedge.data.Arrays(3, [1])

    def test_init_refuses_what_the_aggregator_would(self):
        path = self.path("job.json")
        for name, shape, rounds, message in (("w", (0, 2), 2, "shape"), ("n\n", (2,), 2, "name"), ("w" * 500, (2,), 2, "name"),
                                             ("w", (2,), 0, "num-server-rounds")):
            with self.assertRaisesRegex(fedge.Error, f"the aggregator would refuse the job: .*{message}"):
                job.write_job({name: np.zeros(shape)}, path, name="mine", rounds=rounds)
        self.assertEqual(os.listdir(self.folder.name), [])
        with open(self.path("lacking.py"), "w", encoding="ascii") as file:
            file.write("import no_such_package\n")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder.name)
        with self.assertRaisesRegex(fedge.Error, "lacking imports no_such_package, which .* does not have: install it"):
            job.import_model("lacking:model")

    def test_bfloat16_is_read_as_floats(self):
        header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
        path = self.path("b", len(header).to_bytes(8, "little") + header + bytes([0x80, 0x3F, 0x20, 0xC0]))
        self.assertEqual(safetensors.read(path)["w"].tolist(), [1.0, -2.5])

    def test_init_writes_a_job_and_the_initial_values(self):
        path = self.path("job.json")
        with contextlib.redirect_stdout(io.StringIO()):
            job.write_job({"w": np.ones((2, 2)), "b": np.zeros(2)}, path, name="mine", rounds=3, clients=4)
        with open(path, encoding="utf-8") as file:
            made = json.load(file)
        self.assertEqual(made["model"]["tensors"], [{"name": "w", "shape": [2, 2]}, {"name": "b", "shape": [2]}])
        self.assertEqual((made["rounds"]["num-server-rounds"], made["rounds"]["min-train-nodes"]), (3, 4))
        self.assertEqual(safetensors.read(self.path(made["initial-model"]))["w"].tolist(), [[1, 1], [1, 1]])
        with self.assertRaisesRegex(fedge.Error, "'w' has type int32"):
            job.write_job({"w": np.arange(3, dtype=np.int32)}, path, name="mine")
        job.write_job({"h": np.ones(2, np.float16), "n": np.array(7)}, path, name="mine")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["model"]["tensors"], [{"name": "h", "shape": [2], "dtype": "F16"},
                                                                   {"name": "n", "shape": [], "dtype": "I64"}])
        self.assertEqual(safetensors.read(self.path(made["initial-model"]))["n"].item(), 7)
        for name, text in (("client", "must be MODULE:NAME"), ("no_such:model", "no module 'no_such'"),
                           ("json:model", "has no 'model'")):
            with self.assertRaisesRegex(fedge.Error, text):
                job.import_model(name)
        with self.assertRaisesRegex(fedge.Error, "job.safetensors exists"):
            os.unlink(path)
            job.main("json:loads", path, False, job.Options())


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.state = folder.name
        self.run_folder = os.path.join(self.state, "runs", "a1")
        os.makedirs(self.run_folder)
        rows = [{"round": 1, "phase": "train", "loss": 2.0, "devices": [[0, 10, 2.5], [1, 20, None]]},
                {"round": 1, "phase": "evaluate", "loss": 3.0},
                {"round": 2, "phase": "train", "loss": 1.0, "devices": [[1, 20, 1.5]], "updates": [[1, 3]]}]
        with open(os.path.join(self.run_folder, "rounds.jsonl"), "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows) + '{"round": 3, "pha')

    def rows(self, phase):
        return [(row["round"], row["loss"]) for row in self.records_of(fedge.Run(self.state).rounds(phase))]

    @staticmethod
    def records_of(table):
        return table if isinstance(table, list) else table.reset_index().to_dict("records")

    def test_a_device_has_the_rounds_it_took_part_in(self):
        run = fedge.Run(self.state)
        rows = self.records_of(run.device(1))
        self.assertEqual([(row["round"], row["examples"]) for row in rows], [(1, 20), (2, 20)])
        self.assertEqual((rows[1]["loss"], rows[1]["staleness"]), (1.5, 3))
        self.assertEqual([row["loss"] for row in self.records_of(run.device(0))], [2.5])
        self.assertEqual(len(run.device(7)), 0)
        self.assertNotIn("devices", self.records_of(run.rounds())[0])

    def test_a_device_is_found_by_its_name_in_the_registry(self):
        devices = [{"name": "operator", "device_id": "a0", "role": "operator", "index": 0},
                   {"name": "cam-7", "device_id": "b1", "role": "device", "index": 1}]
        registry = os.path.join(self.state, "registry")
        os.makedirs(registry)
        with open(os.path.join(registry, "registry.json"), "w", encoding="utf-8") as file:
            json.dump({"format": 1, "devices": devices}, file)
        run = fedge.Run(self.state)
        for name in ("cam-7", "b1"):
            self.assertEqual(len(run.device(name, registry)), 2)
        with self.assertRaisesRegex(fedge.Error, "no device 'operator', but 1 others"):
            run.device("operator", registry)
        with self.assertRaisesRegex(fedge.Error, "with registry="):
            run.device("cam-7")

    def test_rounds_are_rows_and_half_a_line_is_not_one(self):
        self.assertEqual(self.rows("train"), [(1, 2.0), (2, 1.0)])
        self.assertEqual(self.rows("evaluate"), [(1, 3.0)])
        self.assertEqual(len(fedge.Run(self.run_folder).records()), 3)

    def test_the_model_comes_once_the_run_has_ended(self):
        with self.assertRaisesRegex(fedge.Error, "the run has not ended"):
            fedge.Run(self.state).state_dict()
        safetensors.write(os.path.join(self.run_folder, "model.safetensors"), {"w": np.ones(2, np.float32)})
        self.assertEqual(fedge.Run(self.state).state_dict()["w"].tolist(), [1, 1])
        with self.assertRaisesRegex(fedge.Error, "keep-best"):
            fedge.Run(self.state).state_dict(best=True)

    def test_which_run_is_said(self):
        os.makedirs(os.path.join(self.state, "runs", "b2"))
        with self.assertRaisesRegex(fedge.Error, "has 2 runs; name one"):
            fedge.Run(self.state)
        with self.assertRaisesRegex(fedge.Error, "no rounds.jsonl and no runs"):
            fedge.Run(self.run_folder + "/..")


class Corrections(unittest.TestCase):
    """g + correction + mu (w − anchor), and 0 where a tensor is not trained."""

    def setUp(self):
        self.views = views_of(a=(2,), b=(3,))
        self.correction = {"a": np.float32([1, 2]), "b": np.float32([3, 4, 5])}
        self.anchor = {"a": np.float32([1, 1]), "b": np.float32([1, 1, 1])}

    def test_of_arrays(self):
        adapter = models.adapter_of({"a": np.zeros(2), "b": np.zeros(3)})
        adapter.attach(self.views)
        gradients = {"a": np.zeros(2, np.float32), "b": np.ones(3)}
        adapter.correct(self.correction, 0.5, self.anchor, None, gradients)
        self.assertEqual(gradients["a"].tolist(), [0.5, 2])
        self.assertEqual(gradients["b"].tolist(), [3.5, 5, 6.5])
        self.assertFalse(adapter.freeze({"b"}))
        adapter.correct(None, 0, None, {"b"}, gradients)
        self.assertEqual((gradients["a"].tolist(), gradients["b"].tolist()), ([0, 0], [3.5, 5, 6.5]))
        for wrong, text in ((None, "give correct_gradients the gradients"), ({"c": np.zeros(1)}, "gradient of 'c'"),
                            ({"a": np.zeros(3)}, r"'a' must be a NumPy array of shape \[2\]")):
            with self.assertRaisesRegex(fedge.Error, text):
                adapter.correct(self.correction, 0, None, None, wrong)

    def test_an_estimator_has_no_gradients(self):
        estimator = models.EstimatorAdapter(types.SimpleNamespace(coef_=np.zeros(2), intercept_=np.zeros(3)))
        estimator.correct(None, 0, None, None, None)
        with self.assertRaisesRegex(fedge.Error, "scikit-learn does not hand out gradients"):
            estimator.correct(self.correction, 0, None, None, None)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_of_a_torch_model(self):
        module = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.zeros(2)), "b": torch.nn.Parameter(torch.zeros(3))})
        adapter = models.adapter_of(module)
        adapter.attach(self.views)
        module["b"].sum().backward()
        adapter.correct(self.correction, 0.5, self.anchor, None, None)
        self.assertEqual(module["a"].grad.tolist(), [0.5, 2])  # the loss does not depend on it
        self.assertEqual(module["b"].grad.tolist(), [3.5, 5, 6.5])
        adapter.release()
        adapter.attach(self.views)
        self.assertTrue(adapter.freeze({"b"}))
        optimizer = torch.optim.SGD(module.parameters(), lr=1, weight_decay=0.5)
        (module["a"].sum() + module["b"].sum()).backward()
        optimizer.step()
        self.assertEqual((self.views["a"].tolist(), self.views["b"].tolist()), ([0, 1], [-1, -0.5, 0]))
        adapter.release()
        self.assertTrue(module["a"].requires_grad)

    @unittest.skipUnless(torch, "there is no torch")
    def test_of_a_tensor_with_two_names(self):
        module = torch.nn.ModuleDict({"e": torch.nn.Linear(2, 1, bias=False), "h": torch.nn.Linear(2, 1, bias=False)})
        module["h"].weight = module["e"].weight
        adapter = models.adapter_of(module)
        names = ("e.weight", "h.weight")
        adapter.attach({name: np.float32([[3, 3]]) for name in names})
        adapter.correct({name: np.float32([[1, 2]]) for name in names}, 0.5, {name: np.float32([[1, 1]]) for name in names}, None, None)
        self.assertEqual(module["e"].weight.grad.tolist(), [[2, 3]])

    def test_a_task_notes_what_its_trainer_leaves_out(self):
        def make():
            given = types.SimpleNamespace(task_id=1, round=2, client_index=3, num_clients=8, learning_rate=0.1, deadline_ms=1000,
                                          plan=types.SimpleNamespace(**PLAN))
            demands = task.Demands(self.correction, 0.5, self.anchor, frozenset({"a"}))
            return task.Task(None, given, models.adapter_of({"a": np.zeros(2)}), demands, True)

        made = make()
        self.assertIs(made.correction, self.correction)
        with self.assertRaisesRegex(fedge.Error, "or heed task.proximal_mu, task.trained$"):
            made._check_demands()
        self.assertEqual((made.proximal_mu, made.trained, made.anchor), (0.5, {"a"}, self.anchor))
        made._check_demands()
        made = make()
        made.correct_gradients({})
        made._check_demands()


PLAN = {"name": ffi.new("char[]", b"job"), "run_id": ffi.new("char[]", b"run"), "seed": 3, "local_epochs": 2,
        "local_steps": 0, "batch_size": 4, "momentum": 0, "weight_decay": 0, "config": ffi.new("char[]", b"{}")}


class Batches(unittest.TestCase):
    """The order of examples, of a task that is not of the library."""

    def task(self, trains=True, **plan):
        values = {**PLAN, **plan}
        given = types.SimpleNamespace(task_id=1, round=2, client_index=3, num_clients=8, learning_rate=0.1, deadline_ms=1000,
                                      plan=types.SimpleNamespace(**values))
        made = task.Task(None, given, models.adapter_of({}), task.Demands(), trains)
        made.check = lambda: None
        return made

    def test_every_epoch_has_each_example_once(self):
        made = self.task()
        batches = [x.tolist() for x, in made.batches((np.arange(10),))]
        self.assertEqual([len(batch) for batch in batches], [4, 4, 2] * 2)
        for epoch in (batches[:3], batches[3:]):
            self.assertEqual(sorted(sum(epoch, [])), list(range(10)))
        self.assertNotEqual(batches[:3], batches[3:])
        self.assertEqual(made.num_steps, 6)

    def test_the_order_depends_on_seed_round_and_device(self):
        def order(**plan):
            return [x.tolist() for x, in self.task(**plan).batches((np.arange(10),))]
        self.assertEqual(order(), order())
        self.assertNotEqual(order(), order(seed=4))
        self.assertEqual(sum(([x.tolist() for x, in self.task().batches((np.arange(3),), shuffle=False)]), []), [0, 1, 2] * 2)

    def test_steps_count_batches(self):
        batches = list(self.task(local_steps=7, local_epochs=0).batches((np.arange(10),)))
        self.assertEqual(len(batches), 7)
        with self.assertRaisesRegex(fedge.Error, "no examples"):
            next(self.task().batches((np.zeros(0),)))

    def test_a_second_loop_has_its_own_steps(self):
        made = self.task(local_steps=3)
        self.assertEqual([len(list(made.batches((np.arange(10),)))) for _ in range(2)], [3, 3])

    def test_an_evaluation_sees_each_example_once(self):
        for plan in ({"local_epochs": 5}, {"local_steps": 1}):
            batches = [x.tolist() for x, in self.task(False, **plan).batches((np.arange(10),))]
            self.assertEqual(sum(batches, []), list(range(10)))

    def test_sequences_of_examples_are_stacked(self):
        examples = [(np.full(2, i), i) for i in range(5)]
        x, y = next(self.task().batches(examples, shuffle=False))
        self.assertEqual((x.tolist(), y.tolist()), ([[0, 0], [1, 1], [2, 2], [3, 3]], [0, 1, 2, 3]))
        with self.assertRaisesRegex(fedge.Error, "not a dict: give"):
            next(self.task().batches([{"x": 1}] * 4))
        loader = types.SimpleNamespace(dataset=examples)
        with self.assertRaisesRegex(fedge.Error, "not SimpleNamespace, without its DataLoader: loader.dataset"):
            next(self.task().batches(loader))
        with self.assertRaisesRegex(fedge.Error, "not generator$"):
            next(self.task().batches(iter(x for x in examples)))
        with self.assertRaisesRegex(fedge.Error, "cannot be pickled"):
            pickle.dumps(self.task())
        with self.assertRaisesRegex(fedge.Error, "arrays of one length"):
            next(self.task().batches((np.zeros(2), np.zeros(3))))

    def test_cancelling_ends_them(self):
        made = self.task()

        def cancel():
            raise fedge.TaskCancelled()
        made.check = cancel
        with self.assertRaises(fedge.TaskCancelled):
            next(made.batches((np.arange(10),)))


class Values(unittest.TestCase):
    def test_state_takes_bytes_arrays_and_json(self):
        for value in (b"bytes", None, 3, 1.5, "text", [1, {"a": None}]):
            self.assertEqual(task._decode(task._encode(value)), value)
        back = task._decode(task._encode(np.arange(3, dtype=np.int16)))
        self.assertEqual((back.tolist(), back.dtype), ([0, 1, 2], np.int16))
        with self.assertRaisesRegex(fedge.Error, "torch.save"):
            task._encode(object())
        endless = []
        endless.append(endless)
        for value in (np.array([object()]), endless, *([torch.zeros(1, dtype=torch.bfloat16)] if torch else [])):
            with self.assertRaisesRegex(fedge.Error, "torch.save"):
                task._encode(value)
        with self.assertRaisesRegex(fedge.Error, r"state\[3\]: a key is a text"):
            task.State(None)[3] = 1


if __name__ == "__main__":
    unittest.main(verbosity=2)
