"""Tests full and failing disks, truncated and missing files, and ports and folders in use."""

import glob
import os
import socket

import harness
from harness import NetTest, fault
from peer import Peer, encode_int8, tensor_sizes

FAILURE, USAGE, CONFIG, STATE, PORT, DISK = 1, 2, 3, 4, 5, 6
CLIENT_CONFIG, CLIENT_STATE, CLIENT_DECLINED = 3, 5, 8


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def mount_allowed():
    return os.geteuid() == 0 and os.system("unshare -m true 2>/dev/null") == 0


class Failing(NetTest):
    """A failed write or sync stops the aggregator. The next start continues and loses nothing."""

    def fail_at(self, call, number, what, file=None):
        federation = self.federation(clients=2, rounds__num_server_rounds=3)
        federation.launch_aggregator(environment=fault(call, number, what, file), listen="127.0.0.1:0")
        # The clients start once the port is known, if the aggregator gets that far.
        try:
            harness.wait_until("port file or end", lambda: os.path.exists(federation.path("ports"))
                               or not federation.aggregator.running())
            if federation.aggregator.running():
                with open(federation.path("ports"), encoding="ascii") as file:
                    federation.port, federation.http_port = map(int, file.read().split())
                federation.start_clients()
        finally:
            code = federation.aggregator.wait()
        self.assertEqual(code, DISK, federation.aggregator.tail())
        said = federation.aggregator.log()
        self.assertIn({"EIO": "Input/output error", "ENOSPC": "No space left"}[what], said)
        self.assertIn(federation.folder, said)  # which file
        if call == "fdatasync" and federation.aggregator.events("listening"):
            self.assertEqual(len(federation.aggregator.events("run-failed")), 1, said)
        for client in federation.seen[1:]:
            client.kill()  # they would come back later; new ones connect at once
        federation.start_aggregator()
        federation.start_clients()
        federation.complete()
        self.assertEqual(federation.hashes(), self.expected())
        self.assertEqual([line["clients"] for line in federation.lines()], [2, 2, 2])

    _expected = []

    def expected(self):
        if not self._expected:
            self._expected.extend(harness.undisturbed(3, clients=2))
        return self._expected

    def test_each_kind_of_call(self):
        """The call fails at a time in the run at which it occurs."""
        for call, number, what, file in (("fdatasync", 2, "EIO", None), ("fsync", 8, "EIO", None),
                                         ("pwrite", 14, "ENOSPC", None), ("rename", 4, "EIO", None),
                                         ("mkostemps", 1, "EIO", "round-000001.new/model.safetensors")):
            with self.subTest(call):
                self.fail_at(call, number, what, file)


class Full(NetTest):

    def test_a_small_disk(self):
        """The same with a full file system, until there is room again."""
        if not mount_allowed():
            self.skipTest("mounting needs root")
        options = {"hidden": 3000, "update__codec": "none", "update__deflate": False}
        expected = harness.undisturbed(2, clients=2, **options)
        federation = self.federation(clients=2, rounds__num_server_rounds=2, **options)
        os.mkdir(federation.state)
        script = 'mount -t tmpfs -o size=3m none "$0" && dd if=/dev/zero of="$0/filler" bs=100k count=22 ' \
                 '2>/dev/null && exec "$@"'
        aggregator = federation.start_aggregator(
            prefix=("unshare", "-m", "--propagation", "private", "sh", "-c", script, federation.state))
        federation.start_clients()
        aggregator.wait_event("round-waits-for-disk")
        self.assertIn("disk", federation.health()["state"])
        inside = f"/proc/{aggregator.pid}/root{federation.state}"
        os.unlink(f"{inside}/filler")
        self.assertEqual(federation.complete()["model_sha256"], expected[-1])

    def test_less_room_than_is_to_stay_free(self):
        federation = self.federation(clients=2, min_free_disk=1 << 52)
        federation.start_aggregator()
        federation.start_clients()
        waits = federation.aggregator.wait_event("round-waits-for-disk")
        self.assertRegex(waits["error"], r"^the journal of a round takes \d[\d.]* kB and the job's min-free-disk is "
                         r"4\.50 PB, but the disk of \S+ has [\d.]+ [MGT]B free: ")
        self.assertIn("waiting for room on the disk: the journal of a round takes ", federation.health()["state"])
        self.assertEqual(federation.aggregator.stop(), 0, federation.aggregator.tail())


