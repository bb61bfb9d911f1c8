"""Tests runs without faults: their results and options, and each way of ending and continuing."""

import glob
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tarfile

import harness
from harness import FEATURES, HIDDEN, LABELS, NetTest, write_model
from peer import Peer
from relay import Relay

CLIENT_DECLINED = 8


def read_safetensors(path):
    """Returns names and shapes of a safetensors file, and checks its sizes."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    end = max(tensor["data_offsets"][1] for tensor in header.values())
    assert 8 + size + end == len(data), (size, end, len(data))
    return {name: tensor["shape"] for name, tensor in header.items()}


def simulated(federation, *more, threads=2):
    """Returns the rounds of a simulation of the same job."""
    out = federation.path(f"simulation-{threads}")
    harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path, "--clients",
                federation.clients, "--threads", threads, "--out", out, *more)
    with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Run(NetTest):
    def run_once(self, **job):
        federation = self.federation(**job)
        federation.start_aggregator()
        clients = federation.start_clients()
        result = federation.complete()
        return federation, clients, result

    def test_trains_and_leaves_what_it_promises(self):
        federation, clients, result = self.run_once(rounds__num_server_rounds=5)
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        lines = federation.lines()
        self.assertEqual([line["round"] for line in lines], [1, 2, 3, 4, 5])
        for line in lines:
            self.assertEqual((line["clients"], line["asked"], line["examples"]), (3, 3, 600), line)
            self.assertGreater(line["bytes_up"], 0)
            self.assertGreater(line["bytes_down"], 0)
        self.assertGreater(lines[-1]["accuracy"], 0.6)  # chance is 0.25
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        folder = federation.run_folder()
        model = os.path.join(folder, "model.safetensors")
        self.assertEqual(read_safetensors(model), {
            "0.weight": [16, 12], "0.bias": [16], "2.weight": [4, 16], "2.bias": [4]})
        said, digest = federation.model(model)
        with open(federation.job_path, encoding="utf-8") as file:
            job = json.load(file)
        self.assertEqual(lines[-1]["model_sha256"], digest)
        checkpoint = os.path.join(folder, "checkpoints", "round-000005", "model.safetensors")
        with open(checkpoint, "rb") as file:
            self.assertEqual(hashlib.sha256(file.read()).hexdigest(), digest)  # without metadata
        self.assertEqual({key: said[key] for key in ("format", "job", "run", "round", "model_sha256")}, {
            "format": "pt", "job": job["name"], "run": os.path.basename(folder), "round": "5",
            "model_sha256": digest})
        self.assertAlmostEqual(float(said["accuracy"]), lines[-1]["accuracy"], places=8)
        self.assertAlmostEqual(float(said["loss"]), lines[-1]["loss"], places=8)
        self.assertEqual(json.loads(said["normalisation"])["divide-by"],
                         job["data"].get("normalisation", {}).get("divide-by", 1))
        with open(os.path.join(folder, "rounds.svg"), encoding="utf-8") as file:
            self.assertIn("<svg", file.read())
        self.assertEqual(result["rounds"], 5)
        self.assertEqual(result["model_sha256"], digest)
        self.assertAlmostEqual(result["accuracy"], lines[-1]["accuracy"], places=6)
        self.assertEqual(os.path.realpath(result["run_dir"]), os.path.realpath(folder))

    def test_a_simulated_run_is_the_deployed_one(self):
        federation, _, _ = self.run_once()
        lines, wanted = simulated(federation), federation.lines()
        for key in "model_sha256", "asked", "clients", "examples", "clamped":
            self.assertEqual([line[key] for line in lines], [line[key] for line in wanted], key)
        for key in "loss", "accuracy", "train_loss", "train_accuracy":
            for mine, theirs in zip(lines, wanted):
                self.assertAlmostEqual(mine[key], theirs[key], places=6, msg=key)
        said, _ = harness.run("fedge-simulate", "compare", "--json", federation.path("simulation-2"),
                              federation.run_folder())
        mine, theirs = map(json.loads, said.splitlines())
        for key in "job", "ending", "seed", "rounds", "accuracy_best", "clients_trained", "model_sha256":
            self.assertEqual(mine[key], theirs[key], key)
        self.assertEqual((theirs["dir"], theirs["clients"]), (federation.run_folder(), None))

    def test_health_and_metrics(self):
        federation = self.federation()
        federation.start_aggregator()
        health = federation.health()
        self.assertEqual((health["status"], health["connected"], health["rounds_closed"],
                          health["num_server_rounds"]), ("ok", 0, 0, 3))
        self.assertIn("waiting", health["state"])
        with Peer(federation, 0) as peer:
            peer.hello()
            self.assertEqual(federation.health()["connected"], 1)
            self.assertEqual(federation.metric("fedge_clients"), 1)
            self.assertEqual(federation.metric("fedge_healthy"), 1)
            self.assertGreater(federation.metric("process_resident_memory_bytes"), 0)
        self.assertEqual(federation.get("/nothing")[0], 404)

    def test_evaluates_on_clients(self):
        federation, _, _ = self.run_once(rounds__fraction_evaluate=1.0, site={"validation-fraction": 0.2})
        lines = federation.lines("evaluate")
        self.assertEqual([line["round"] for line in lines], [1, 2, 3])
        for line in lines:
            self.assertEqual((line["clients"], line["examples"]), (3, 120), line)
        self.assertGreater(lines[-1]["accuracy"], 0.4)
        self.assertEqual([line["examples"] for line in federation.lines()], [480] * 3)

    def test_evaluates_in_int8(self):
        """Values near those of fp32 for the same model, but not equal."""
        lines = {}
        for evaluation in ("as-trained", "int8"):
            federation, _, _ = self.run_once(rounds__fraction_evaluate=1.0, site={"validation-fraction": 0.2},
                                             training__evaluation=evaluation)
            lines[evaluation] = federation.lines("evaluate")
        self.assertEqual([line["round"] for line in lines["int8"]], [1, 2, 3])
        for exact, rounded in zip(lines["as-trained"], lines["int8"]):
            self.assertAlmostEqual(exact["accuracy"], rounded["accuracy"], delta=0.05)
            self.assertAlmostEqual(exact["loss"], rounded["loss"], delta=0.02)
            self.assertNotEqual(exact["loss"], rounded["loss"])


class Ending(NetTest):
    def start(self, rounds=400, **job):
        federation = self.federation(rounds__num_server_rounds=rounds, **job)
        federation.start_aggregator()
        return federation, federation.start_clients()

    def test_sigterm_ends_both_and_a_new_start_goes_on(self):
        expected = harness.undisturbed(6)
        federation = self.federation(rounds__num_server_rounds=6, rounds__round_deadline_s=300)
        federation.start_aggregator()
        with Peer(federation, 2) as silent:  # keeps the round open until the signal
            silent.hello()
            clients = federation.start_clients(0, 1)
            for client in clients:
                client.wait_event("accepted")
            self.assertEqual(federation.aggregator.stop(), 0, federation.aggregator.tail())
        federation.start_aggregator()
        federation.aggregator.wait_event("run-resumed", **{"updates-recovered": 2})
        clients += federation.start_clients(2)
        federation.complete()
        self.assertEqual(federation.hashes(), expected)
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())

    def test_sigint_and_sigterm_end_a_client(self):
        federation, clients = self.start()
        federation.aggregator.wait_event("round-closed")
        clients[0].send(signal.SIGINT)
        self.assertEqual(clients[0].wait(), 0, clients[0].tail())
        self.assertEqual(clients[1].stop(), 0, clients[1].tail())
        self.assertTrue(clients[2].running())
        harness.wait_until("two clients to be gone", lambda: federation.health()["connected"] == 1)

    def test_drain_ends_after_the_open_round(self):
        federation, clients = self.start()
        federation.aggregator.wait_event("round-closed", 2)
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
        federation.aggregator.wait_event("drained")
        closed = len(federation.lines())
        self.assertGreaterEqual(closed, 2)
        self.assertLess(closed, 400)
        self.assertTrue(all(client.running() for client in clients))
        federation.start_aggregator("--drain")
        self.assertEqual(federation.aggregator.wait(), 0)
        self.assertLessEqual(len(federation.lines()), closed + 1)

    def test_new_run_begins_anew(self):
        federation, _ = self.start(rounds=2)
        federation.complete()
        federation.stop()
        first = federation.hashes()
        federation.start_aggregator("--new-run")
        for client in federation.start_clients():
            self.assertEqual(client.wait(), 0, client.tail())
        second = federation.complete()
        self.assertEqual(second["model_sha256"], first[-1])
        self.assertEqual(len(os.listdir(federation.path("state", "runs"))), 2)

    def test_client_without_server_waits_and_comes(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        federation.start_aggregator()
        self.assertEqual(federation.aggregator.stop(), 0)
        clients = federation.start_clients()
        clients[0].wait_event("reconnect", 2)
        federation.start_aggregator()
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())

    def test_both_sides_say_which_ciphers_are_in_use(self):
        """--version and the log name the library, also where libgcrypt is built in but refuses: in FIPS mode."""
        with open(os.path.join(harness.BIN, "fedge-aggregator"), "rb") as file:
            has_libgcrypt = b"libgcrypt.so" in file.read()
        number = r"[0-9]+\.[0-9]+\.[0-9]+"
        alone = f"mbedTLS {number}"
        cases = [({}, f"libgcrypt {number}"),
                 ({"LIBGCRYPT_FORCE_FIPS_MODE": "1"}, f"{alone}, not libgcrypt {number}: it is in FIPS mode")]
        for environment, expected in cases if has_libgcrypt else [({}, alone)]:
            federation = self.federation(clients=1, rounds__num_server_rounds=1, rounds__min_train_nodes=1)
            federation.start_aggregator(environment=environment)
            client = federation.start_client(0, environment=environment)
            federation.complete()
            said = federation.aggregator.wait_event("listening")["ciphers"]
            self.assertRegex(said, f"^{expected}$")
            self.assertEqual(client.wait_event("connect")["ciphers"], said)
            for program in ("fedge-aggregator", "fedge-client"):
                version = subprocess.run([os.path.join(harness.BIN, program), "--version"], text=True, check=True,
                                         stdout=subprocess.PIPE, env={**os.environ, **environment})
                self.assertEqual(version.stdout.splitlines()[1], f"ciphers: {said}")

    def test_own_trainers(self):
        """Devices with examples/own_trainer in place of fedge-client."""
        script = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests", "client", "test_own_trainer.sh")
        done = subprocess.run(["bash", script], text=True, capture_output=True, timeout=harness.PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_round_that_an_older_release_closed(self):
        """Updates of an older release keep their weights. The program that made the state had sealed FedNova's first
        round with weights in 1024ths, and was killed before it renamed the checkpoint. The hash is that release's."""
        federation = self.federation(rounds__num_server_rounds=1, strategy={"type": "FedNova"},
                                     training__local_epochs=5, training__batch_size=10)
        with tarfile.open(os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests", "golden", "states",
                                       "fednova-of-0.1.0.tar.gz")) as kept:
            kept.extractall(federation.folder)
        federation.launch_aggregator()
        federation.complete()
        self.assertEqual(federation.hashes(), ["e0eae60ff0bcd234ca7c2c8f3ee369415097bbe04b0aa4ca2a0c8506cbdd2373"])


