"""Updates that must not count: wrong in form, in value, in place, or the same one again."""

import math
import zlib

from harness import NetTest
from misuse import MisuseTest, Peer, harness
from peer import encode_int8, encode_none, encode_ternary, tensor_sizes

SIZES = tensor_sizes(harness.make_job())
COUNT = sum(SIZES)
PLAIN = {"update__codec": "none", "update__deflate": False}
BOUND = 4.0  # 2^b, b = 2


def values(*special):
    """An update of small values, with some of them replaced: (index, value)."""
    made = [0.001 * (i % 7 - 3) for i in range(COUNT)]
    for index, value in special:
        made[index] = value
    return encode_none(SIZES, made)


def small_int8(i):
    return i % 5 - 2


GOOD = values()
GOOD_INT8 = encode_int8(SIZES, 300, small_int8)


class Form(MisuseTest):
    """What is refused when an update is announced. Each takes one round."""

    def refuse(self, federation, meta, reason, over):
        """[over]: the task ends with the refusal; otherwise it is given up here."""
        closed = len(federation.aggregator.events("round-closed"))
        with self.connect(federation) as peer:
            peer.send("upload", meta(peer))
            refusal = peer.expect_refusal(reason)
            if over:
                self.assertEqual(refusal["task-id"], peer.task["task-id"])
                federation.aggregator.wait_event("round-closed", closed + 1)
            else:
                self.give_up(federation, peer)

    def test_announcements(self):
        section = {"name": "delta", "codec": "none", "deflate": False, "size": 4 * COUNT,
                   "raw-size": 4 * COUNT}

        def changed(**changes):
            return lambda peer: peer.upload_meta(GOOD, "none", **changes)

        def sections(*made):
            return changed(sections=list(made))

        cases = [  # name, metadata, reason, whether the task is over
            ("no section", sections(), "schema-mismatch", True),
            ("two sections", sections(section, section), "schema-mismatch", True),
            ("section of another name", sections({**section, "name": "gradient"}), "schema-mismatch", True),
            ("another codec", sections({**section, "codec": "int8"}), "schema-mismatch", True),
            ("deflate that is not allowed", sections({**section, "deflate": True}), "schema-mismatch", True),
            ("another schema", sections({**section, "size": 4, "raw-size": 4}), "schema-mismatch", True),
            ("sizes that do not add up", changed(size=4 * COUNT - 1), "schema-mismatch", True),
            ("a terabyte", changed(size=1 << 40, sections=[{**section, "size": 1 << 40}]), "too-big", True),
            ("no examples", changed(examples=0), "bad-value", True),
            ("another run", changed(**{"run-id": "ab" * 16}), "stale-run", False),
            ("another incarnation", changed(incarnation=77), "stale-incarnation", False),
            ("an unknown task", changed(**{"task-id": 999999}), "stale-task", False),
            ("task 0", changed(**{"task-id": 0}), "stale-task", False),
        ]
        federation = self.start(rounds=len(cases), **PLAIN)
        for name, meta, reason, over in cases:
            with self.subTest(name):
                self.refuse(federation, meta, reason, over)
        self.assert_unharmed(federation, len(cases), **PLAIN)

    def test_metadata_that_cannot_be_read_ends_the_connection(self):
        cases = [
            ("an unknown codec", {"sections": [{"name": "delta", "codec": "zip", "deflate": False,
                                                "size": 4, "raw-size": 4}]}),
            ("too many sections", {"sections": [{"name": "delta", "codec": "none", "deflate": False,
                                                 "size": 4, "raw-size": 4}] * 17}),
            ("too many metrics", {"metrics": {f"m{i}": 1 for i in range(65)}}),
            ("a metric that is a text", {"metrics": {"loss": "low"}}),
            ("a metric that is infinite", {"metrics": {"loss": 1e999}}),
            ("a negative size", {"size": -4}),
        ]
        federation = self.start(rounds=1, **PLAIN)
        for name, changes in cases:
            with self.subTest(name), self.connect(federation) as peer:
                meta = peer.upload_meta(GOOD, "none", **changes)
                peer.send("upload", meta)
                peer.expect_refusal("bad-meta")
                peer.expect_end()
        self.give_up(federation)
        self.assert_unharmed(federation, 1, **PLAIN)

    def test_anothers_task(self):
        """A device cannot answer for another, nor end its task."""
        federation = self.federation(clients=2, rounds__num_server_rounds=1,
                                     rounds__min_available_nodes=2, **PLAIN)
        federation.start_aggregator()
        with Peer(federation, 0) as victim, Peer(federation, 1) as thief:
            victim.hello()
            thief.hello()
            victim.next_task()
            thief.next_task()
            own, thief.task = thief.task, victim.task
            thief.send("upload", thief.upload_meta(GOOD, "none"))
            thief.expect_refusal("stale-task")
            thief.send_parts(GOOD)  # passed over: nothing was asked for
            thief.decline_task()  # passed over: it is not its own
            self.assertEqual(victim.announce(victim.upload_meta(GOOD, "none")), 0)
            thief.send_parts(values((0, 1.0)))  # into an upload that is under way
            victim.send_parts(GOOD)
            self.assertEqual(victim.expect("ack").meta["duplicate"], False)
            thief.task = own
            thief.upload(GOOD, codec="none")
            federation.complete()
        line = federation.lines()[0]
        self.assertEqual((line["clients"], line["examples"]), (2, 200))


