"""Devices whose client is a Python program, for the tests of the package."""

import os
import sys

sys.path.insert(0, os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests", "net"))
import harness  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# The build's package, or with FEDGE_PACKAGE=installed the one of the Python that runs the test.
INSTALLED = os.environ.get("FEDGE_PACKAGE") == "installed"
PACKAGE = os.path.join(os.environ["FEDGE_BINARY_DIR"], "python")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", **({} if INSTALLED else {"PYTHONPATH": PACKAGE})}
LINEAR = {"input-shape": [12], "layers": [{"type": "Linear", "in_features": 12, "out_features": 4}],
          "loss": {"type": "CrossEntropyLoss"}}


class PythonTest(harness.NetTest):
    """A federation of the small job with one Linear layer."""

    def linear_federation(self, clients=2, site=None, **job):
        federation = self.federation(clients=clients, site=site)
        federation.write("job.json", {**harness.make_job(rounds__min_train_nodes=clients,
                                                 rounds__min_available_nodes=clients, **job), "model": LINEAR})
        return federation

    def device_directory(self, federation, index, **policy):
        """As /etc/fedge of a device."""
        directory = federation.path(f"device-{index}")
        if not os.path.isdir(directory):
            os.makedirs(directory)
            os.symlink(f"{federation.keys}/clients/{index:04}", os.path.join(directory, "identity"))
            os.symlink(f"{federation.keys}/trust", os.path.join(directory, "trust"))
        federation.write(f"device-{index}/client.json", {"servers": f"wss://127.0.0.1:{federation.port}",
                                                         "policy": policy})
        return directory

    def start_python(self, federation, index, *more, script="softmax_client.py", state=True, **policy):
        directory = self.device_directory(federation, index, **policy)
        kept = federation.path(f"python-state-{index}") if state else "none"
        client = harness.Program(f"python-{index}", [sys.executable, "-B", os.path.join(HERE, script), directory, kept, *more],
                         federation.folder, ENVIRONMENT)
        federation.seen.append(client)
        return client
