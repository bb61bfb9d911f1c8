#!/usr/bin/env python3
"""Records what test_compat.py replays, with the programs of a release, built in BIN:

    record.py BIN RELEASE

The programs must say that they are of RELEASE. Writes the folder RELEASE beside this file, with other keys, run ids and
random numbers each time, and otherwise the same. What was recorded of a release stays as it is: scenarios that it
lacks are added (those whose archive is there already are left alone, and so are the identities)."""

import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "net"))
if __name__ == "__main__" and len(sys.argv) == 3:
    os.environ["FEDGE_BIN_DIR"] = os.path.abspath(sys.argv[1])
sys.dont_write_bytecode = True

import fixture  # noqa: E402
import harness  # noqa: E402
from fixture import CUT, DEVICES, EXAMPLES  # noqa: E402
from harness import batchnorm, points_as_images  # noqa: E402
from tap import HOLD, PASS, Tap  # noqa: E402

IDS = [f"00000000-0000-4000-8000-00000000000{i}" for i in range(DEVICES)]
YEARS = 36500  # days: what is recorded outlives its authors
ONE = {"clients": 1, "rounds__min_train_nodes": 1, "rounds__num_server_rounds": 2}
ALL = {"clients": DEVICES, "rounds__min_train_nodes": DEVICES}
SOFTMAX = {"model": {"input-shape": [harness.FEATURES], "layers": [
    {"type": "Linear", "in_features": harness.FEATURES, "out_features": harness.LABELS}]}}
PLAIN = {"training": {"local-steps": 2, "batch-size": 16, "learning-rate": 0.05}}

CODECS = ("none", "none+deflate", "int8+deflate", "int4", "f16", "bf16", "topk:0.2+int8", "topk:0.2", "randk:0.3+int8",
          "ternary:0.3")


def make_keys(folder):
    harness.run("fedge-keys", "ca", "--ca", f"{folder}/ca", "--trust", f"{folder}/trust", "--valid-days", YEARS,
                "--issuing-days", YEARS)
    server = ["--role", "server", "--dns", "localhost", "--ip", "127.0.0.1"]
    signs_names = "--dns" in harness.run("fedge-keys", "sign", "--help")[0]  # 0.1.0 took them from the request
    wanted = [("server", server, server if signs_names else [])]
    wanted += [(f"clients/{i:04}", ["--role", "device", "--device-id", IDS[i]], []) for i in range(DEVICES)]
    for name, requested, signed in wanted:
        identity = f"{folder}/{name}"
        harness.run("fedge-keys", "request", "--identity", identity, *requested)
        harness.run("fedge-keys", "sign", "--ca", f"{folder}/ca", "--registry", f"{folder}/registry", "--request",
                    f"{identity}/request.pem", "--out", f"{identity}/chain.pem", "--valid-days", YEARS - 10, *signed)
        os.unlink(f"{identity}/request.pem")
    shutil.rmtree(f"{folder}/ca")


def make_common(folder):
    make_keys(f"{folder}/keys")
    harness.write_examples(folder, "train", EXAMPLES, 1)
    harness.write_examples(folder, "test", 20, 2)
    with open(f"{folder}/site.json", "w", encoding="utf-8") as file:
        json.dump({"data": {"points": {"values": "train-values.npy", "labels": "train-labels.npy", "partition": "quantity:2",
                                       "partition-seed": 1, "validation-fraction": 0.2}}}, file, indent=1)


class Recording:
    def __init__(self, common, rule=lambda tap, device, frame: PASS, no_test_set=False, images=False, **job):
        self.federation = harness.Federation(keys=f"{common}/keys", **job)
        self.out = self.federation.path("recorded")
        if no_test_set:
            with open(self.federation.job_path, encoding="utf-8") as file:
                written = json.load(file)
            del written["test-set"]
            self.federation.write("job.json", written)
        for name in os.listdir(common):
            if name != "keys":
                shutil.copy(f"{common}/{name}", self.federation.path(name))
        if images:
            points_as_images(self.federation)
            os.makedirs(f"{self.out}/files")
            for name in ("train-values.npy", "test-values.npy"):
                shutil.copy(self.federation.path(name), f"{self.out}/files")
        self.tap = Tap(self.federation, IDS, lambda device, frame: rule(self.tap, device, frame))

    def start_clients(self):
        for i in range(self.federation.clients):
            self.federation.start_client(i, server=f"wss://127.0.0.1:{self.tap.port}", num_partitions=DEVICES)

    def kill(self):
        """All programs at once, and keeps what they leave."""
        self.federation.stop()
        shutil.copytree(self.federation.state, f"{self.out}/state")
        for i in range(self.federation.clients):
            if os.path.isdir(self.federation.path(f"client-{i}")):
                shutil.copytree(self.federation.path(f"client-{i}"), f"{self.out}/clients/{i}")

    def finish(self, path):
        """The rest of the run, and the archive."""
        self.tap.events.clear()
        self.tap.rule = self.rest
        self.federation.start_aggregator()
        self.start_clients()
        self.federation.complete()
        for program in self.federation.seen[-self.federation.clients:]:
            if program.wait() != 0:
                raise AssertionError(f"{program.name} ended with {program.wait()}:\n{program.tail()}")
        self.tap.close()
        shutil.copy(self.federation.job_path, f"{self.out}/job.json")
        fixture.write_events(f"{self.out}/transcript", self.tap.events)
        with open(f"{self.out}/expected.json", "w", encoding="utf-8") as file:
            json.dump({"hashes": self.federation.hashes()}, file, indent=1)
        fixture.pack(self.out, path)
        print(f"{path}: {len(self.tap.events)} events, {os.path.getsize(path)} bytes", flush=True)
        shutil.rmtree(self.federation.folder)

    @staticmethod
    def rest(_device, _frame):
        return PASS


