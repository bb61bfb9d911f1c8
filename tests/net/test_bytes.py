"""Codecs that choose what travels, and what stays with clients from round to round."""

import glob
import os

import harness
import kills
from harness import NetTest

KILLS = max(2, kills.KILLS // 5)


class Bytes(NetTest):
    disturbed = kills.KilledTest.disturbed

    def test_kills_change_nothing_of_deltas(self):
        job = {"update": {"up": "topk:0.1+int8", "down": "int8+deflate"}, "hidden": 400}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 22, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))

    def test_kills_change_nothing_that_stays(self):
        job = {"update": {"up": "topk:0.1+int8"}}
        hashes = self.disturbed(2 * KILLS, KILLS, KILLS // 2, kills.SEED + 21, **job)
        self.assertEqual(hashes, harness.undisturbed(2 * KILLS, clients=kills.CLIENTS, **job))

    def test_a_damaged_residual_is_dropped_with_a_warning(self):
        federation = self.federation(update={"up": "topk:0.1+int8"}, rounds__num_server_rounds=30,
                                     rounds__min_report_fraction=1)
        federation.start_aggregator()
        clients = federation.start_clients()
        harness.wait_until("round 3", lambda: len(federation.lines()) >= 3)
        clients[1].kill()
        names = glob.glob(os.path.join(federation.path("client-1"), "kv", "*", "fedge-residual*+crc32"))
        self.assertEqual(len(names), 2)
        for name in names:
            with open(name, "r+b") as file:
                data = bytearray(file.read())
                data[20] ^= 0x10
                file.seek(0)
                file.write(data)
        again = federation.start_client(1)
        federation.complete()
        self.assertEqual(again.wait(), 0, again.tail())
        said = [event for event in again.events("store") if "is damaged" in event["error"]]
        self.assertEqual({event["level"] for event in said}, {"warn"}, again.tail())
        self.assertLess(federation.lines()[-1]["loss"], federation.lines()[0]["loss"])

    def test_site_policy_names_the_stage(self):
        federation = self.federation(update={"up": "topk:0.1+int8"}, clients=1, rounds__min_train_nodes=1)
        site = {"data": {"points": {"values": "train-values.npy", "labels": "train-labels.npy"}},
                "policy": {"codecs": ["none", "int8"]}}
        federation.write("site.json", site)
        federation.start_aggregator()
        said = federation.start_client(0).wait_event("end")
        self.assertIn("topk:0.1+int8, which is not among this site's policy.codecs", said["message"])


if __name__ == "__main__":
    harness.main()