class Liars(NetTest):
    def test_who_lies_is_told_why_and_asked_last(self):
        federation = self.federation(clients=3, rounds__num_server_rounds=5, rounds__fraction_train=0.5,
                                     rounds__min_available_nodes=2, **PLAIN)
        federation.start_aggregator()
        with Peer(federation, 0) as liar, Peer(federation, 1) as second, Peer(federation, 2) as third:
            liar.hello()
            second.hello()
            liar.next_task()
            second.next_task()
            liar.send("upload", liar.upload_meta(GOOD, "none", size=4 * COUNT - 1))
            refusal = liar.expect_refusal("schema-mismatch")
            self.assertEqual((refusal["task-id"], refusal["class"]), (liar.task["task-id"], "never"))
            self.assertIn(f"upload of {4 * COUNT - 1} bytes", refusal["text"])
            third.hello()  # and gets the liar's place in the round
            third.next_task()
            for number in range(1, 6):
                for peer in (second, third):
                    if number > 1:
                        peer.next_task()
                    peer.upload(GOOD, codec="none")
            liar.expect("bye")  # without another task before
            federation.complete()
        for line in federation.lines():
            self.assertEqual((line["clients"], line["examples"]), (2, 200), line)


class Values(MisuseTest):
    """What is found in the bytes themselves."""

    def spoil(self, federation, data, reason, tries, codec, raw_size=None):
        """Uploads such bytes as often as it takes to lose the task."""
        closed = len(federation.aggregator.events("round-closed"))
        with self.connect(federation) as peer:
            for _ in range(tries):
                self.assertEqual(peer.announce(peer.upload_meta(data, codec, raw_size)), 0)
                peer.send_parts(data)
                self.assertTrue(peer.expect_refusal(reason)["text"])
            federation.aggregator.wait_event("round-closed", closed + 1)

    def test_values_out_of_bounds(self):
        last = COUNT - 1
        cases = [
            ("NaN", (3, math.nan)), ("infinity", (0, math.inf)), ("minus infinity", (last, -math.inf)),
            ("over the bound", (last, BOUND + 0.001)), ("under it", (0, -BOUND - 0.001)),
            ("far over it", (100, 3e38)),
        ]
        federation = self.start(rounds=len(cases), **PLAIN)
        for name, special in cases:
            with self.subTest(name):
                self.spoil(federation, values(special), "bad-value", 1, "none")
        self.assertEqual(len(federation.aggregator.events("update-refused")), len(cases))
        self.assert_unharmed(federation, len(cases), **PLAIN)

    def test_a_wrong_checksum_may_be_tried_again(self):
        federation = self.start(rounds=1, **PLAIN)
        closed = len(federation.aggregator.events("round-closed"))
        with self.connect(federation) as peer:
            for _ in range(3):
                meta = peer.upload_meta(GOOD, "none", crc32=zlib.crc32(GOOD) ^ 1)
                peer.announce(meta)
                peer.send_parts(GOOD)
                self.assertEqual(peer.expect_refusal("bad-data")["class"], "retry")
            federation.aggregator.wait_event("round-closed", closed + 1)
        self.assert_unharmed(federation, 1, **PLAIN)

    def test_deflated_data(self):
        raw = len(GOOD_INT8)
        stream = zlib.compress(bytes(raw))
        cases = [
            ("a bomb", zlib.compress(bytes(200 * raw), 9), "too-big", 1),
            ("one byte too many", zlib.compress(bytes(raw + 1)), "too-big", 1),
            ("one byte too few", zlib.compress(bytes(raw - 1)), "bad-data", 3),
            ("a stream cut off", stream[:-6], "bad-data", 3),
            ("bytes behind the stream", stream + b"more", "bad-data", 3),
            ("no stream", b"\xff" * 50, "bad-data", 3),
            ("a wrong check value", stream[:-1] + bytes([stream[-1] ^ 1]), "bad-data", 3),
        ]
        federation = self.start(rounds=len(cases))
        for name, data, reason, tries in cases:
            self.assertLess(len(data), raw, name)
            with self.subTest(name):
                self.spoil(federation, data, reason, tries, "int8", raw)
        self.assert_unharmed(federation, len(cases))

    def test_int8_that_no_encoder_makes(self):
        federation = self.start(rounds=1)
        data = bytearray(GOOD_INT8)
        data[2] = 0x80  # q = −128
        self.spoil(federation, bytes(data), "bad-data", 3, "int8")
        self.assert_unharmed(federation, 1)

    def test_choices_that_no_encoder_makes(self):
        job = {"update__codec": "ternary:1", "update__deflate": False}
        cases = [
            ("a value less in the index", encode_ternary(SIZES, 5, less=1), "bad-data", 3),
            ("gaps behind the end", encode_ternary(SIZES, 5, more_gaps=0xf000), "bad-data", 3),
            ("gaps of others", encode_ternary(SIZES, 5, more_gaps=1), "bad-data", 3),
            ("a gap out of its group", encode_ternary(SIZES, 5, gaps=0xff), "bad-data", 3),
            ("a section cut off", encode_ternary(SIZES, 5)[:-1], "bad-data", 3),
            ("a byte behind", encode_ternary(SIZES, 5, behind=b"x"), "too-big", 1),
            ("over the bound", encode_ternary(SIZES, (1 << 30) + 1), "bad-value", 1),
        ]
        federation = self.start(rounds=len(cases) + 1, **job)
        for name, data, reason, tries in cases:
            with self.subTest(name):
                self.spoil(federation, data, reason, tries, "ternary:1")
        with self.connect(federation) as peer:
            peer.send("upload", peer.upload_meta(encode_ternary(SIZES, 5, behind=bytes(1000)), "ternary:1"))
            self.assertIn("the plan's limit", peer.expect_refusal("too-big")["text"])
        self.assert_unharmed(federation, len(cases) + 1, **job)


