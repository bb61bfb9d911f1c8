"""What travels in an update, and what becomes of it: parts of a model."""

import json
import os
import struct

import harness
import test_crash
from harness import FEATURES, LABELS, NetTest

HIDDEN = 256
KILLS = max(2, test_crash.KILLS // 5)


def read_model(path):
    """Values of a safetensors file: name to a list of bytes of four."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            tensors[name] = [data[i:i + 4] for i in range(begin, end, 4)]
    return tensors


def mlp(first=None, last=None, **model):
    return {"input-shape": [FEATURES], **model, "layers": [
        {"type": "Linear", "in_features": FEATURES, "out_features": HIDDEN, **(first or {})},
        {"type": "ReLU"},
        {"type": "Linear", "in_features": HIDDEN, "out_features": LABELS, **(last or {})}]}


class Sections(NetTest):
    disturbed = test_crash.Crash.disturbed

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
        hashes = self.disturbed(3 * KILLS, KILLS, KILLS // 2, test_crash.SEED + 10, **job)
        self.assertEqual(hashes, harness.undisturbed(3 * KILLS, clients=test_crash.CLIENTS, **job))


if __name__ == "__main__":
    harness.main()
