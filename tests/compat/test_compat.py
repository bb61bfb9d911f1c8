"""Today's programs and what earlier releases left (see fixture.py): the server goes on from their state and hears what
their clients said, byte for byte; the client goes on from their store and hears what their server said; and both go on
from both together. record.py makes what is replayed here."""

import concurrent.futures
import os
import shutil
import socket
import struct
import sys
import traceback
import unittest
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))

import fixture  # noqa: E402
import harness  # noqa: E402
import record  # noqa: E402
from fixture import CLIENT, CUT, DEVICES, END, OPEN, SERVER  # noqa: E402
from peer import CLOSE, MAX_PAYLOAD, Peer, connect_tls, pack  # noqa: E402
from stream import Ended, Stream, answer, parse, say_no_more, server_frame  # noqa: E402
from tap import server_context  # noqa: E402

AT_ONCE = 6  # scenarios: each waits more than it computes
DONE = b"\x03\xe8"  # 1000, in a websocket's close frame
# What is said for people, or of the moment.
OF_THE_MOMENT = {"server-time-ms", "deadline-ms", "after-ms", "text"}
# Of a client's result: what its training gave, and its codec made of that. Another CPU gives other last places.
OF_TRAINING = {"size", "raw-size", "crc32", "metrics", "deflate"}
CLOSE_TO = 1e-3
SAME_BYTES = 0.75  # of an update whose codec rounds


