"""What the aggregator holds: bytes for each parameter, whatever the workers and clients, and for each idle device."""

import threading
import unittest

import harness
from harness import NetTest
from peer import Peer

MOST_PER_PARAMETER = 20
SMALL, LARGE = 500_000, 6_000_000  # so far apart that what is in queues hardly counts


def external(federation, parameters):
    """Makes its job one of a model with so many values, zeros at first, sent as floats."""
    federation.write("job.json", {
        "fedge-job": 1, "name": "memory", "seed": 1,
        "model": {"type": "external", "tensors": [{"name": "w", "shape": [parameters]}]},
        "training": {"local-epochs": 1, "batch-size": 1, "learning-rate": 1},
        "rounds": {"num-server-rounds": 3, "min-available-nodes": federation.clients,
                   "min-train-nodes": federation.clients},
        "strategy": {"type": "FedAvg"}, "update": {"codec": "none", "deflate": False}, "min-free-disk": 0})


@unittest.skipIf(harness.SANITIZED, "a sanitizer's own memory is most of it")
class Memory(NetTest):
    def peak(self, parameters, workers, clients):
        """Of two rounds in which all clients take the model and send an update at the same time."""
        federation = self.federation(clients=clients)
        external(federation, parameters)
        aggregator = federation.start_aggregator(workers=workers)
        update = bytes(4 * parameters)
        failed = []

        def play(index):
            try:
                with Peer(federation, index) as peer:
                    peer.hello()
                    for _ in range(2):
                        task = peer.next_task()
                        peer.fetch(task["model"], task["model-size"])
                        peer.upload(update, codec="none")
            except Exception as error:  # told by the thread that waits
                failed.append(error)

        threads = [threading.Thread(target=play, args=(index,)) for index in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        aggregator.wait_event("round-closed", 2)  # and not the last, after which it ends
        peak = harness.memory_of(aggregator.pid, "VmHWM")
        aggregator.stop()
        return peak

    def test_a_parameter_takes_20_bytes_at_most(self):
        for workers, clients in ((1, 2), (4, 2), (4, 4)):
            with self.subTest(workers=workers, clients=clients):
                small, large = (self.peak(parameters, workers, clients) for parameters in (SMALL, LARGE))
                self.assertLessEqual((large - small) / (LARGE - SMALL), MOST_PER_PARAMETER)


if __name__ == "__main__":
    harness.main()
