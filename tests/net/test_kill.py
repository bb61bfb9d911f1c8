"""Tests killed processes: after a restart they continue with the same bits. fedge-aggregator --supervise restarts by
itself."""

import json
import os
import shutil
import signal

import harness
from harness import NetTest, fault, undisturbed, wait_until
from kills import CLIENTS, KILLS, SEED, SOON, KilledTest


def child_of(pid):
    """Returns the id of the supervised process; None while there is none."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Killed(KilledTest):
    def test_both(self):
        """The kernel kills them: written bytes that are not synced survive."""
        rounds = 2 * KILLS
        hashes = self.disturbed(rounds, KILLS // 2, KILLS // 4, SEED + 2)
        self.assertEqual(hashes, undisturbed(rounds, clients=CLIENTS))

    def test_both_with_large_uploads(self):
        """Updates have three messages each, so that kills fall within uploads."""
        job = {"hidden": 2000, "update__codec": "none", "update__deflate": False}
        rounds = KILLS
        hashes = self.disturbed(rounds, KILLS // 4, KILLS // 4, SEED + 3, **job)
        self.assertEqual(hashes, undisturbed(rounds, clients=CLIENTS, **job))


class End(NetTest):
    def open_end(self, federation):
        """Restores the state at the end of all rounds, before any results were written."""
        folder = federation.run_folder()
        path = os.path.join(folder, "run.json")
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        self.assertTrue(facts["finished"])
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"number": facts["number"], "incarnation": facts["incarnation"],
                       "finished": False}, file)  # without a seal, as older releases write it
        for name in self.results(federation):
            if os.path.exists(name):
                os.unlink(name)

    @staticmethod
    def results(federation):
        folder = federation.run_folder()
        return [os.path.join(folder, name) for name in ("model.safetensors", "model-best.safetensors", "rounds.svg")
                ] + [federation.path("result.json")]

    def finished(self):
        federation = self.federation(rounds__num_server_rounds=2, keep_best={"metric": "test-accuracy"})
        federation.start_aggregator()
        federation.start_clients()
        return federation, federation.complete()

    def look(self, federation):
        """A run must not be reported as finished before its results are written."""
        with open(os.path.join(federation.run_folder(), "run.json"), encoding="utf-8") as file:
            finished = json.load(file)["finished"]
        if finished:
            self.assertEqual([name for name in self.results(federation) if not os.path.exists(name)], [])
        return finished

    def test_the_end_of_a_run(self):
        """A kill at each step of writing the results, and another one after the restart."""
        federation, expected = self.finished()
        call, killed = 0, True
        while killed:
            call += 1
            self.open_end(federation)
            moments = [(call, "kill-before"), (1 + call * 7 % SOON, "kill-after")]
            codes = []
            while moments and not self.look(federation):
                federation.launch_aggregator(environment=fault("io", *moments.pop(0)))
                codes.append(federation.aggregator.wait())
                self.assertIn(codes[-1], (0, -9), federation.aggregator.tail())
            killed = codes[0] == -9
            if not self.look(federation):
                federation.launch_aggregator()
                self.assertEqual(federation.aggregator.wait(), 0, federation.aggregator.tail())
            self.assertTrue(self.look(federation))
            result = federation.result()
            self.assertGreater(result.pop("seconds"), 0)
            self.assertEqual(result, {key: expected[key] for key in result})
        self.assertGreater(call, 8)

    def test_a_result_that_is_missing_is_written_again(self):
        """A start on the finished run writes missing results without training. If their sources are missing, it reports
        that."""
        federation, expected = self.finished()
        for path in self.results(federation):
            with self.subTest(os.path.basename(path)):
                with open(path, "rb") as file:
                    before = file.read()
                os.unlink(path)
                federation.launch_aggregator()
                result = federation.complete()
                self.assertEqual(len(federation.aggregator.events("results-missing")), 1)
                self.assertTrue(self.look(federation))
                self.assertEqual({**result, "seconds": 0}, {**expected, "seconds": 0})
                if not path.endswith(".json"):
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), before)
        run = os.path.basename(federation.run_folder())
        os.unlink(os.path.join(federation.run_folder(), "model.safetensors"))
        shutil.rmtree(os.path.join(federation.run_folder(), "checkpoints"))
        federation.start_aggregator()
        self.assertEqual([event["run"] for event in federation.aggregator.events("results-lost")], [run])
        self.assertNotEqual(federation.aggregator.wait_event("run-started")["run"], run)


class Supervise(NetTest):
    def test_a_killed_process_is_started_again(self):
        rounds = 12
        federation = self.federation(rounds__num_server_rounds=rounds)
        federation.start_aggregator()  # chooses the ports that all later starts use
        federation.aggregator.kill()
        federation.start_aggregator("--supervise")
        federation.start_clients()
        federation.aggregator.wait_event("round-closed", 2)
        first = child_of(federation.aggregator.pid)
        os.kill(first, signal.SIGKILL)
        federation.aggregator.wait_event("run-resumed", 2)
        self.assertNotEqual(child_of(federation.aggregator.pid), first)
        federation.complete()
        self.assertIn("was killed by signal 9; starting it again in", federation.aggregator.log())
        self.assertEqual(federation.hashes(), undisturbed(rounds))

    def test_a_drain_is_remembered(self):
        federation = self.federation()
        federation.start_aggregator("--supervise")
        os.kill(child_of(federation.aggregator.pid), signal.SIGKILL)
        wait_until("the pause", lambda: "starting it again" in federation.aggregator.log())
        federation.aggregator.send(signal.SIGUSR1)
        self.assertEqual(federation.aggregator.wait(), 0)
        federation.aggregator.wait_event("drained")

    def test_a_signal_to_the_group_is_one(self):
        federation = self.federation()
        federation.start_aggregator("--supervise")
        federation.start_clients()
        federation.aggregator.wait_event("client-hello", 3)
        os.kill(child_of(federation.aggregator.pid), signal.SIGINT)
        federation.aggregator.send(signal.SIGINT)
        self.assertEqual(federation.aggregator.wait(), 0)
        for client in federation.seen[1:]:
            client.wait_event("reconnect")  # the server has asked it to come back
            self.assertTrue(client.events("disconnect"), client.tail())

    def test_a_backup_is_restored_although_the_first_process_falls(self):
        federation = self.federation()
        federation.start_aggregator()
        federation.aggregator.wait_event("run-started")
        federation.aggregator.kill()
        environment = harness.fault("io", 1, "kill-before")
        environment["FEDGE_FAULT_ONCE"] = federation.path("once")
        federation.start_aggregator("--supervise", "--restored", environment=environment)
        federation.aggregator.wait_event("run-resumed")
        self.assertGreater(federation.metric("fedge_run_incarnation"), 1)
        self.assertEqual(federation.aggregator.stop(), 0)

    def test_a_process_killed_when_its_run_is_finished_is_not_followed_by_a_new_run(self):
        """run.json is replaced when the run is made, when it begins and when it is finished."""
        federation = self.federation(rounds__num_server_rounds=2)
        federation.start_aggregator("--supervise", environment=fault("rename", 3, "kill-after", "run.json"))
        federation.start_clients()
        result = federation.complete()
        said = federation.aggregator
        self.assertIn("was killed by signal 9", said.log())
        self.assertEqual([event["rounds-closed"] for event in said.events("run-started")], [0])
        self.assertEqual([event["rounds-closed"] for event in said.events("run-resumed")], [2])
        self.assertEqual(said.events("results-missing"), [])
        self.assertEqual(len(federation.hashes()), 2)  # the hashes of the only run
        self.assertEqual(result["model_sha256"], federation.hashes()[-1])

    def test_a_process_without_threads_is_started_again(self):
        federation = self.federation(rounds__num_server_rounds=2)
        environment = fault("pthread_create", 1, "EAGAIN")
        environment["FEDGE_FAULT_ONCE"] = federation.path("once")
        federation.start_aggregator("--supervise", environment=environment)
        self.assertIn("ended with code 1; starting it again", federation.aggregator.log())
        federation.start_clients()
        federation.complete()
        self.assertEqual(federation.hashes(), undisturbed(2))

    def test_what_a_new_start_cannot_mend_is_not_repeated(self):
        federation = self.federation()
        federation.launch_aggregator("--supervise", trust=federation.path("nowhere"))
        self.assertEqual(federation.aggregator.wait(), 3)
        self.assertNotIn("starting it again", federation.aggregator.log())

    def test_signals_reach_the_process(self):
        federation = self.federation()
        federation.start_aggregator("--supervise")
        child = child_of(federation.aggregator.pid)
        federation.aggregator.send(signal.SIGHUP)
        federation.aggregator.wait_event("reloaded")
        self.assertEqual(child_of(federation.aggregator.pid), child)
        self.assertEqual(federation.aggregator.stop(), 0)
        self.assertFalse(is_alive(child))

    def test_the_process_ends_with_its_supervisor(self):
        federation = self.federation()
        federation.start_aggregator("--supervise")
        child = child_of(federation.aggregator.pid)
        federation.aggregator.kill()
        wait_until("the end of the supervised process", lambda: not is_alive(child))


if __name__ == "__main__":
    harness.main()