def differences(recorded, found, skipped):
    """Keys of [recorded] that [found] lacks or has otherwise; more keys may be there."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        return [f"{key}.{more}" if more else key for key, value in recorded.items() if key not in skipped
                for more in (differences(value, found[key], skipped) if key in found else ["is missing"])]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return [f"{i}.{more}" for i, pair in enumerate(zip(recorded, found)) for more in differences(*pair, skipped)]
    return [] if recorded == found else [f"was {recorded}, is {found}"]


def demand_same(recorded, found, skipped=frozenset()):
    """[found] says what [recorded] said."""
    different = differences(recorded.meta, found.meta, OF_THE_MOMENT | skipped)
    if recorded.kind != found.kind or different:
        raise AssertionError(f"{recorded.kind} {recorded.meta}\n  is now {found.kind} {found.meta}\n  {different}")


def demand_same_training(recorded, found):
    """Two UPLOADs: the result is what it was, but for last places. Other metrics, or none, show that something was
    lost that the client keeps from round to round."""
    then, now = (upload.get("metrics", {}) for upload in (recorded, found))
    if not set(then) <= set(now) or ("control-lost" in now) != ("control-lost" in then):
        raise AssertionError(f"metrics were {then}, are {now}")
    for key in {"loss", "accuracy"} & set(then):
        if abs(then[key] - now[key]) > CLOSE_TO * (1 + abs(then[key])):
            raise AssertionError(f"{key} was {then[key]}, is {now[key]}")


def demand_same_update(recorded, recorded_bytes, found, found_bytes):
    """The sections of two results: the values are the same, nearly."""
    for then, now in zip(sections(recorded, recorded_bytes), sections(found, found_bytes)):
        codec, then, now = then[0], then[1], now[1]
        if codec == "none":
            values = [struct.unpack(f"<{len(data) // 4}f", data) for data in (then, now)]
            same = len(then) == len(now) and all(abs(a - b) <= CLOSE_TO * (1 + abs(a)) for a, b in zip(*values))
        elif "topk" in codec and "+" not in codec:
            continue  # chosen values as they are: all their last bytes may differ
        else:
            same = sum(a == b for a, b in zip(then, now)) >= SAME_BYTES * len(then)
        if not same:
            raise AssertionError(f"another {codec} update: {then.hex()}\n  is now {now.hex()}")


def sections(upload, data):
    """Codec and bytes of each, inflated."""
    for section in upload.get("sections", []):
        own, data = data[:section["size"]], data[section["size"]:]
        yield section["codec"], zlib.decompress(own) if section["deflate"] else own


class Replay:
    """One scenario in a folder of its own."""

    def __init__(self, release, name):
        self.federation = harness.Federation(keys="keys", clients=DEVICES)
        fixture.unpack(fixture.archive_path(release, "common"), self.federation.folder)
        self.federation.keys = self.federation.path("keys")
        self.scenario = fixture.Scenario(release, name, self.federation.path("scenario"))
        shutil.copy(self.scenario.path("job.json"), self.federation.job_path)
        if os.path.isdir(self.scenario.path("files")):
            shutil.copytree(self.scenario.path("files"), self.federation.folder, dirs_exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.federation.stop()
        for program in self.federation.seen:
            if kind or program.crashed():
                print(f"--- {program.name} ({program.wait()})\n{program.tail(40)}", file=sys.stderr)
            if program.crashed():
                raise AssertionError(f"{program.name} has crashed")
        shutil.rmtree(self.federation.folder, ignore_errors=True)

    def start_aggregator(self):
        shutil.copytree(self.scenario.path("state"), self.federation.state)
        return self.federation.start_aggregator()

    def start_client(self, device, port):
        store = self.scenario.path("clients", str(device))
        if os.path.isdir(store):
            shutil.copytree(store, self.federation.path(f"client-{device}"))
        return self.federation.start_client(device, server=f"wss://127.0.0.1:{port}")

    def complete(self):
        """The run ends well, in so many rounds; returns their models."""
        self.federation.complete()
        hashes = self.federation.hashes()
        if len(hashes) != len(self.scenario.expected["hashes"]):
            raise AssertionError(f"{len(hashes)} rounds")
        return hashes


# --- recorded clients and today's server -------------------------------------------------------------


class Device:
    """A connection on which a recorded client speaks."""

    def __init__(self, replay, device):
        keys = replay.federation.keys
        self.socket = connect_tls(replay.federation.port, f"{keys}/trust", f"{keys}/clients/{device:04}")
        self.stream, self.request, self.waiting = Stream(self.socket), None, []
        self.plan = self.plan_then = None

    def say(self, raw):
        """As it was said; but a plan has the name that the server gives it today."""
        if self.request is None:
            self.request = raw
        elif self.plan != self.plan_then:
            message = parse(raw).message
            if message.kind == "fetch" and message.meta["hash"] == self.plan_then:
                raw = Peer.frame(pack("fetch", {**message.meta, "hash": self.plan}))
        self.socket.sendall(raw)

    def expect_head(self, recorded):
        if self.stream.head().lower() != answer(recorded, self.request).lower():
            raise AssertionError("the upgrade is answered otherwise")

    def expect(self, recorded):
        """The server says what it said then; messages of several kinds may have changed places."""
        while True:
            for found in self.waiting:
                if self.is_the_same(recorded, found):
                    self.waiting.remove(found)
                    return
            try:
                frame = self.stream.frame()
            except Ended:
                raise AssertionError(f"the server has closed; it said {recorded} then, now {self.waiting}") from None
            if frame.message:
                self.waiting.append(frame.message)

    def is_the_same(self, recorded, found):
        if recorded.kind != found.kind:
            return False
        if recorded.kind == "welcome":
            self.plan_then, self.plan = recorded.meta["plan"], found.meta["plan"]
        elif recorded.kind == "chunk":
            if recorded.meta["hash"] == self.plan_then != self.plan:
                return found.meta["hash"] == self.plan
            if recorded.meta["hash"] != found.meta["hash"]:
                return False
        demand_same(recorded, found, {"plan", "plan-size"})
        if recorded.payload != found.payload:
            raise AssertionError(f"{recorded}: other bytes")
        return True

    def end(self, cut):
        """The server is through with what came before, and closes, too. It has said nothing else."""
        try:
            if not cut:
                self.socket.sendall(Peer.frame(DONE, CLOSE))
            say_no_more(self.socket)
            while True:
                self.waiting.append(self.stream.frame().message)
        except (Ended, OSError):
            self.socket.close()
        if not cut and any(self.waiting):
            raise AssertionError(f"the server has also said {self.waiting}")


def server_hears_recorded_clients(release, name):
    """From the state and what clients said it makes the models that it made then."""
    with Replay(release, name) as replay:
        replay.start_aggregator()
        devices = {}
        for event in replay.scenario.events:
            device = devices.get(event.connection)
            if event.what == OPEN:
                devices[event.connection] = Device(replay, event.device)
            elif event.what == CLIENT:
                device.say(event.raw)
            elif event.what in (CUT, END):
                device.end(event.what == CUT)
            elif event.is_head:
                device.expect_head(event.raw)
            else:
                device.expect(parse(event.raw).message)
        hashes = replay.complete()
        if hashes != replay.scenario.expected["hashes"]:
            raise AssertionError(f"other models: {hashes}")


# --- recorded servers and today's client -------------------------------------------------------------


class Server:
    """Says to one client what a server has said."""

    def __init__(self, replay, device):
        self.replay, self.device = replay, device
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(harness.PATIENCE_S)
        self.context = server_context(replay.federation.keys)
        # A result that is in the store when the client is started is offered as it is.
        self.stored = os.path.exists(replay.scenario.path("clients", str(device), "result"))
        self.blobs = {}
        self.then = self.now = None  # the last UPLOAD, and of it what has been sent
        self.sent_then = self.sent = b""
        self.connections = replay.scenario.of_device(device)
        for events in self.connections:
            self.collect_blobs(events)

    def collect_blobs(self, events):
        for event in events:
            message = parse(event.raw).message if event.what == SERVER and not event.is_head else None
            if message and message.kind == "chunk":
                blob = self.blobs.setdefault(message.meta["hash"], bytearray(message.meta["size"]))
                blob[message.meta["offset"]:message.meta["offset"] + len(message.payload)] = message.payload

    def run(self):
        client = self.replay.start_client(self.device, self.listener.getsockname()[1])
        for events in self.connections:
            plain = self.listener.accept()[0]
            plain.settimeout(harness.PATIENCE_S)
            self.socket = self.context.wrap_socket(plain, server_side=True)
            self.stream = Stream(self.socket)
            for event in events:
                self.play(event)
            self.socket.close()
        self.listener.close()
        if client.wait() != 0:
            raise AssertionError(f"{client.name} ended with {client.wait()}")

    def play(self, event):
        if event.what == CLIENT and event.is_head:
            self.request = self.stream.head()
        elif event.what == SERVER and event.is_head:
            self.socket.sendall(answer(event.raw, self.request))
        elif event.what == CLIENT:
            self.hear(parse(event.raw).message)
        elif event.what == SERVER:
            self.say(event.raw)
        elif event.what == END:
            self.socket.sendall(server_frame(DONE, CLOSE))
            self.end()

    def end(self):
        try:
            left = self.next()
        except Ended:
            return
        if left:
            raise AssertionError(f"the client has also said {left}")

    def say(self, raw):
        """A blob's bytes are given as today's client asks for them."""
        message = parse(raw).message
        if message.kind == "resume":
            self.sent_then, self.sent = (sent[:message.meta["offset"]] for sent in (self.sent_then, self.sent))
        if message.kind != "chunk":
            self.socket.sendall(raw)

    def next(self):
        """What the client says, but for its wishes for blobs."""
        while True:
            message = self.stream.frame().message
            if not message or message.kind != "fetch":
                return message
            wanted, start = message.meta["hash"], message.meta["offset"]
            if wanted not in self.blobs:
                raise AssertionError(f"{message}: it did not need that")
            blob = self.blobs[wanted]
            end = min(len(blob), start + (message.meta.get("size", 0) or len(blob)))
            for offset in range(start, end, MAX_PAYLOAD):
                self.socket.sendall(server_frame(pack("chunk", {"hash": wanted, "offset": offset, "size": len(blob)},
                                                      bytes(blob[offset:min(end, offset + MAX_PAYLOAD)]))))

    def hear(self, recorded):
        if recorded.kind == "fetch":
            return
        if recorded.kind == "part":
            self.hear_parts(recorded)
            return
        found = self.next()
        if recorded.kind == "hello":
            check_hello(recorded, found)
            return
        demand_same(recorded, found, frozenset() if self.stored else OF_TRAINING)
        if recorded.kind == "upload":
            demand_same_training(recorded.meta, found.meta)
            if self.then is None or self.then["task-id"] != recorded.meta["task-id"]:
                self.sent_then = self.sent = b""
            self.then, self.now, self.stored = recorded.meta, found.meta, False

    def hear_parts(self, recorded):
        """Today's parts, up to where this one ended, or to the end."""
        self.sent_then += recorded.payload
        whole = len(self.sent_then) == self.then["size"]
        while len(self.sent) < (self.now["size"] if whole else min(len(self.sent_then), self.now["size"])):
            part = self.next()
            if part.kind != "part" or part.meta != {"task-id": self.now["task-id"], "offset": len(self.sent)}:
                raise AssertionError(f"{part}, not a part from {len(self.sent)} on")
            self.sent += part.payload
        if whole:
            if zlib.crc32(self.sent) != self.now["crc32"]:
                raise AssertionError(f"the parts are not those of {self.now}")
            demand_same_update(self.then, self.sent_then, self.now, self.sent)


