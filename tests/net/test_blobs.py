"""What a device has is not sent to it again: over restarts of both sides, and from a file beside the client."""

import glob
import hashlib
import os
import shutil

import harness
from harness import NetTest, wait_until

LARGE = {"hidden": 4000, "rounds__num_server_rounds": 1}


class Known(NetTest):
    def model_of(self, federation):
        """The first model's file, as the server keeps it."""
        pattern = federation.path("state", "runs", "*", "checkpoints", "round-000000", "model.safetensors")
        return wait_until("the first checkpoint", lambda: glob.glob(pattern))[0]

    def only_messages(self, federation, model):
        """That no more went down than plans and tasks."""
        federation.complete()
        down = federation.lines()[0]["bytes_down"]
        self.assertGreater(down, 0)
        self.assertLess(down, os.path.getsize(model))

    def test_a_file_beside_the_client_is_not_sent(self):
        federation = self.federation(**LARGE)
        federation.start_aggregator()
        model = shutil.copy(self.model_of(federation), federation.path("seed"))
        for index in range(3):
            federation.start_client(index, **{"seed-blob": model, "state": None if index == 0 else
                                              federation.path(f"client-{index}")})
        self.only_messages(federation, model)
        self.assertFalse(os.path.exists(federation.path("client-1", "blobs", hashlib.sha256(
            open(model, "rb").read()).hexdigest())))

    def test_without_it_the_model_is_sent(self):
        federation = self.federation(**LARGE)
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
        federation = self.federation(training__local_epochs=300, **LARGE)
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
        self.only_messages(federation, model)


if __name__ == "__main__":
    harness.main()
