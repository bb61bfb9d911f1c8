"""Disks that are full or fail, files that are cut off or missing, ports and folders in use."""

import glob
import os
import signal
import socket
import threading

import harness
from harness import HIDDEN, NetTest, fault, write_model
from peer import Peer, encode_int8, tensor_sizes

FAILURE, USAGE, CONFIG, STATE, PORT, DISK = 1, 2, 3, 4, 5, 6
CLIENT_CONFIG, CLIENT_STATE, CLIENT_DECLINED = 3, 5, 8


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def mount_allowed():
    return os.geteuid() == 0 and os.system("unshare -m true 2>/dev/null") == 0


class Failing(NetTest):
    """A write or sync that fails stops the aggregator; the next start goes on and loses nothing."""

    def fail_at(self, call, number, what, file=None):
        federation = self.federation(clients=2, rounds__num_server_rounds=3)
        federation.launch_aggregator(environment=fault(call, number, what, file), listen="127.0.0.1:0")
        # The clients come when the port is known, if it comes to that.
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
            client.kill()  # they were told to come back later; new ones come at once
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

    def test_sync_of_the_journal(self):
        for number in range(1, 7):
            with self.subTest(number):
                self.fail_at("fdatasync", number, "EIO")

    def test_sync_of_a_file_or_folder(self):
        for number in (3, 8, 12):
            with self.subTest(number):
                self.fail_at("fsync", number, "EIO")

    def test_write(self):
        for number, what in ((2, "EIO"), (9, "EIO"), (14, "ENOSPC"), (21, "EIO")):
            with self.subTest(number):
                self.fail_at("pwrite", number, what)

    def test_rename(self):
        for number in (1, 4):
            with self.subTest(number):
                self.fail_at("rename", number, "EIO")

    def test_files_that_are_replaced(self):
        """Written beside their place: the making of that file fails, its write and its sync."""
        for call, what, file in (("mkostemps", "ENOSPC", "run.json"), ("pwrite", "ENOSPC", "run.json."),
                                 ("mkostemps", "EIO", "round-000001.new/model.safetensors"),
                                 ("pwrite", "EIO", "round-000002.new/model.safetensors."),
                                 ("fsync", "EIO", "round-000001.new/state.json.")):
            with self.subTest(f"{call} {file}"):
                self.fail_at(call, 1, what, file=file)


class Full(NetTest):
    def test_a_round_waits_for_room(self):
        """The reservation finds no room once; the round opens when there is some."""
        federation = self.federation(clients=2, rounds__num_server_rounds=1)
        federation.start_aggregator(environment=fault("posix_fallocate", 1, "ENOSPC"))
        clients = federation.start_clients()
        waits = federation.aggregator.wait_event("round-waits-for-disk")
        self.assertIn(federation.folder, waits["error"])
        health = federation.health()
        self.assertEqual((health["status"], health["rounds_closed"]), ("ok", 0))
        self.assertIn("disk", health["state"])
        federation.complete()
        self.assertEqual([client.wait() for client in clients], [0, 0])

    def test_a_small_disk(self):
        """The same with a file system that is full, until somebody makes room."""
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

    def test_a_clients_control_variate_waits_for_room(self):
        """What has been trained is not thrown away for it: it is put again, and the round closes."""
        federation = self.federation(clients=2, rounds__num_server_rounds=2, strategy={"type": "SCAFFOLD"},
                                     training={"local-steps": 2, "batch-size": 16, "learning-rate": 0.05})
        federation.start_aggregator()
        full = federation.start_client(0, environment=fault("pwrite", 1, "ENOSPC", "fedge-control"))
        federation.start_client(1)
        federation.complete()
        self.assertIn("No space left", full.wait_event("store")["error"])
        self.assertEqual(federation.aggregator.events("client-declined"), [])
        self.assertEqual([(line["clients"], line["attempt"]) for line in federation.lines()], [(2, 0), (2, 0)])

    def test_less_room_than_is_to_stay_free(self):
        federation = self.federation(clients=2, min_free_disk=1 << 52)
        federation.start_aggregator()
        federation.start_clients()
        waits = federation.aggregator.wait_event("round-waits-for-disk")
        self.assertRegex(waits["error"], r"^the journal of a round takes \d[\d.]* kB and the job's min-free-disk is "
                         r"4\.50 PB, but the disk of \S+ has [\d.]+ [MGT]B free: ")
        self.assertIn("waiting for room on the disk: the journal of a round takes ", federation.health()["state"])
        self.assertEqual(federation.aggregator.stop(), 0, federation.aggregator.tail())