class Parts(MisuseTest):
    def test_parts_in_the_wrong_place(self):
        cases = [
            ("a gap", lambda peer: peer.send_parts(GOOD, 100)),
            ("the same bytes twice", lambda peer: [peer.send_parts(GOOD, 0, 100), peer.send_parts(GOOD, 0, 100)]),
            ("more than announced", lambda peer: [peer.send_parts(GOOD, 0, 100), peer.send(
                "part", {"task-id": peer.task["task-id"], "offset": 100}, GOOD)]),
            ("a place that is none", lambda peer: peer.send(
                "part", {"task-id": peer.task["task-id"], "offset": (1 << 53) - 1}, b"x")),
        ]
        federation = self.start(rounds=1, **PLAIN)
        for name, action in cases:
            with self.subTest(name), self.connect(federation) as peer:
                peer.announce(peer.upload_meta(GOOD, "none"))
                action(peer)
                peer.expect_refusal("bad-state")
                peer.expect_end()
        with self.connect(federation) as peer:
            with self.subTest("a part of another upload"):
                peer.send("part", {"task-id": 999999, "offset": 0}, b"x")
            self.give_up(federation, peer)
        self.assert_unharmed(federation, 1, **PLAIN)

    def test_a_part_without_an_upload(self):
        federation = self.start(rounds=1, **PLAIN)
        with self.connect(federation) as peer:
            peer.send_parts(GOOD)
            peer.expect_refusal("bad-state")
            peer.expect_end()
        self.give_up(federation)
        self.assert_unharmed(federation, 1, **PLAIN)