class Damaged(NetTest):
    """Damage that no start can repair is reported with the file's name."""

    def half_done(self, rounds=4):
        """Makes a run of [rounds] that was stopped after two rounds. Its clients wait."""
        federation = self.federation(clients=2, rounds__num_server_rounds=rounds)
        data = self.data = encode_int8(tensor_sizes(harness.make_job()), 300, lambda i: i % 5 - 2)
        federation.start_aggregator()
        with Peer(federation, 0) as first, Peer(federation, 1) as second:
            first.hello()
            second.hello()
            for _ in range(2):
                first.next_task()
                second.next_task()
                first.upload(data)
                second.upload(data)
            first.next_task()
            first.upload(data)
            federation.aggregator.wait_event("checkpoint-saved", round=2)
            federation.aggregator.kill()
        return federation

    def checkpoint_files(self, federation, newest_only):
        """Returns files of the newest checkpoint, or of all of them."""
        found = sorted(glob.glob(os.path.join(federation.run_folder(), "checkpoints", "round-*")))
        self.assertEqual(len(found), 2, found)
        return sorted(file for folder in (found[-1:] if newest_only else found)
                      for file in glob.glob(os.path.join(folder, "*")))

    def test_all_checkpoints_cut_off(self):
        federation = self.half_done()
        for path in self.checkpoint_files(federation, False):
            cut(path, 0)
        aggregator = federation.launch_aggregator()
        self.assertEqual(aggregator.wait(), STATE, aggregator.tail())
        self.assertIn("checkpoints", aggregator.log())

    def journal(self, federation):
        return sorted(glob.glob(os.path.join(federation.run_folder(), "journal", "*.fj")))[-1]

    def test_journal_cut_off(self):
        for size in (0, 100, 4096):
            with self.subTest(size):
                federation = self.half_done()
                path = self.journal(federation)
                self.assertGreater(os.path.getsize(path), size)
                cut(path, size)
                aggregator = federation.launch_aggregator()
                self.assertEqual(aggregator.wait(), STATE, aggregator.tail())
                self.assertIn(os.path.basename(path), aggregator.log())

    def test_other_files_of_the_state(self):
        for name in ("format.json", "runs/*/job.json", "runs/*/run.json"):
            with self.subTest(name):
                federation = self.half_done()
                path, = glob.glob(os.path.join(federation.state, name))
                cut(path, 5)
                aggregator = federation.launch_aggregator()
                self.assertEqual(aggregator.wait(), STATE, aggregator.tail())
                self.assertIn(os.path.basename(path), aggregator.log())


