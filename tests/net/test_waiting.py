"""What a round waits for, and what it does not: clients that decline, crash, or have a full disk."""

import os
import signal

import harness
from harness import NetTest, fault

CLIENT_DECLINED = 8
LONG_S = 3600  # a deadline that no test waits for


class Waiting(NetTest):
    def alone(self, rounds=2, **job):
        """A run for one client, and a deadline that is far away."""
        federation = self.federation(
            clients=1, rounds__num_server_rounds=rounds, rounds__min_train_nodes=1,
            rounds__round_deadline_s=LONG_S, **job)
        federation.start_aggregator()
        return federation

    def without_data(self, federation):
        """A client whose file names data that is not there; returns when it has declined and ended."""
        wrong = federation.write("wrong.json", {"data": {"points": {
            "values": "nowhere.npy", "labels": "train-labels.npy"}}})
        client = federation.start_client(0, config=wrong, partition_id=None, num_partitions=None)
        self.assertEqual(client.wait(), CLIENT_DECLINED, client.tail())
        federation.aggregator.wait_event("round-failed")

    def test_a_client_that_declined_is_asked_when_it_is_mended(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone()
        for attempt in (1, 2):
            self.without_data(federation)
            state = harness.wait_until("the next attempt", lambda a=attempt: f"attempt {a + 1} of round 1"
                                       in federation.health()["state"] and federation.health()["state"])
            self.assertIn("waiting for nodes: 0 of 1 connected", state)
            self.assertIn("client 0", state)
            self.assertIn("nowhere.npy", state)
        waits = federation.aggregator.wait_event("round-waits")
        self.assertIn("client 0", waits["for"], waits)
        federation.start_client(0)
        federation.complete()
        self.assertEqual([line["attempt"] for line in federation.lines()], [2, 0])
        told = federation.aggregator.events("client-reported-error")  # by the next start each time
        self.assertGreaterEqual(len(told), 2)
        for event in told:
            self.assertRegex(event["error"], "nowhere.npy|declined")
        self.assertEqual(federation.hashes(), expected)

    def test_a_drain_does_not_wait_for_who_declined(self):
        federation = self.alone()
        self.without_data(federation)
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
        federation.aggregator.wait_event("drained")

    def test_a_drain_leaves_the_round_of_a_crashed_client_open(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone()
        # Killed when it has trained, before its result is stored.
        client = federation.start_client(0, environment=fault("rename", 1, "kill-before", "client-0/result"))
        self.assertEqual(client.wait(), -signal.SIGKILL, client.tail())
        harness.wait_until("nobody to be there", lambda: federation.health()["connected"] == 0)
        self.assertIn("0 at work; not connected: client 0", federation.health()["state"])
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
        self.assertEqual(federation.lines(), [])
        federation.start_aggregator()
        federation.start_client(0)
        federation.complete()
        self.assertEqual([line["attempt"] for line in federation.lines()], [0, 0])
        self.assertEqual(federation.hashes(), expected)

    def test_a_result_waits_for_room_on_the_device(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone()
        client = federation.start_client(0, environment=fault("pwrite", 1, "ENOSPC", "client-0/result"))
        client.wait_event("store")
        federation.complete()
        self.assertEqual(client.wait(), 0, client.tail())
        self.assertEqual(len(client.events("store")), 1, client.tail())
        trained = client.events("trained")
        self.assertEqual(len(trained), 2, client.tail())
        for event, line in zip(trained, federation.lines()):
            self.assertAlmostEqual(event["loss"], line["train_loss"], 5)
            self.assertAlmostEqual(event["accuracy"], line["train_accuracy"], 5)
            self.assertAlmostEqual(event["seconds"], line["seconds_train"], 2)
        self.assertEqual(federation.aggregator.events("client-declined"), [])
        self.assertEqual([line["attempt"] for line in federation.lines()], [0, 0])
        self.assertEqual(federation.hashes(), expected)

    def test_a_drain_does_not_wait_for_room_on_a_device(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone()
        client = federation.start_client(0, environment=fault("pwrite", "1+", "ENOSPC", "client-0/result"))
        client.wait_event("store")
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
        federation.aggregator.wait_event("drained")
        declined = federation.aggregator.wait_event("client-declined")
        self.assertEqual(declined["reason"], "no-space", declined)
        self.assertIn("No space left", declined["text"], declined)
        self.assertGreater(len(client.events("store")), 2, client.tail())  # it was put again before
        client.kill()
        federation.start_aggregator()
        federation.start_client(0)
        federation.complete()
        self.assertEqual(federation.hashes(), expected)

    def test_a_model_without_room_is_declined(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone()
        client = federation.start_client(
            0, environment=fault("pwrite", 1, "ENOSPC", f"client-0/blobs/{expected[0]}"))
        federation.complete()
        self.assertEqual(client.wait(), 0, client.tail())
        declined = federation.aggregator.events("client-declined")
        self.assertEqual([event["reason"] for event in declined], ["no-space"])
        self.assertIn("No space left", declined[0]["text"])
        self.assertEqual(len(client.events("connect")), 1, client.tail())
        self.assertEqual([line["attempt"] for line in federation.lines()], [0, 1])
        self.assertEqual(federation.hashes(), expected)

    def test_a_plan_without_room_is_fetched_again(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.alone()
        client = federation.start_client(0, environment=fault("pwrite", 1, "ENOSPC", "client-0/blobs"))
        client.wait_event("store")
        federation.complete()
        self.assertEqual(client.wait(), 0, client.tail())
        self.assertEqual(len(client.events("connect")), 1, client.tail())
        self.assertEqual(federation.hashes(), expected)

    def test_a_result_without_room_is_given_up_with_its_client(self):
        federation = self.alone()
        client = federation.start_client(0, environment=fault("pwrite", 1, "ENOSPC", "client-0/result"))
        client.wait_event("store")
        self.assertEqual(client.stop(), 0, client.tail())
        self.assertFalse(os.path.exists(federation.path("client-0", "result")))
        federation.start_client(0)
        federation.complete()
        self.assertEqual([line["attempt"] for line in federation.lines()], [0, 0])


if __name__ == "__main__":
    harness.main()
