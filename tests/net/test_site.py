"""What a site's policy asks of the moment, on a device that is made up of files."""

import json
import os

import harness
import relay
from harness import NetTest


class Conditions(NetTest):
    def start(self, **job):
        """A run for one client that works on mains power only, and a device that has a battery."""
        federation = self.federation(clients=1, rounds__min_train_nodes=1, **job)
        self.device = federation.path("device")
        self.supply(federation, "Discharging")
        if "initial-model" in job:
            harness.write_model(federation.path(job["initial-model"]))
        with open(federation.site_path, encoding="utf-8") as file:
            site = json.load(file)
        site["policy"] = {"conditions": {"mains-power": True, "min-battery": 20, "root": self.device}}
        federation.site_path = federation.write("policy.json", site)
        federation.start_aggregator()
        return federation

    def supply(self, federation, status, capacity=80):
        folder = os.path.join(self.device, "sys/class/power_supply/BAT0")
        os.makedirs(folder, exist_ok=True)
        for name, text in (("type", "Battery"), ("capacity", str(capacity)), ("status", status)):
            with open(os.path.join(folder, name + ".new"), "w", encoding="ascii") as file:
                file.write(text + "\n")
            os.replace(os.path.join(folder, name + ".new"), os.path.join(folder, name))

    def test_a_device_trains_when_it_is_on_mains_power(self):
        expected = harness.undisturbed(2, clients=1, rounds__min_train_nodes=1)
        federation = self.start(rounds__num_server_rounds=2)
        client = federation.start_client(0)
        declined = federation.aggregator.wait_event("client-declined")
        self.assertEqual(declined["reason"], "on-battery", declined)
        self.assertIn("mains-power", declined["text"])
        self.assertEqual(client.events("trained"), [])
        self.assertTrue(client.running())
        self.assertEqual(client.stop(), 0)
        self.supply(federation, "Charging")
        federation.start_client(0)  # one that joins anew is asked at once
        federation.complete()
        self.assertEqual(federation.hashes(), expected)

    def test_a_download_ends_when_the_plug_is_pulled(self):
        """Of a model that takes a quarter of a minute over its link."""
        federation = self.start(hidden=harness.HIDDEN, rounds__num_server_rounds=1, **{"initial-model": "start.safetensors"})
        self.supply(federation, "Charging")
        way = relay.Relay(("127.0.0.1", federation.port), down_bytes_s=20000)
        self.addCleanup(way.close)
        client = federation.start_client(0, server=f"wss://127.0.0.1:{way.port}")
        harness.wait_until("a part of the model", lambda: way.bytes_down > 50000)
        self.supply(federation, "Discharging")
        declined = federation.aggregator.wait_event("client-declined")
        self.assertEqual(declined["reason"], "on-battery", declined)
        self.assertLess(way.bytes_down, os.path.getsize(federation.path("start.safetensors")))
        self.assertEqual(client.events("trained"), [])
        self.assertTrue(client.running())



if __name__ == "__main__":
    harness.main()