# The first evaluation is the best one, by a small margin.
STOPS = {"rounds__num_server_rounds": 9, "rounds__fraction_evaluate": 1.0, "site": {"validation-fraction": 0.2},
         "strategy__server_learning_rate": 2.5, "keep_best": {"metric": "validation-accuracy"},
         "early_stopping": {"patience": 3, "min-delta": 1e6}}


class Selection(NetTest):
    """keep-best and early-stopping leave the same files as in a simulation."""

    def deployed(self, **job):
        federation = self.federation(**job)
        federation.start_aggregator()
        clients = federation.start_clients()
        result = federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        return federation, result

    def simulated(self, federation, *more):
        out = federation.path("simulation")
        harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                    "--clients", federation.clients, "--out", out, "--quiet", *more)
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        with open(os.path.join(out, "rounds.jsonl"), encoding="utf-8") as file:
            return out, summary, [json.loads(line) for line in file]

    def assert_best(self, federation, result, phase, key):
        """The result and the file are those of the best round by its lines: the first one with the highest value."""
        lines = federation.lines(phase)
        best = max(lines, key=lambda line: (line[key] if key == "accuracy" else -line[key], -line["round"]))
        train = federation.lines()[best["round"] - 1]
        self.assertEqual(result["best_round"], best["round"])
        self.assertEqual(result["best_value"], best[key])
        self.assertEqual(result["best_model_sha256"], train["model_sha256"])
        self.assertEqual((result["best_accuracy"], result["best_loss"]), (train["accuracy"], train["loss"]))
        said, digest = federation.model(os.path.join(federation.run_folder(), "model-best.safetensors"))
        self.assertEqual(digest, train["model_sha256"])
        self.assertEqual((said["round"], said["model_sha256"]), (str(best["round"]), digest))
        self.assertEqual(float(said["accuracy"]), train["accuracy"])
        return best

    def test_the_best_is_kept_beside_the_last(self):
        """The best model of a run that overshoots. Its checkpoint outlives those of later rounds."""
        federation, result = self.deployed(
            rounds__num_server_rounds=7, strategy__server_learning_rate=3.5, keep_checkpoints=1,
            keep_best={"metric": "test-accuracy"})
        best = self.assert_best(federation, result, "train", "accuracy")
        self.assertLess(best["round"], 6)
        self.assertEqual(result["best_metric"], "test-accuracy")
        self.assertNotIn("stopped_early", result)
        self.assertEqual(sorted(os.listdir(os.path.join(federation.run_folder(), "checkpoints"))),
                         [f"round-{best['round']:06}", "round-000007"])
        self.assertEqual(len(federation.aggregator.events("test-set-selects")), 1)
        said, digest = federation.model(os.path.join(federation.run_folder(), "model.safetensors"))
        self.assertEqual((said["round"], digest), ("7", result["model_sha256"]))
        out, summary, _ = self.simulated(federation)
        for key in "best_round", "best_metric", "best_value", "best_accuracy", "best_loss", "best_model_sha256":
            self.assertEqual(summary[key], result[key], key)
        self.assertEqual(federation.model(os.path.join(out, "model-best.safetensors"))[1],
                         result["best_model_sha256"])

    def test_a_run_stops_early(self):
        federation, result = self.deployed(**STOPS)
        self.assertEqual(len(federation.aggregator.events("stopping-early")), 1)
        event = federation.aggregator.events("stopping-early")[0]
        self.assertEqual((event["round"], event["best-round"], event["metric"]), (4, 1, "validation-accuracy"))
        self.assertEqual(federation.aggregator.events("test-set-selects"), [])
        for phase in "train", "evaluate":
            self.assertEqual([line["round"] for line in federation.lines(phase)], [1, 2, 3, 4])
        self.assertEqual((result["rounds"], result["stopped_early"]), (4, True))
        self.assert_best(federation, result, "evaluate", "accuracy")
        with open(os.path.join(federation.run_folder(), "run.json"), encoding="utf-8") as file:
            self.assertTrue(json.load(file)["finished"])
        _, summary, lines = self.simulated(federation)
        self.assertEqual(summary["ending"], "early-stopping")
        self.assertEqual([line["model_sha256"] for line in lines if line["phase"] == "train"],
                         federation.hashes())
        for key in "best_round", "best_value", "best_model_sha256", "model_sha256", "rounds":
            self.assertEqual(summary[key], result[key], key)
        _, again, lines_again = self.simulated(federation, "--resume")
        self.assertEqual((again["ending"], lines_again), ("early-stopping", lines))

    def test_metrics_that_nothing_measures_are_refused(self):
        federation = self.federation(keep_best={"metric": "validation-loss"})
        arguments = federation.aggregator_arguments("--check-config")
        self.assertIn("keep-best.metric: validation-loss needs rounds.fraction-evaluate above 0",
                      harness.run(*arguments, code=3)[1])
        said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                           "--clients", 3, code=3)[1]
        self.assertIn(f"{federation.job_path}: keep-best.metric: validation-loss needs", said)
        self.assertIn("or in a simulation --validation-split", said)
        harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path, "--clients", 3,
                    "--validation-split", 0.2)