def check_hello(recorded, found):
    """It says what it is as before, and may be able to do more; a server of that time reads it. What the machine has
    may differ: its memory, its processor."""
    of_the_machine = {"arch": str, "ram": int}
    demand_same(recorded, found, {"release", "features", "errors", *of_the_machine})
    for key, kind in of_the_machine.items():
        if not isinstance(found.meta.get(key), kind) or not found.meta[key]:
            raise AssertionError(f"{key} is {found.meta.get(key)}")
    words = found.meta["features"] + found.meta.get("more-features", [])
    if len(found.meta["features"]) > 64 or not set(recorded.meta["features"]) <= set(words):
        raise AssertionError(f"features {found.meta['features']}")
    if words[-1] == found.meta["features"][-1] or len(set(words)) != len(words):
        raise AssertionError(f"not all words are there: {words}")


def clients_hear_recorded_server(release, name):
    with Replay(release, name) as replay:
        for device in replay.scenario.devices():
            Server(replay, device).run()


# --- both of today, from what both left --------------------------------------------------------------


def both_go_on(release, name):
    with Replay(release, name) as replay:
        replay.start_aggregator()
        clients = [replay.start_client(device, replay.federation.port) for device in replay.scenario.devices()]
        replay.complete()
        for client in clients:
            if client.wait() != 0:
                raise AssertionError(f"{client.name} ended with {client.wait()}")


class Compatibility(unittest.TestCase):
    def each(self, check, only=""):
        wanted = os.environ.get("FEDGE_COMPAT", "")
        names = [(release, name) for release in fixture.releases() for name in fixture.scenarios(release)
                 if name.startswith(only) and wanted in name]
        self.assertTrue(names or wanted)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            running = {f"{release}, {name}": pool.submit(check, release, name) for release, name in names}
        failed = {title: done.exception() for title, done in running.items() if done.exception()}
        for title, error in failed.items():
            print(f"{title}:", file=sys.stderr)
            traceback.print_exception(error)
        self.assertEqual(list(failed), [])

    def test_server_hears_recorded_clients(self):
        self.each(server_hears_recorded_clients)

    def test_clients_hear_recorded_server(self):
        self.each(clients_hear_recorded_server)

    def test_both_go_on(self):
        self.each(both_go_on, "round-")

    def test_what_is_recorded_today(self):
        """The next release will be recorded so."""
        folder = os.path.join(harness.make_folder(), "today")
        record.record(folder, lambda name: name in ("evaluation", "round-fedavg"))
        for name in fixture.scenarios(folder):
            server_hears_recorded_clients(folder, name)


if __name__ == "__main__":
    harness.main()
