"""Runs in which nothing goes wrong: what a user gets, and every way of ending and going on."""

import hashlib
import json
import os
import signal
import struct
import subprocess

import harness
from harness import NetTest
from peer import Peer


def read_safetensors(path):
    """Names and shapes in a safetensors file, whose sizes must agree."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    end = max(tensor["data_offsets"][1] for tensor in header.values())
    assert 8 + size + end == len(data), (size, end, len(data))
    return {name: tensor["shape"] for name, tensor in header.items()}


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

    def test_same_seed_same_model_another_seed_another(self):
        first = self.run_once()[0].hashes()
        self.assertEqual(self.run_once()[0].hashes(), first)
        self.assertEqual(self.run_once(update__deflate=False)[0].hashes(), first)
        self.assertNotEqual(self.run_once(seed=8)[0].hashes()[-1], first[-1])

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
        """Near what fp32 says of the same model, and not the same."""
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

    def test_a_fraction_of_the_clients(self):
        federation, _, _ = self.run_once(clients=6, rounds__fraction_train=0.5, rounds__num_server_rounds=4)
        self.assertEqual([(line["asked"], line["clients"]) for line in federation.lines()], [(3, 3)] * 4)

    def test_over_selection_asks_more_than_it_needs(self):
        federation, _, _ = self.run_once(clients=6, rounds__fraction_train=0.5, rounds__over_selection=1.5,
                                         rounds__min_train_nodes=2)
        for line in federation.lines():
            self.assertEqual(line["asked"], 5, line)  # ⌈3 · 1.5⌉
            self.assertGreaterEqual(line["clients"], 3, line)

    def test_a_deadline_passes_over_who_does_not_report(self):
        federation = self.federation(clients=3, rounds__num_server_rounds=2, rounds__round_deadline_s=3,
                                     rounds__min_report_fraction=0.6)
        federation.start_aggregator()
        with Peer(federation, 2) as silent:
            silent.hello()
            federation.start_clients(0, 1)
            silent.next_task()
            federation.aggregator.wait_event("round-closed")
            silent.expect("cancel")
            federation.complete()
        self.assertEqual([(line["asked"], line["clients"]) for line in federation.lines()], [(3, 2)] * 2)

    def test_a_round_with_too_few_reports_is_repeated(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1, rounds__round_deadline_s=3,
                                     rounds__min_report_fraction=1)
        federation.start_aggregator()
        with Peer(federation, 1) as silent:
            silent.hello()
            federation.start_clients(0)
            federation.aggregator.wait_event("round-failed")
        federation.start_clients(1)
        federation.complete()
        line = federation.lines()[-1]
        self.assertGreaterEqual(line["attempt"], 1)
        self.assertEqual(line["clients"], 2)
        self.assertEqual(federation.hashes(), harness.undisturbed(1, clients=2))


class Ending(NetTest):
    def start(self, rounds=400, **job):
        federation = self.federation(rounds__num_server_rounds=rounds, **job)
        federation.start_aggregator()
        return federation, federation.start_clients()

    def test_sigterm_ends_both_and_a_new_start_goes_on(self):
        expected = harness.undisturbed(6)
        federation = self.federation(rounds__num_server_rounds=6, rounds__round_deadline_s=300)
        federation.start_aggregator()
        with Peer(federation, 2) as silent:  # the round stays open until the signal comes
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

    def test_the_result_is_of_the_run(self):
        """However many processes it took, and when the last of them did nothing."""
        federation, _ = self.start(rounds=400, rounds__fraction_evaluate=1.0)
        federation.aggregator.wait_event("evaluation-closed", 2)
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
        results = [federation.result()]
        federation.start_aggregator("--drain")
        results.append(federation.complete())
        federation.start_aggregator()
        federation.aggregator.wait_event("round-closed", 2)
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
        results.append(federation.result())
        train, evaluate = federation.lines(), federation.lines("evaluate")
        self.assertEqual([line["round"] for line in train], list(range(1, len(train) + 1)))
        for i, result in enumerate(results):
            last = train[result["rounds"] - 1]
            self.assertEqual((result["accuracy"], result["loss"], result["model_sha256"]),
                             (last["accuracy"], last["loss"], last["model_sha256"]))
            # What a process takes to end is known to its own result alone: a next one that does nothing
            # may have less.
            self.assertGreaterEqual(result["seconds"] + 0.001 * len(train),
                                    sum(line["seconds"] for line in train[:result["rounds"]]))
            if i > 0:
                self.assertGreaterEqual(result["bytes_up"], results[i - 1]["bytes_up"])
        for key in ("bytes_up", "bytes_down"):
            counted = sum(line[key] for line in train)
            evaluated = sum(line[key] for line in evaluate)
            self.assertGreaterEqual(results[2][key], counted)
            self.assertLessEqual(results[2][key], counted + evaluated)

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
        """In --version and in the log; with libgcrypt built in, also where it refuses: in FIPS mode."""
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


if __name__ == "__main__":
    harness.main()
