"""Codecs that choose what travels, and what stays with clients from round to round."""

import glob
import os

import harness
import kills
import test_sections
import test_simulation
from harness import NetTest

KILLS = max(2, kills.KILLS // 5)
ROUNDS = 6


class Bytes(NetTest):
    deployed = test_simulation.Simulation.deployed
    simulated = test_simulation.Simulation.simulated
    assert_same = test_simulation.Simulation.assert_same
    disturbed = kills.KilledTest.disturbed

    def same_with(self, **update):
        """With some of the clients each round, so that residuals are of different rounds."""
        federation, lines = self.assert_same(
            update=update, clients=5, rounds__fraction_train=0.5, rounds__min_train_nodes=2,
            rounds__num_server_rounds=ROUNDS)
        self.assertEqual(len(lines), ROUNDS)
        return federation.hashes(), lines[-1]["bytes_up"]

    def test_a_simulated_run_is_the_deployed_one(self):
        seen = set()
        for update in ({"up": "topk:0.1+int8+deflate"}, {"up": "topk:0.1+int8+deflate", "residual-half-life": 1},
                       {"up": "topk:0.1+int8+deflate", "error-feedback": "off"}, {"up": "ternary:0.05"},
                       {"up": "randk:0.2+int4"}, {"up": "int4"}, {"up": "int4", "error-feedback": "on"},
                       {"up": "ternary:0.05+int8+deflate", "layers": [{"tensors": "vectors", "codec": "none"},
                                                                      {"tensors": "0.*", "codec": "topk:0.1+int8"}]}):
            with self.subTest(update):
                hashes, _ = self.same_with(**update)
                seen.add(hashes[-1])
        self.assertEqual(len(seen), 8)  # none is another by accident

    def test_models_travel_as_deltas(self):
        """Clients that miss rounds catch up by several deltas, the first from the model that the seed makes; in all
        cases the same bits."""
        seen, down = set(), {}
        for update in ({"up": "int8"}, {"up": "int8", "down": "int8+deflate"},
                       {"up": "topk:0.1+int8", "down": "topk:0.2+int4+deflate"},
                       {"up": "int8", "down": "int8+deflate", "layers": [
                           {"tensors": "vectors", "codec": "none"},
                           {"tensors": "0.*", "codec": "int4", "down": "topk:0.1+int4"}]}):
            with self.subTest(update):
                federation, lines = self.assert_same(
                    update=update, clients=5, hidden=400, rounds__fraction_train=0.5, rounds__min_train_nodes=2,
                    rounds__num_server_rounds=ROUNDS)
                seen.add(federation.hashes()[-1])
                down[len(seen)] = (sum(line["bytes_down"] for line in federation.lines()),
                                            sum(line["bytes_down"] for line in lines))
        self.assertEqual(len(seen), 4)
        deployed, simulated = zip(*down.values())
        self.assertLess(deployed[1], 0.5 * deployed[0])  # no client gets a whole model
        for mine, theirs in zip(simulated[1:], deployed[1:]):
            self.assertLess(mine, theirs)
            self.assertLess(theirs, mine + 3000 * 3 * ROUNDS)  # tasks, with 8 deltas each

    def test_a_client_that_was_long_away_gets_a_delta(self):
        """One of five is asked in a round, so some have not been for more than eight."""
        federation, lines = self.assert_same(
            update={"up": "int8", "down": "topk:0.01+int4"}, clients=5, hidden=400, rounds__fraction_train=0.2,
            rounds__min_train_nodes=1, rounds__num_server_rounds=24)
        whole = os.path.getsize(os.path.join(federation.run_folder(), "model.safetensors"))
        self.assertEqual(lines[0]["bytes_down"], 0)
        for of in (lines, federation.lines()):
            self.assertLess(max(line["bytes_down"] for line in of), 0.75 * whole)

    def test_models_travel_as_deltas_with_statistics(self):
        federation, _ = self.assert_same(
            prepare=test_sections.points_as_images, data__shape=[3, 2, 2], model=test_sections.batchnorm(),
            update={"up": "int8", "down": "int8+deflate"}, rounds__fraction_evaluate=1.0,
            site={"validation-fraction": 0.25})
        self.assertEqual(len(federation.lines()), 3)

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