class Files(NetTest):
    """Files that are missing, truncated or wrong before the start."""

    def assert_start(self, federation, code, *texts, more=(), **instead):
        aggregator = federation.launch_aggregator(*more, **instead)
        self.assertEqual(aggregator.wait(), code, aggregator.tail())
        for text in texts:
            self.assertIn(text, aggregator.log())

    def test_missing_files(self):
        federation = self.federation(clients=2)
        for option in ("job", "identity", "trust", "registry"):
            with self.subTest(option):
                missing = federation.path("missing")
                self.assert_start(federation, CONFIG, missing, **{option: missing})
        os.unlink(federation.path("test-labels.npy"))
        self.assert_start(federation, CONFIG, "test-labels.npy")

    def test_wrong_command_lines(self):
        federation = self.federation(clients=2)
        self.assert_start(federation, USAGE, "--job", job=None)
        self.assert_start(federation, USAGE, "--nonsense", more=("--nonsense",))
        self.assert_start(federation, USAGE, "--workers", workers="many")
        self.assert_start(federation, USAGE, "--listen", listen="127.0.0.1:99999")

    def test_wrong_jobs(self):
        for change, texts in (({"rounds__num_servr_rounds": 3}, ("num-servr-rounds", "num-server-rounds")),
                              ({"training__batch_size": "many"}, ("batch-size",)),
                              ({"strategy__type": "FedAug"}, ("FedAug", "FedAvg")),
                              ({"data__shape": [3]}, ("shape",)),
                              ({"rounds__max_cohort": 4096, "rounds__max_weight": 1 << 30}, ("max-cohort",))):
            with self.subTest(change):
                federation = self.federation(clients=2, **change)
                self.assert_start(federation, CONFIG, "job.json:", *texts)

    def test_a_job_that_is_no_json(self):
        federation = self.federation(clients=2)
        with open(federation.job_path, encoding="utf-8") as file:
            text = file.read()
        for broken in (text[:-20], "", text.replace('"seed": 7', '"seed": 7, "seed": 7'), "[" * 100000):
            with self.subTest(broken[:10]):
                with open(federation.job_path, "w", encoding="utf-8") as file:
                    file.write(broken)
                self.assert_start(federation, CONFIG, "job.json")

    def test_check_config_leaves_nothing(self):
        federation = self.federation(clients=2)
        self.assert_start(federation, 0, more=("--check-config",))
        self.assertFalse(os.path.exists(federation.state))
        os.unlink(federation.path("test-values.npy"))
        self.assert_start(federation, CONFIG, "test-values.npy", more=("--check-config",))

    def test_a_result_that_could_not_be_written(self):
        """The error is reported at the start, not at the end of the run."""
        federation = self.federation(clients=2)
        nowhere = federation.path("nowhere")
        os.mkfifo(federation.path("fifo"))
        for path, text in ((f"{nowhere}/result.json", f"there is no directory {nowhere}/"),
                           (federation.path("."), "is a directory"), ("/dev/full", "is not a regular file"),
                           (federation.path("fifo"), "is not a regular file"), (f"{nowhere}/" + "x/" * 300, "too long")):
            for more in ((), ("--check-config",)):
                with self.subTest(path=path[-20:], more=more):
                    self.assert_start(federation, CONFIG, text, "--result", more=more, result=path)
        self.assertFalse(os.path.exists(federation.state))

    def test_a_test_set_cut_off(self):
        federation = self.federation(clients=2)
        path = federation.path("test-values.npy")
        cut(path, os.path.getsize(path) - 100)
        self.assert_start(federation, CONFIG, "test-values.npy")

    def test_an_initial_model_that_is_none(self):
        federation = self.federation(clients=2, **{"initial-model": "start.safetensors"})
        self.assert_start(federation, CONFIG, "start.safetensors")
        with open(federation.path("start.safetensors"), "wb") as file:
            file.write(b"not a model")
        self.assert_start(federation, CONFIG, "start.safetensors")
        self.assert_start(federation, CONFIG, "start.safetensors", more=("--check-config",))
        self.assertFalse(os.path.exists(federation.state))

    def test_a_clients_data_set_cut_off(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1, rounds__round_deadline_s=2)
        federation.start_aggregator()
        path = federation.path("train-values.npy")
        with open(path, "rb") as file:
            whole = file.read()
        cut(path, len(whole) // 2)
        federation.start_clients()
        declined = federation.aggregator.wait_event("client-declined")
        self.assertIn("train-values.npy", declined["text"], declined)
        self.assertEqual(declined["reason"], "no-data", declined)
        with open(path, "wb") as file:
            file.write(whole)
        federation.complete()
        self.assertEqual([line["clients"] for line in federation.lines()], [2])

    def test_a_clients_unreadable_state(self):
        """The program ends with the proper exit code, names the file and leaves the content unchanged."""
        federation = self.federation(clients=2)
        federation.start_aggregator()
        path = os.path.join(federation.path("client-0"), "state.json")
        os.mkdir(os.path.dirname(path))

        def assert_refused(text, environment=None):
            client = federation.start_client(0, environment=environment)
            self.assertEqual(client.wait(), CLIENT_STATE, client.tail())
            starts = client.events("start")
            self.assertEqual(len(starts), 1, client.tail())
            self.assertIn("state.json", starts[0]["error"])
            self.assertIn(text, starts[0]["error"])

        for content, text in ((b'{"format":99}', "newer"), (b"", "state.json"), (b"\0\xff{{", "state.json"),
                              (b"[]", "state.json"), (b'{"format":1', "state.json"),
                              (b"{}", "format"), (b" " * 100000, "limit")):
            with self.subTest(content[:20]):
                with open(path, "wb") as file:
                    file.write(content)
                assert_refused(text)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), content)
        os.unlink(path)
        os.mkdir(path)
        assert_refused("directory")
        os.rmdir(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"format":1}\n')
        for call, what, text in (("pread", "EIO", "Input/output error"), ("open", "EIO", "Input/output error"),
                                 ("open", "ENOSPC", "No space left")):
            with self.subTest(f"{call} {what}"):
                assert_refused(text, fault(call, 1, what, "state.json"))
        federation.start_client(0).wait_event("welcome")

    def test_a_clients_files(self):
        federation = self.federation(clients=2)
        federation.start_aggregator()
        client = federation.start_client(0, config=federation.path("missing.json"))
        self.assertEqual(client.wait(), CLIENT_CONFIG, client.tail())
        self.assertIn("missing.json", client.log())
        other = federation.write("other.json", {"data": {"others": {"values": "train-values.npy"}}})
        client = federation.start_client(0, config=other)
        self.assertEqual(client.wait(), CLIENT_DECLINED, client.tail())
        self.assertIn("points", client.log())
        policy = federation.write("policy.json", {
            "data": {"points": {"values": "train-values.npy", "labels": "train-labels.npy"}},
            "policy": {"codecs": ["none"]}})
        client = federation.start_client(0, config=policy)
        self.assertEqual(client.wait(), CLIENT_DECLINED, client.tail())
        self.assertIn("codec", client.log())