class Known(NetTest):
    """A model that a device already has is not sent to it."""

    def model_of(self, federation):
        """Returns the first model's file as the server keeps it."""
        pattern = federation.path("state", "runs", "*", "checkpoints", "round-000000", "model.safetensors")
        return harness.wait_until("the first checkpoint", lambda: glob.glob(pattern))[0]

    def only_messages(self, federation, size):
        """Checks that the server sent no more than plans and tasks, which are less than a model."""
        federation.complete()
        down = federation.lines()[0]["bytes_down"]
        self.assertGreater(down, 0)
        self.assertLess(down, size)

    def from_file(self, **job):
        """Makes a job whose initial model clients cannot compute."""
        federation = self.federation(**{"initial-model": "start.safetensors"}, hidden=HIDDEN, rounds__num_server_rounds=1, **job)
        write_model(federation.path("start.safetensors"))
        return federation

    def test_a_file_beside_the_client_is_not_sent(self):
        federation = self.from_file()
        federation.start_aggregator()
        model = shutil.copy(self.model_of(federation), federation.path("seed"))
        clients = [federation.start_client(index, **{"seed-blob": model, "state": None if index == 0 else
                                                     federation.path(f"client-{index}")}) for index in range(3)]
        self.only_messages(federation, os.path.getsize(model))
        for client in clients:
            self.assertEqual(client.events("seed-blob"), [])
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

    def test_a_file_of_another_model_is_said_once(self):
        federation = self.from_file()
        federation.start_aggregator()
        model = self.model_of(federation)
        seed = federation.path("seed")
        with open(model, "rb") as file:
            right = file.read()
        with open(seed, "wb") as file:
            file.write(right[:-1] + b"?")
        clients = [federation.start_client(index, **{"seed-blob": seed} if index < 2 else {}) for index in range(3)]
        federation.complete()
        wrong, right = (hashlib.sha256(data).hexdigest() for data in (right[:-1] + b"?", right))
        for client in clients[:2]:
            self.assertEqual(client.wait(), 0, client.tail())
            said = client.events("seed-blob")
            self.assertEqual([(event["level"], event["has"], event["wanted"]) for event in said],
                             [("warn", wrong, right)])
        self.assertEqual(clients[2].wait(), 0, clients[2].tail())
        self.assertEqual(clients[2].events("seed-blob"), [])

    def test_a_model_that_the_seed_makes_is_not_sent(self):
        """The initial model is not made again, and no other one is kept beside it, once a client has received a later
        one."""
        federation = self.federation(hidden=HIDDEN, rounds__num_server_rounds=2)
        federation.start_aggregator()
        size = os.path.getsize(self.model_of(federation))
        clients = federation.start_clients()
        self.only_messages(federation, size)
        self.assertGreater(federation.lines()[1]["bytes_down"], 2 * size)
        for index, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertLessEqual(len(os.listdir(federation.path(f"client-{index}", "blobs"))), 2)

    def test_neither_side_forgets_in_a_restart(self):
        federation = self.from_file(training__local_epochs=300)
        federation.start_aggregator()
        model = self.model_of(federation)
        with open(model, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        clients = federation.start_clients()
        for index, client in enumerate(clients):
            blob = federation.path(f"client-{index}", "blobs", digest)
            harness.wait_until("the model", lambda path=blob: os.path.exists(path) and
                       os.path.getsize(path) == os.path.getsize(model))
        for program in (*clients, federation.aggregator):
            program.kill()
        federation.start_aggregator()
        federation.start_clients()
        self.only_messages(federation, os.path.getsize(model))

    def damaged(self, damage):
        """Kills a client while it receives the model over a slow link, applies damage(file, size) to the part that it
        has, and restarts it. Returns its log, the final model, and the bytes that it fetched then divided by the
        model's size."""
        federation = self.from_file(clients=1, rounds__min_train_nodes=1)
        federation.start_aggregator()
        model = self.model_of(federation)
        size = os.path.getsize(model)
        with open(model, "rb") as file:
            part = federation.path("client-0", "blobs", hashlib.sha256(file.read()).hexdigest())
        way = Relay(("127.0.0.1", federation.port), down_bytes_s=100000)
        self.addCleanup(way.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        harness.wait_until("a part of the model", lambda: os.path.exists(part) and os.path.getsize(part) > size // 4)
        client.kill()
        self.assertLess(os.path.getsize(part), size)
        with open(part, "r+b") as file:
            damage(file, size)
        way = Relay(("127.0.0.1", federation.port))
        self.addCleanup(way.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        federation.complete()
        self.assertEqual(client.wait(), 0, client.tail())
        return client.events("bad-blob"), federation.hashes(), way.bytes_down / size

    def test_a_damaged_part_of_a_model_is_fetched_again(self):
        """The model is fetched once and completely, also if the file contains more than the model."""
        def flip(file, _):
            file.seek(1000)
            byte = file.read(1)
            file.seek(1000)
            file.write(bytes([byte[0] ^ 4]))

        def lengthen(file, size):
            file.seek(0, os.SEEK_END)
            file.write(bytes(size))
        said, expected, fetched = self.damaged(lambda *_: None)
        self.assertEqual(said, [])
        self.assertLess(fetched, 1)
        for damage in (flip, lengthen):
            with self.subTest(damage.__name__):
                said, hashes, fetched = self.damaged(damage)
                self.assertEqual([event["level"] for event in said], ["warn"])
                self.assertEqual(hashes, expected)
                self.assertGreater(fetched, 1)
                self.assertLess(fetched, 2)

    def test_frozen_layers_are_sent_once(self):
        federation = self.federation(**{"initial-model": "start.safetensors"}, hidden=HIDDEN, model__train_last=1,
                                     rounds__num_server_rounds=3, rounds__min_train_nodes=3)
        write_model(federation.path("start.safetensors"))
        federation.start_aggregator()
        clients = federation.start_clients()
        federation.complete()
        trained, frozen, beside = 4 * HIDDEN * LABELS, 4 * HIDDEN * (FEATURES + 1), 8192  # of each client
        first, *others = federation.lines()
        self.assertGreater(first["bytes_down"], 3 * (trained + frozen))
        for line in others:
            self.assertGreater(line["bytes_down"], 3 * trained)
            self.assertLess(line["bytes_down"], 3 * (trained + beside))
        for index, client in enumerate(clients):
            self.assertEqual(client.wait(), 0, client.tail())
            self.assertLessEqual(len(os.listdir(federation.path(f"client-{index}", "blobs"))), 3)


class Conditions(NetTest):
    """Conditions of a site."""

    def supply(self, folder, status):
        """Writes the system files of a battery."""
        folder = os.path.join(folder, "sys/class/power_supply/BAT0")
        os.makedirs(folder, exist_ok=True)
        for name, text in (("type", "Battery"), ("capacity", "80"), ("status", status)):
            with open(os.path.join(folder, name + ".new"), "w", encoding="ascii") as file:
                file.write(text + "\n")
            os.replace(os.path.join(folder, name + ".new"), os.path.join(folder, name))

    def test_work_under_way_ends_when_the_plug_is_pulled(self):
        federation = self.federation(clients=1, rounds__min_train_nodes=1, rounds__num_server_rounds=1,
                                     training__local_epochs=65536)
        device = federation.path("device")
        with open(federation.site_path, encoding="utf-8") as file:
            site = json.load(file)
        site["policy"] = {"conditions": {"mains-power": True, "root": device}}
        federation.write("site.json", site)
        federation.start_aggregator()
        self.supply(device, "Charging")
        client = federation.start_client(0)
        client.wait_event("task")
        self.supply(device, "Discharging")
        declined = federation.aggregator.wait_event("client-declined")
        self.assertEqual(declined["reason"], "on-battery", declined)
        self.assertEqual(client.events("trained"), [])
        self.assertTrue(client.running())

    def without_data(self, federation):
        """Starts a client whose file names missing data. Returns when it has declined and ended."""
        wrong = federation.write("wrong.json", {"data": {"points": {
            "values": "nowhere.npy", "labels": "train-labels.npy"}}})
        client = federation.start_client(0, config=wrong, partition_id=None, num_partitions=None)
        self.assertEqual(client.wait(), CLIENT_DECLINED, client.tail())
        federation.aggregator.wait_event("round-failed")

    def test_a_client_that_declined_is_asked_when_it_is_mended(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.federation(clients=1, rounds__num_server_rounds=2, rounds__min_train_nodes=1,
                                     rounds__round_deadline_s=3600)
        federation.start_aggregator()
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
        told = federation.aggregator.events("client-reported-error")  # each next start reports it
        self.assertGreaterEqual(len(told), 2)
        for event in told:
            self.assertRegex(event["error"], "nowhere.npy|declined")
        self.assertEqual(federation.hashes(), expected)


class Plugins(NetTest):
    def plugin(self, federation, example="own_strategy/strategy.c"):
        """Builds an example as its head describes, but with this tree's header."""
        out = federation.path("plugin.so")
        source = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "examples", example)
        include = os.path.join(os.environ["FEDGE_BINARY_DIR"], "include")
        subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-ffp-contract=off", source, "-I", include, "-lm", "-o",
                        out], check=True)
        return out

    def test_a_plugin_is_a_strategy_like_others(self):
        federation = self.federation(rounds__num_server_rounds=4, strategy={
            "type": "NormalisedAvg", "server-learning-rate": 0.1, "beta": 0.5})
        option = ("--strategy-plugin", self.plugin(federation))
        federation.start_aggregator(*option)
        clients = federation.start_clients()
        federation.complete()
        for client in clients:
            self.assertEqual(client.wait(), 0, client.tail())
        lines = simulated(federation, *option)
        self.assertEqual([line["model_sha256"] for line in lines], federation.hashes())
        self.assertEqual(len(set(federation.hashes())), 4)
        for more, why in (((), "NormalisedAvg"), (("--strategy-plugin", "/no/such.so"), "no/such.so")):
            said = harness.run("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path,
                               "--clients", federation.clients, *more, code=3)
            self.assertIn(why, said[1])

    def test_a_plugin_sees_single_updates_as_robust_rules_do(self):
        models = {}
        for clients in (5, 6):  # the middle one, and the mean of the middle two
            for strategy in ("FedMedian", "Median"):
                federation = self.federation(clients=clients, rounds__num_server_rounds=3, hidden=HIDDEN,
                                             strategy={"type": strategy, "server-learning-rate": 0.7})
                option = ("--strategy-plugin", self.plugin(federation, "own_strategy/median.c"))
                models[strategy] = [line["model_sha256"] for line in simulated(federation, *option)]
            self.assertEqual(models["Median"], models["FedMedian"])
            self.assertEqual(len(set(models["Median"])), 3)
        federation.start_aggregator(*option)
        federation.start_clients()
        federation.complete()
        self.assertEqual(federation.hashes(), models["Median"])

    def test_a_plugin_that_the_job_does_not_use(self):
        federation = self.federation(rounds__num_server_rounds=1)
        plugin = ("--strategy-plugin", self.plugin(federation))
        simulate = ("fedge-simulate", "--job", federation.job_path, "--data", federation.site_path, "--clients",
                    str(federation.clients), *plugin)
        check = ("fedge-aggregator", *federation.aggregator_arguments("--check-config", *plugin)[1:])
        unused = "the job's strategy is FedAvg and not NormalisedAvg"
        told = "no run uses all of --strategy-plugin"
        for strategy, command, said in (
                ("FedAvg", check, unused), ("FedAvg", simulate, unused),
                ("FedAvg", (*simulate, "--sweep", "lr=0.1,0.2"), told),
                ("FedAvg", (*simulate, "--sweep", "strategy=FedAvg,NormalisedAvg"), None),
                ("NormalisedAvg", check, None), ("NormalisedAvg", simulate, None)):
            with self.subTest(f"{strategy}: {command}"):
                with open(federation.job_path, encoding="utf-8") as file:
                    job = json.load(file)
                federation.write("job.json", {**job, "strategy": {"type": strategy}})
                _, heard = harness.run(*command)
                if said:
                    self.assertIn(said, heard)
                else:
                    self.assertNotIn(unused, heard)
                    self.assertNotIn(told, heard)

    def test_metrics_of_a_plugin(self):
        """Each evaluation of the deployed run equals that of the simulation."""
        federation = self.federation(rounds__num_server_rounds=3)
        option = ("--strategy-plugin", self.plugin(federation, "own_metric/metric.c"))
        federation.start_aggregator(*option)
        federation.start_clients()
        federation.complete()
        lines = federation.lines()
        self.assertEqual(len(lines), 3)
        self.assertEqual([line["metrics"] for line in simulated(federation, *option)],
                         [line["metrics"] for line in lines])
        once = simulated(federation, *option, "--evaluate-every", 3, threads=1)
        self.assertEqual([line.get("metrics") for line in once], [None, None, lines[-1]["metrics"]],
                         "what earlier evaluations counted is not in it")
        for line in lines:
            self.assertEqual(set(line["metrics"]), {"top5_accuracy", "worst_class_accuracy"})
            self.assertEqual(line["metrics"]["top5_accuracy"], 1)  # of four classes
            self.assertLessEqual(line["metrics"]["worst_class_accuracy"], line["accuracy"])
        self.assertGreater(lines[-1]["metrics"]["worst_class_accuracy"], 0)


if __name__ == "__main__":
    harness.main()
