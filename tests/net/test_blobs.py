"""What a device has is not sent to it again: over restarts of both sides, and from a file beside the client."""

import glob
import hashlib
import json
import os
import shutil
import struct

import harness
from harness import FEATURES, LABELS, NetTest, wait_until

HIDDEN = 4000
LARGE = {"hidden": HIDDEN, "rounds__num_server_rounds": 1}


def write_model(path):
    """A model of such a job that no seed makes."""
    header, data = {}, b""
    for name, shape in (("0.weight", [HIDDEN, FEATURES]), ("0.bias", [HIDDEN]),
                        ("2.weight", [LABELS, HIDDEN]), ("2.bias", [LABELS])):
        values = struct.pack("<f", 0.01) * (shape[0] * (shape[1] if len(shape) > 1 else 1))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Known(NetTest):
    def model_of(self, federation):
        """The first model's file, as the server keeps it."""
        pattern = federation.path("state", "runs", "*", "checkpoints", "round-000000", "model.safetensors")
        return wait_until("the first checkpoint", lambda: glob.glob(pattern))[0]

    def only_messages(self, federation, size):
        """That no more went down than plans and tasks, less than a model of that size."""
        federation.complete()
        down = federation.lines()[0]["bytes_down"]
        self.assertGreater(down, 0)
        self.assertLess(down, size)

    def from_file(self, **job):
        """A job whose initial model clients cannot make."""
        federation = self.federation(**{"initial-model": "start.safetensors"}, **LARGE, **job)
        write_model(federation.path("start.safetensors"))
        return federation

    def test_a_model_that_the_seed_makes_is_not_sent(self):
        """Nor is it made again, or another kept beside it, once a client has been told of a later one."""
        federation = self.federation(**{**LARGE, "rounds__num_server_rounds": 2})
        federation.start_aggregator()
        size = os.path.getsize(self.model_of(federation))
        clients = federation.start_clients()
        self.only_messages(federation, size)
        self.assertGreater(federation.lines()[1]["bytes_down"], 2 * size)
        for index, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertLessEqual(len(os.listdir(federation.path(f"client-{index}", "blobs"))), 2)

    def test_a_file_beside_the_client_is_not_sent(self):
        federation = self.from_file()
        federation.start_aggregator()
        model = shutil.copy(self.model_of(federation), federation.path("seed"))
        for index in range(3):
            federation.start_client(index, **{"seed-blob": model, "state": None if index == 0 else
                                              federation.path(f"client-{index}")})
        self.only_messages(federation, os.path.getsize(model))
        self.assertFalse(os.path.exists(federation.path("client-1", "blobs", hashlib.sha256(
            open(model, "rb").read()).hexdigest())))

    def test_without_it_the_model_is_sent(self):
        federation = self.from_file()
        federation.start_aggregator()
        model = shutil.copy(self.model_of(federation), federation.path("seed"))
        federation.start_clients()
        federation.complete()
        self.assertGreater(federation.lines()[0]["bytes_down"], 3 * os.path.getsize(model))

    def test_a_seed_that_is_missing_is_said(self):
        federation = self.federation()
        federation.start_aggregator()
        client = federation.start_client(0, **{"seed-blob": federation.path("nothing")})
        self.assertEqual(client.wait(), 5)
        self.assertIn("seed blob", client.log())

    def test_neither_side_forgets_in_a_restart(self):
        federation = self.from_file(training__local_epochs=300)
        federation.start_aggregator()
        model = self.model_of(federation)
        with open(model, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        clients = federation.start_clients()
        for index, client in enumerate(clients):
            blob = federation.path(f"client-{index}", "blobs", digest)
            wait_until("the model", lambda path=blob: os.path.exists(path) and
                       os.path.getsize(path) == os.path.getsize(model))
        for program in (*clients, federation.aggregator):
            program.kill()
        federation.start_aggregator()
        federation.start_clients()
        self.only_messages(federation, os.path.getsize(model))


if __name__ == "__main__":
    harness.main()
