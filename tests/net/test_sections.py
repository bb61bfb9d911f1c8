"""What travels in an update, and what becomes of it: parts of a model."""

import glob
import os
import shutil
import struct

import harness
import kills
from harness import FEATURES, LABELS, NetTest, batchnorm, points_as_images
from peer import Peer
from softmax import read_model, scaffold_job

HIDDEN = 256
KILLS = max(2, kills.KILLS // 5)


def mlp(first=None, last=None, **model):
    return {"input-shape": [FEATURES], **model, "layers": [
        {"type": "Linear", "in_features": FEATURES, "out_features": HIDDEN, **(first or {})},
        {"type": "ReLU"},
        {"type": "Linear", "in_features": HIDDEN, "out_features": LABELS, **(last or {})}]}


class Sections(NetTest):
    disturbed = kills.KilledTest.disturbed

    def play(self, **job):
        """Two models, before and after, and the bytes that went up."""
        federation = self.federation(keep_checkpoints=10, update__codec="none", update__deflate=False, **job)
        federation.start_aggregator()
        clients = federation.start_clients()
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        folder = federation.run_folder()
        before = read_model(os.path.join(folder, "checkpoints", "round-000000", "model.safetensors"))
        after = read_model(os.path.join(folder, "model.safetensors"))
        return before, after, federation.lines()


class Partial(Sections):
    def assert_moved(self, before, after, name, rows):
        """Of this tensor exactly these rows have moved, whole (their sources are never all zero)."""
        size = len(before[name]) // (HIDDEN if name.startswith("0") else LABELS)
        moved = {i // size for i, pair in enumerate(zip(before[name], after[name])) if pair[0] != pair[1]}
        self.assertEqual(moved, set(rows), name)

    def test_only_what_is_trained_is_sent(self):
        whole = self.play(model=mlp())[2][0]["bytes_up"]
        before, after, lines = self.play(model=mlp(first={"train": "none"}))
        frozen = 3 * 4 * HIDDEN * (FEATURES + 1)
        self.assertAlmostEqual(whole - lines[0]["bytes_up"], frozen, delta=600)  # texts of messages
        self.assertEqual(before["0.weight"] + before["0.bias"], after["0.weight"] + after["0.bias"])
        self.assert_moved(before, after, "2.weight", range(LABELS))
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        last = self.play(model=mlp(**{"train-last": 1}))
        self.assertEqual(last[1], after)

    def test_rows_of_a_layer(self):
        before, after, lines = self.play(model=mlp(first={"train": "none"}, last={"train-channels": [1, 3]}))
        self.assertEqual(before["0.weight"] + before["0.bias"], after["0.weight"] + after["0.bias"])
        self.assert_moved(before, after, "2.weight", [1, 2])
        self.assert_moved(before, after, "2.bias", [1, 2])
        self.assertLess(lines[0]["bytes_up"], 3 * (4 * 2 * (HIDDEN + 1) + 2000))

    def test_kills_change_nothing(self):
        job = {"model": mlp(first={"train": "bias"}, last={"train-channels": [1, 3]})}
        hashes = self.disturbed(3 * KILLS, KILLS, KILLS // 2, kills.SEED + 10, **job)
        self.assertEqual(hashes, harness.undisturbed(3 * KILLS, clients=kills.CLIENTS, **job))


PARAMETERS = 3 * 4 + 4 + 4 + 4 + 16 * LABELS + LABELS


class Statistics(Sections):
    def federation(self, *arguments, **options):
        return points_as_images(super().federation(*arguments, data__shape=[3, 2, 2], **options))

    def floats(self, tensor):
        return struct.unpack(f"<{len(tensor)}f", b"".join(tensor))

    def test_statistics_are_learnt_and_used(self):
        before, after, lines = self.play(model=batchnorm(), rounds__num_server_rounds=6, rounds__fraction_evaluate=1,
                                         site={"validation-fraction": 0.2})
        self.assertEqual(self.floats(before["bn.running_mean"]), (0, 0, 0, 0))
        self.assertEqual(self.floats(before["bn.running_var"]), (1, 1, 1, 1))
        self.assertTrue(all(value != 0 for value in self.floats(after["bn.running_mean"])))
        self.assertTrue(all(value > 0 and value != 1 for value in self.floats(after["bn.running_var"])))
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        self.assertGreater(lines[-1]["accuracy"], 0.6)  # chance is 0.25; by these statistics

    def test_frozen_statistics_stay(self):
        before, after, _ = self.play(model=batchnorm(frozen=True))
        for name in ("bn.running_mean", "bn.running_var"):
            self.assertEqual(before[name], after[name])
        self.assertNotEqual(before["bn.weight"], after["bn.weight"])

    def test_the_mean_is_weighted_and_no_variance_negative(self):
        """Two devices say what their statistics did; 100 and 300 examples."""
        federation = self.federation(clients=2, model=batchnorm(), rounds__num_server_rounds=1,
                                     update__codec="none", update__deflate=False,
                                     strategy__server_learning_rate=0.5)
        federation.start_aggregator()
        moves = [[1.0, -2.0, 0.25, 100.0] + [2.0, -1.0, -100.0, 0.5],
                 [0.0, 2.0, -0.75, -20.0] + [4.0, -1.0, 0.0, 0.5]]
        with Peer(federation, 0) as first, Peer(federation, 1) as second:
            first.hello()
            second.hello()
            for peer, weight, move in ((first, 100, moves[0]), (second, 300, moves[1])):
                peer.next_task()
                self.assertEqual(peer.task["bounds"], [2] * 6 + [8] * 2)
                data = struct.pack(f"<{PARAMETERS + 8}f", *[1.0] * PARAMETERS, *move)
                raw = [4 * PARAMETERS, 32]
                sections = [{"name": name, "codec": "none", "deflate": False, "size": size, "raw-size": size}
                            for name, size in zip(("delta", "buffers"), raw)]
                peer.upload(data, codec="none", examples=weight, sections=sections)
        federation.complete()
        folder = federation.run_folder()
        after = read_model(os.path.join(folder, "model.safetensors"))
        mean = [(a + 3 * b) / 4 for a, b in zip(*moves)]
        self.assertEqual(list(self.floats(after["bn.running_mean"])), mean[:4])
        self.assertEqual(list(self.floats(after["bn.running_var"])), [max(0, 1 + x) for x in mean[4:]])
        self.assertEqual(self.floats(after["bn.bias"]), (0.5,) * 4)

    def test_kills_change_nothing(self):
        job = {"model": batchnorm()}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 11, **job)
        self.assertEqual(hashes, self.undisturbed(2 * KILLS, **job))

    def undisturbed(self, rounds, **job):
        federation = self.federation(clients=kills.CLIENTS, rounds__num_server_rounds=rounds, **job)
        federation.start_aggregator()
        federation.start_clients()
        federation.complete()
        return federation.hashes()


class Scaffold(Sections):
    def test_frozen_rows_have_no_variate(self):
        job = scaffold_job()
        job["model"]["layers"][0]["train-channels"] = [1, 3]
        before, after, _ = self.play(**job)
        rows = {i // FEATURES for i, pair in enumerate(zip(before["0.weight"], after["0.weight"]))
                if pair[0] != pair[1]}
        self.assertEqual(rows, {1, 2})

    SIZE = 4 * LABELS * (FEATURES + 1)

    def peers_of(self, federation):
        """Two devices of one's own; each has its task."""
        peers = [Peer(federation, i) for i in range(2)]
        for peer in peers:
            peer.hello(features=["codec:none", "codec:int8", "deflate", "scaffold-counted"])
        for peer in peers:
            peer.next_task()
        return peers

    def upload(self, peer, control, **meta):
        """Nothing learnt, and this change of each control value; no wait for ACK."""
        data = bytes(self.SIZE) + struct.pack("<f", control) * (self.SIZE // 4)
        meta = peer.upload_meta(data, codec="none", sections=[
            {"name": name, "codec": "none", "deflate": False, "size": self.SIZE, "raw-size": self.SIZE}
            for name in ("delta", "control")], **meta)
        peer.send_parts(data, peer.announce(meta))

    def controls(self, peer):
        """Of the server's c, which lies behind the model: the values that there are."""
        task = peer.task
        blob = peer.fetch(task["model"], task["model-size"])[-task["control-size"]:]
        data = blob[8 + struct.unpack("<Q", blob[:8])[0]:]
        return set(struct.unpack(f"<{len(data) // 4}f", data))

    def test_a_task_says_which_update_counted(self):
        """A device goes by that alone: an ACK may be lost, the aggregator killed, and a round fail."""
        job = scaffold_job(update__codec="none", update__deflate=False, rounds__min_train_nodes=2,
                           rounds__min_report_fraction=1, rounds__round_deadline_s=10)
        federation = self.federation(clients=2, **job)
        federation.start_aggregator()
        peers = self.peers_of(federation)
        ids = [peer.task["task-id"] for peer in peers]
        self.assertEqual([peer.task["last-counted"] for peer in peers], [0, 0])
        for peer in peers:
            self.upload(peer, 0.25)
        harness.wait_until("the end of round 1", lambda: len(federation.lines()) == 1)
        federation.aggregator.kill()
        for peer in peers:
            peer.close()
        federation.start_aggregator()
        peers = self.peers_of(federation)
        self.assertEqual([peer.task["last-counted"] for peer in peers], ids)
        self.assertEqual(self.controls(peers[0]), {0.25})
        self.upload(peers[0], 0.25)  # acknowledged, and the other one misses the deadline
        failed = peers[0].task["task-id"]
        peers[0].expect("ack", skip=("cancel",))
        for peer in peers:
            peer.next_task()
        self.assertNotEqual(peers[0].task["task-id"], failed)
        self.assertEqual([peer.task["last-counted"] for peer in peers], ids)
        self.assertEqual(self.controls(peers[1]), {0.25})
        for peer in peers:
            peer.close()

    def test_a_lost_variate_begins_all_anew(self):
        """Or c would be off the mean of the c_i for good."""
        federation = self.federation(clients=2, **scaffold_job(update__codec="none", update__deflate=False))
        federation.start_aggregator()
        peers = self.peers_of(federation)
        for lost in (0, 1):
            for peer in peers:
                self.upload(peer, 0.25, metrics={"loss": 1.0, "accuracy": 0.5, "control-lost": lost})
            for peer in peers:
                peer.next_task()
        self.assertEqual([peer.task["last-counted"] for peer in peers], [0, 0])
        self.assertEqual(self.controls(peers[1]), {0.0})
        for peer in peers:
            peer.close()

    def after_a_restart(self, change):
        """A run in which client 1 is killed, [change] is done to its state, and it comes again."""
        federation = self.federation(**scaffold_job(rounds__num_server_rounds=30, rounds__min_report_fraction=1))
        federation.start_aggregator()
        clients = federation.start_clients()
        harness.wait_until("round 3", lambda: len(federation.lines()) >= 3)
        clients[1].kill()
        change(federation.path("client-1"))
        again = federation.start_client(1)
        federation.complete()
        self.assertEqual(again.wait(), 0, again.tail())
        told = [event for event in federation.aggregator.events()
                if event["event"] == "control-variates-begin-anew"]
        self.assertEqual([event["clients-that-lost-theirs"] for event in told], [1])
        self.assertLess(federation.lines()[-1]["loss"], federation.lines()[0]["loss"])
        return again

    def test_a_device_that_lost_its_state(self):
        """It is told to the aggregator once, and the run goes on."""
        self.after_a_restart(shutil.rmtree)

    def test_a_device_whose_variates_are_damaged(self):
        """They count as lost: a flipped bit does not become another model."""
        def flip(state):
            names = glob.glob(os.path.join(state, "kv", "*", "fedge-control*+crc32"))
            self.assertEqual(len(names), 2)
            for name in names:
                with open(name, "r+b") as file:
                    data = bytearray(file.read())
                    data[20] ^= 0x10
                    file.seek(0)
                    file.write(data)

        again = self.after_a_restart(flip)
        self.assertTrue([event for event in again.events("store") if "is damaged" in event["error"]], again.tail())

    def test_kills_change_nothing(self):
        job = scaffold_job(update__codec="int8")
        del job["rounds__num_server_rounds"]
        rounds = 3 * KILLS
        hashes = self.disturbed(rounds, KILLS, KILLS, kills.SEED + 12, **job)
        self.assertEqual(hashes, harness.undisturbed(rounds, clients=kills.CLIENTS, **job))


if __name__ == "__main__":
    harness.main()