class Pair(MisuseTest):
    """Two devices of the test alone, so that it says when a round ends."""

    def pair(self, rounds, **job):
        federation = self.federation(clients=2, rounds__num_server_rounds=rounds,
                                     rounds__min_available_nodes=2, **job)
        federation.start_aggregator()
        return federation

    def play(self, federation, data, codec, rounds, misuse):
        """Both upload [data] in every round; misuse(round, first, second) does the first's upload."""
        first, second = Peer(federation, 0), Peer(federation, 1)
        first.hello()
        second.hello()
        for number in range(1, rounds + 1):
            first.next_task()
            second.next_task()
            latest = misuse(number, first) or first
            if latest is not first:
                first.close()
            first = latest
            second.upload(data, codec=codec)
        federation.complete()
        first.close()
        second.close()
        for line in federation.lines():
            self.assertEqual((line["clients"], line["examples"]), (2, 200), line)
        return federation.hashes()

    def undisturbed_pair(self, data, codec, rounds, **job):
        def honest(_, peer):
            self.assertFalse(peer.upload(data, codec=codec)["duplicate"])
        return self.play(self.pair(rounds, **job), data, codec, rounds, honest)

    def again(self, peer, data, codec):
        """Announces the same update once more and gets ACK as a duplicate, or RESUME at its end."""
        peer.send("upload", peer.upload_meta(data, codec))
        ack = peer.expect("ack", skip=("task", "chunk"))
        self.assertEqual(ack.meta["task-id"], peer.task["task-id"])
        return ack.meta["duplicate"]

    def test_the_same_update_again(self):
        expected = self.undisturbed_pair(GOOD_INT8, "int8", 6)
        federation = self.pair(6)
        tasks = {}

        def same_connection(peer):
            peer.upload(GOOD_INT8)
            for _ in range(3):
                self.assertTrue(self.again(peer, GOOD_INT8, "int8"))
            return peer

        def second_connection(peer):
            peer.upload(GOOD_INT8)
            other = Peer(federation, 0)
            other.hello()
            peer.expect("bye")  # replaced
            peer.expect_end()
            other.task = peer.task
            self.assertTrue(self.again(other, GOOD_INT8, "int8"))
            return other

        def lost_ack(peer):
            peer.announce(peer.upload_meta(GOOD_INT8, "int8"))
            peer.send_parts(GOOD_INT8)
            peer.close()
            other = Peer(federation, 0)
            other.hello()
            other.task = peer.task
            self.again(other, GOOD_INT8, "int8")  # whether it counts as a duplicate is a matter of time
            self.assertTrue(self.again(other, GOOD_INT8, "int8"))
            return other

        def with_other_bytes(peer):
            peer.upload(GOOD_INT8)
            self.assertTrue(self.again(peer, encode_int8(SIZES, 9999, small_int8), "int8"))
            return peer

        def of_the_round_before(peer):
            now, peer.task = peer.task, tasks[4]
            self.assertTrue(self.again(peer, GOOD_INT8, "int8"))
            peer.task = tasks[1]
            peer.send("upload", peer.upload_meta(GOOD_INT8, "int8"))
            peer.expect_refusal("stale-task")
            peer.task = now
            peer.upload(GOOD_INT8)
            return peer

        def parts_again(peer):
            peer.upload(GOOD_INT8)
            peer.send_parts(GOOD_INT8)  # on their way when the ACK came
            self.assertTrue(self.again(peer, GOOD_INT8, "int8"))
            return peer

        ways = [same_connection, second_connection, lost_ack, with_other_bytes, of_the_round_before,
                parts_again]

        def misuse(number, peer):
            tasks[number] = peer.task
            with self.subTest(ways[number - 1].__name__):
                return ways[number - 1](peer)
        self.assertEqual(self.play(federation, GOOD_INT8, "int8", 6, misuse), expected)

    def test_an_upload_goes_on_where_it_stopped(self):
        job = harness.make_job(hidden=2000)
        sizes = tensor_sizes(job)
        data = encode_none(sizes, [0.0001 * (i % 11 - 5) for i in range(sum(sizes))])
        options = {"hidden": 2000, **PLAIN}
        expected = self.undisturbed_pair(data, "none", 3, **options)
        federation = self.pair(3, **options)

        def broken_off(sent):
            def upload(peer):
                self.assertEqual(peer.announce(peer.upload_meta(data, "none")), 0)
                peer.send_parts(data, 0, sent)
                # An answer to a later message says that the parts have been read.
                peer.send("fetch", {"hash": "ab" * 32, "offset": 0})
                peer.expect_refusal("stale-task")
                peer.close()
                other = Peer(federation, 0)
                other.hello()
                self.assertEqual(other.next_task()["task-id"], peer.task["task-id"])
                self.assertEqual(other.announce(other.upload_meta(data, "none")), sent)
                other.send_parts(data, sent)
                self.assertFalse(other.expect("ack").meta["duplicate"])
                return other
            return upload

        def another_update(peer):
            """Other bytes of the same size begin at byte 0 again."""
            wrong = bytes(len(data))
            peer.announce(peer.upload_meta(wrong, "none"))
            peer.send_parts(wrong, 0, 70000)
            self.assertEqual(peer.announce(peer.upload_meta(data, "none")), 0)
            peer.send_parts(data)
            self.assertFalse(peer.expect("ack").meta["duplicate"])
            return peer

        ways = [broken_off(70001), broken_off(len(data) - 1), another_update]
        hashes = self.play(federation, data, "none", 3, lambda number, peer: ways[number - 1](peer))
        self.assertEqual(hashes, expected)

    def test_crumbs(self):
        """An upload in parts of one byte, and messages that trickle, are slow but right."""
        expected = self.undisturbed_pair(GOOD_INT8, "int8", 1)
        federation = self.pair(1)

        def crumble(_, peer):
            peer.announce(peer.upload_meta(GOOD_INT8, "int8"))
            for at in range(len(GOOD_INT8)):
                peer.send_parts(GOOD_INT8, at, at + 1)
            self.assertFalse(peer.expect("ack").meta["duplicate"])
        self.assertEqual(self.play(federation, GOOD_INT8, "int8", 1, crumble), expected)

    def test_updates_that_a_restart_must_not_count_twice(self):
        """ACK, SIGKILL, and the same bytes again: one update."""
        expected = self.undisturbed_pair(GOOD_INT8, "int8", 1)
        federation = self.pair(1)
        with Peer(federation, 0) as first:
            with Peer(federation, 1) as second:
                first.hello()
                second.hello()
                first.next_task()
                first.upload(GOOD_INT8)
            federation.aggregator.kill()
            federation.start_aggregator()
            resumed = federation.aggregator.wait_event("run-resumed")
            self.assertEqual(resumed["updates-recovered"], 1)
            with Peer(federation, 0) as back, Peer(federation, 1) as other:
                back.hello()
                back.task = first.task
                self.assertTrue(self.again(back, GOOD_INT8, "int8"))
                other.hello()
                other.next_task()
                other.upload(GOOD_INT8)
                federation.complete()
        self.assertEqual(federation.hashes(), expected)


if __name__ == "__main__":
    harness.main()