def from_the_start(common, path, rest=None, **job):
    """One device: all that it and the server say."""
    recording = Recording(common, **{**ONE, **job})
    recording.federation.start_aggregator()
    recording.kill()
    if rest:
        recording.rest = rest
    recording.finish(path)


def resumed_upload(common, path):
    """The connection breaks behind the first part of two. Steps are so small that most changes are 0 or a last place,
    which leaves little to keep."""
    cuts = []

    def rest(_device, frame):
        if frame.kind == "part" and not cuts:
            cuts.append(frame)
            return CUT
        return PASS
    from_the_start(common, path, rest, hidden=1000, rounds__num_server_rounds=1, update={"up": "none"},
                   training={"local-steps": 1, "batch-size": 16, "learning-rate": 1e-8})


def in_mid_round(common, path, phase=2, **job):
    """Three devices. In round [phase] the first one's update is acknowledged, the second has a result that it has not
    announced, and the third has a task whose model it lacks; where it has the model, it is as the second."""
    def rule(tap, device, frame):
        task = tap.tasks.get(device)
        if not task or task["round"] != phase or task["kind"] != "train":
            return PASS
        if device == 0:
            return PASS if tap.acked.get(0) != task["task-id"] and 0 not in finished else HOLD
        return HOLD if frame.kind == "upload" or frame.kind == "fetch" and device == 2 and phase > 1 else PASS
    finished = set()
    recording = Recording(common, rule, **{**ALL, **job})
    recording.federation.start_aggregator()
    recording.start_clients()
    tap = recording.tap

    def is_there():
        first = tap.tasks.get(0)
        if first and first["round"] == phase and tap.acked.get(0) == first["task-id"]:
            finished.add(0)
        return finished and {1, 2} <= tap.held
    harness.wait_until("the middle of the round", is_there)
    recording.kill()
    recording.finish(path)


def scenarios():
    for codec in CODECS:
        yield "codec-" + codec.replace(":", "-"), from_the_start, {"update": {"up": codec}}
    yield "down", from_the_start, {"update": {"up": "int8", "down": "int8+deflate"}, "rounds__num_server_rounds": 3}
    yield "by-layer", from_the_start, {"update": {"up": "int8", "layers": [
        {"tensors": "vectors", "codec": "none"}, {"tensors": "2.*", "codec": "topk:0.2+int8"}]}}
    yield "statistics", from_the_start, {"model": batchnorm(), "data__shape": [3, 2, 2], "images": True}
    yield "evaluation", from_the_start, {"rounds__fraction_evaluate": 1.0, "rounds__min_evaluate_nodes": 1}
    yield "resumed-upload", resumed_upload, {}
    for name, job in {
            "fedavg": {"update": {"up": "topk:0.2+int8"}},
            "fedadam": {"strategy": {"type": "FedAdam", "server-learning-rate": 0.05}},
            "fednova": {"strategy": {"type": "FedNova"}, "rounds__num_server_rounds": 2},
            "scaffold": {**SOFTMAX, **PLAIN, "strategy": {"type": "SCAFFOLD"},
                         "update": {"up": "int8+deflate", "control": "f16"}},
            "feddyn": {**PLAIN, "strategy": {"type": "FedDyn", "alpha": 0.1}},
            "fedper": {"strategy": {"type": "FedPer", "personal-layers": 1}, "rounds__fraction_evaluate": 1.0,
                       "no_test_set": True},
            "ditto": {"strategy": {"type": "Ditto", "lambda": 0.5}, "rounds__fraction_evaluate": 1.0},
            "ifca": {"strategy": {"type": "IFCA", "num-clusters": 2}, "rounds__fraction_evaluate": 1.0,
                     "no_test_set": True},
            "qfedavg": {"strategy": {"type": "QFedAvg", "q": 2}},
            "median": {"strategy": {"type": "FedMedian"}},
            "fedbuff": {"strategy": {"type": "FedBuff", "buffer-size": 3}, "phase": 1}}.items():
        yield "round-" + name, in_mid_round, job


def record(folder, wanted=lambda name: True):
    """What is not in [folder] yet of the scenarios whose names are wanted."""
    os.makedirs(folder, exist_ok=True)
    common = os.path.join(harness.make_folder(), "common")
    if not os.path.exists(fixture.archive_path(folder, "common")):
        os.makedirs(common)
        make_common(common)
        fixture.pack(common, fixture.archive_path(folder, "common"))
        shutil.rmtree(common)
    fixture.unpack(fixture.archive_path(folder, "common"), common)
    for name, play, job in scenarios():
        path = fixture.archive_path(folder, name)
        if wanted(name) and not os.path.exists(path):
            play(common, path, **job)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    release = sys.argv[2]
    said = harness.run("fedge-aggregator", "--version")[0]
    if release not in said.split():
        sys.exit(f"fedge-aggregator --version says {said.strip()}, not {release}")
    record(os.path.join(HERE, release))


if __name__ == "__main__":
    main()