class Lacking(NetTest):
    """A temporary lack of threads or file descriptors ends a program with code 1."""

    def test_an_aggregator_without_threads(self):
        federation = self.federation(clients=2)
        for number in range(1, 100):
            # With "auto" the CPU would replace GPUs that no thread can watch.
            aggregator = federation.launch_aggregator("--accumulator", "cpu",
                                                      environment=fault("pthread_create", number, "EAGAIN"))
            harness.wait_until("its end or port", lambda: not aggregator.running()
                               or os.path.exists(federation.path("ports")))
            if aggregator.running():
                break
            self.assertEqual(aggregator.wait(), FAILURE, aggregator.tail())
            self.assertRegex(aggregator.log(), "cannot start .*temporarily unavailable")
        self.assertGreater(number, 3)  # threads of the run, of the network and of workers

    def test_a_client_without_threads(self):
        federation = self.federation(clients=2)
        client = federation.start_client(0, environment=fault("pthread_create", 1, "EAGAIN"))
        self.assertEqual(client.wait(), FAILURE, client.tail())
        self.assertIn("thread", client.events("start")[0]["error"])

    def test_no_descriptors(self):
        federation = self.federation(clients=2)
        federation.start_aggregator().kill()
        for file, program in (("run.json", federation.launch_aggregator),
                              ("state.json", lambda **how: federation.start_client(0, **how))):
            with self.subTest(file):
                started = program(environment=fault("open", 1, "EMFILE", file))
                self.assertEqual(started.wait(), FAILURE, started.tail())
                self.assertIn("LimitNOFILE=", started.log())


class InUse(NetTest):
    def test_a_port(self):
        federation = self.federation(clients=2)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for option in ("listen", "http"):
                with self.subTest(option):
                    aggregator = federation.launch_aggregator(**{option: f"127.0.0.1:{port}"})
                    self.assertEqual(aggregator.wait(), PORT, aggregator.tail())
                    self.assertIn(str(port), aggregator.log())
        federation.start_aggregator()  # nothing that remains prevents the next start

    def test_an_address_of_another_machine(self):
        federation = self.federation(clients=2)
        aggregator = federation.launch_aggregator(listen="192.0.2.1:9092")
        self.assertEqual(aggregator.wait(), PORT, aggregator.tail())

    def test_a_state_folder(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        first = federation.start_aggregator()
        second = federation.launch_aggregator(listen="127.0.0.1:0", http="127.0.0.1:0")
        self.assertEqual(second.wait(), STATE, second.tail())
        self.assertIn(federation.state, second.log())
        federation.aggregator = first
        federation.start_clients()
        federation.complete()

    def test_a_state_folder_of_another_job(self):
        federation = self.federation(clients=2, rounds__num_server_rounds=50)
        federation.start_aggregator()
        federation.aggregator.stop()
        federation.write("job.json", harness.make_job(seed=99, rounds__min_available_nodes=2))
        aggregator = federation.launch_aggregator()
        self.assertEqual(aggregator.wait(), STATE, aggregator.tail())
        self.assertIn("--new-run", aggregator.log())

    def test_a_clients_state_folder(self):
        federation = self.federation(clients=2)
        federation.start_aggregator()
        federation.start_client(0).wait_event("welcome")
        second = federation.start_client(0)
        self.assertEqual(second.wait(), CLIENT_STATE, second.tail())
        self.assertIn("client-0", second.log())


if __name__ == "__main__":
    harness.main()