class Unreadable(NetTest):
    def test_a_model_that_cannot_be_read_costs_one_connection(self):
        """Its file, while it is sent; the same device gets it over its next connection."""
        federation = self.federation(clients=2, hidden=HIDDEN, **{"initial-model": "start.safetensors"})
        write_model(federation.path("start.safetensors"))
        aggregator = federation.start_aggregator(environment=fault("pread", 3, "EIO", "round-000000/model.safetensors"))
        with Peer(federation, 0) as first, Peer(federation, 1) as second:
            for peer in (first, second):
                peer.hello()
            for peer in (first, second):
                peer.next_task()
            size = first.task["model-size"]
            first.send("fetch", {"hash": first.task["model"], "offset": 0})
            first.expect_end()
            self.assertIn("model.safetensors", aggregator.wait_event("blob-not-read")["error"])
            aggregator.wait_event("client-disconnected")
            # The other goes on, and the file is read again.
            second.fetch(second.task["model"], size)
            with Peer(federation, 0) as again:
                again.hello()
                again.fetch(first.task["model"], size)
            self.assertEqual(len(aggregator.events("blob-not-read")), 1)
        self.assertEqual(aggregator.stop(), 0, aggregator.tail())


class Damaged(NetTest):
    def half_done(self, rounds=4):
        """A run of [rounds] that was stopped after two rounds; its clients wait."""
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

    def play_to_the_end(self, federation):
        """Answers every task of both devices until the run is complete."""
        federation.start_aggregator()
        peers = [Peer(federation, 0), Peer(federation, 1)]
        for peer in peers:
            peer.hello()

        def answer(peer):
            try:
                while True:
                    message = peer.receive()
                    if message.kind == "task":
                        peer.task = message.meta
                        peer.send("upload", peer.upload_meta(self.data))
                    elif message.kind == "resume":
                        peer.send_parts(self.data, message.meta["offset"])
                    elif message.kind == "bye":
                        return
            except Exception:  # the end of the connection; the hashes say how it went
                return
        threads = [threading.Thread(target=answer, args=(peer,)) for peer in peers]
        for thread in threads:
            thread.start()
        federation.complete()
        for thread, peer in zip(threads, peers):
            thread.join()
            peer.close()
        return federation.hashes()

    def checkpoint_files(self, federation, newest_only):
        """Files of the newest checkpoint, or of all of them."""
        found = sorted(glob.glob(os.path.join(federation.run_folder(), "checkpoints", "round-*")))
        self.assertEqual(len(found), 2, found)
        return sorted(file for folder in (found[-1:] if newest_only else found)
                      for file in glob.glob(os.path.join(folder, "*")))

    def undamaged(self):
        return self.play_to_the_end(self.half_done())

    def test_one_checkpoint_cut_off(self):
        """Its round is closed again from its journal."""
        expected = self.undamaged()
        names = [os.path.basename(path) for path in self.checkpoint_files(self.half_done(), True)]
        self.assertIn("model.safetensors", names)
        for name in names:
            for size in (0, 10):
                with self.subTest(f"{name} {size}"):
                    federation = self.half_done()
                    path, = (path for path in self.checkpoint_files(federation, True)
                             if os.path.basename(path) == name)
                    if os.path.getsize(path) <= size:
                        continue
                    cut(path, size)
                    self.assertEqual(self.play_to_the_end(federation), expected)
                    notes = federation.aggregator.events("recovered")
                    self.assertTrue(any("round-000002" in event["note"] for event in notes), notes)

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

    def test_journal_with_a_byte_changed(self):
        federation = self.half_done()
        path = self.journal(federation)
        with open(path, "r+b") as file:
            file.seek(8)
            old = file.read(1)
            file.seek(8)
            file.write(bytes([old[0] ^ 0xFF]))
        aggregator = federation.launch_aggregator()
        self.assertEqual(aggregator.wait(), STATE, aggregator.tail())
        self.assertIn(os.path.basename(path), aggregator.log())

    def test_damaged_update_in_the_journal_is_asked_for_again(self):
        expected = self.undamaged()
        federation = self.half_done()
        path = self.journal(federation)
        with open(path, "rb") as file:
            at = file.read().rfind(self.data)
        self.assertGreater(at, 0)
        with open(path, "r+b") as file:
            file.seek(at + 5)
            file.write(b"\x55\x55")
        self.assertEqual(self.play_to_the_end(federation), expected)
        self.assertTrue(federation.seen[-1].events("recovered"))

    def test_other_files_of_the_state(self):
        for name in ("format.json", "runs/*/job.json", "runs/*/run.json"):
            with self.subTest(name):
                federation = self.half_done()
                path, = glob.glob(os.path.join(federation.state, name))
                cut(path, 5)
                aggregator = federation.launch_aggregator()
                self.assertEqual(aggregator.wait(), STATE, aggregator.tail())
                self.assertIn(os.path.basename(path), aggregator.log())

    def test_lines_of_the_round_log_are_not_worth_a_run(self):
        expected = self.undamaged()
        federation = self.half_done()
        cut(os.path.join(federation.run_folder(), "rounds.jsonl"), 5)
        self.assertEqual(self.play_to_the_end(federation), expected[2:])
        self.assertEqual(federation.aggregator.wait_event("round-log-incomplete")["rounds-closed"], 2)

    def test_damaged_lines_of_the_round_log_are_left_out(self):
        expected = self.undamaged()
        federation = self.half_done()
        path = os.path.join(federation.run_folder(), "rounds.jsonl")
        with open(path, "r+b") as file:
            damaged = file.read().replace(b'"round":1', b'"round":0')
            file.seek(0)
            file.write(damaged)
        self.assertEqual(self.play_to_the_end(federation), expected[1:])
        said = federation.aggregator.wait_event("round-log-damaged")
        self.assertIn("rounds.jsonl:1", said["error"])
        with open(path + ".damaged", "rb") as file:
            self.assertEqual(file.read(), damaged)

    def test_a_kill_while_the_round_log_is_mended(self):
        """At each call on its files: it stays as it was, or is mended, and the next start goes on from there."""
        expected = self.undamaged()
        federation = self.half_done()
        path = os.path.join(federation.run_folder(), "rounds.jsonl")
        with open(path, "rb") as file:
            whole = file.read()
        first, second = whole.splitlines(keepends=True)
        damaged = first.replace(b'"round":1', b'"round":0') + second
        kills = 0
        while True:
            with open(path, "wb") as file:
                file.write(damaged)
            aggregator = federation.launch_aggregator(
                environment=fault("io", kills + 1, "kill-before", "rounds.jsonl"))
            harness.wait_until("its end or port", lambda: not aggregator.running()
                               or os.path.exists(federation.path("ports")))
            if aggregator.running():
                break
            self.assertEqual(aggregator.wait(), -signal.SIGKILL, aggregator.tail())
            kills += 1
            with open(path, "rb") as file:
                self.assertIn(file.read(), (damaged, second))
        aggregator.kill()
        self.assertGreaterEqual(kills, 8)  # two files are made, written, synced and given their names
        self.assertEqual(self.play_to_the_end(federation), expected[1:])


class Files(NetTest):
    """What is missing, cut off or wrong before anything starts."""

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
        """Told at the start, and not when the run is over."""
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
        """It ends with its own code and names the file; what is there stays as it is."""
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
    """What passes by itself, threads and file descriptors, ends a program with 1."""

    def test_an_aggregator_without_threads(self):
        federation = self.federation(clients=2)
        for number in range(1, 100):
            # With auto, the CPU would do the work of GPUs that no thread can watch.
            aggregator = federation.launch_aggregator("--accumulator", "cpu",
                                                      environment=fault("pthread_create", number, "EAGAIN"))
            harness.wait_until("its end or port", lambda: not aggregator.running()
                               or os.path.exists(federation.path("ports")))
            if aggregator.running():
                break
            self.assertEqual(aggregator.wait(), FAILURE, aggregator.tail())
            self.assertRegex(aggregator.log(), "cannot start .*temporarily unavailable")
        self.assertGreater(number, 3)  # of the run, of the network and of workers

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
        federation.start_aggregator()  # nothing is left behind that would keep it from starting

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
