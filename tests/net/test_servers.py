"""Several addresses of one federation: a list in the client's file, and servers that send devices on."""

import json
import os
import unittest

import harness
from ranks import RanksTest


class Servers(RanksTest):
    def file_with(self, made, name, servers):
        with open(made.site_path, encoding="utf-8") as file:
            site = json.load(file)
        return made.write(name, {**site, "servers": servers})

    def test_a_list_in_the_clients_file(self):
        """One that nobody listens at is passed over; --server overrides the file."""
        made = self.federation(clients=2, rounds__num_server_rounds=2, rounds__min_train_nodes=2)
        made.start_aggregator()
        there, gone = f"wss://127.0.0.1:{made.port}", "wss://127.0.0.1:1"
        made.start_client(0, server=None, config=self.file_with(made, "two.json", [gone, there]))
        made.start_client(1, server=there, config=self.file_with(made, "one.json", gone))
        made.complete()

    def test_no_server(self):
        made = self.federation(clients=1)
        client = made.start_client(0, server=None)
        self.assertEqual(client.wait(), 2)
        self.assertIn("no server: give --server URL, or", client.log())
        self.assertIn("site.json", client.log())

    def test_a_device_begins_at_one_by_its_id(self):
        """So that devices with one list spread over it. The first 32 bits of the id choose."""
        made = self.federation(clients=3, rounds__num_server_rounds=1, rounds__min_train_nodes=3)
        servers = [f"wss://127.0.0.1:{made.port}"] + [f"wss://127.0.0.1:{port}" for port in (1, 2)]
        devices = [made.start_client(i, "--check-config").wait_event("config-ok")["device"] for i in range(3)]
        made.start_aggregator()
        clients = [made.start_client(i, server=",".join(servers)) for i in range(3)]
        made.complete()
        self.assertEqual([self.tried(client)[0] for client in clients],
                         [servers[int(device.split("-")[0], 16) % 3] for device in devices])

    def begins_at_first(self, made, index, servers):
        """The list turned so that the device begins at its first, whatever its id is."""
        client = harness.Federation.start_client(made, index, "--check-config")
        turns = int(client.wait_event("config-ok")["device"].split("-")[0], 16) % len(servers)
        return [*servers[len(servers) - turns:], *servers[:len(servers) - turns]]

    def full(self, redirect, list_of):
        """A rank for one device only, and a rank for all. Returns the clients, of three."""
        job = {"clients": 3, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 3}
        made = self.ranks(2, **job)
        program, *words = made.aggregator_arguments()
        made.launch_aggregator(prefix=("mpirun", "-n", "1", os.path.join(harness.BIN, program), *words,
                                       "--max-connections", "1", "--redirect", redirect(made), ":", "-n", "1"))
        made.aggregator.wait_event("listening", 2)
        clients = [harness.Federation.start_client(made, 0, server=made.servers[0])]
        made.aggregator.wait_event("client-hello", 1)
        clients += [harness.Federation.start_client(made, i, server=",".join(self.begins_at_first(made, i, list_of(made))))
                    for i in (1, 2)]
        made.complete()
        return made, clients[1:]

    def tried(self, client):
        return [event["server"] for event in client.events("connect")]

    def test_a_full_rank_sends_devices_on(self):
        """To the address that it names, not to the next of the list."""
        made, clients = self.full(lambda made: made.servers[1],
                                  lambda made: (made.servers[0], "wss://127.0.0.1:1", made.servers[1]))
        for client in clients:
            self.assertEqual(self.tried(client)[:2], made.servers[:2])

    def test_a_server_that_stops_sends_devices_on(self):
        """To the address that it names, past what the device's list has next."""
        first, second = (self.federation(clients=1, rounds__num_server_rounds=2, rounds__min_train_nodes=1,
                                         rounds__min_available_nodes=available) for available in (2, 1))
        there = [f"wss://127.0.0.1:{made.port}" for made in (first, second)]
        first.start_aggregator("--redirect", there[1])
        client = first.start_client(0, server=",".join((there[0], "wss://127.0.0.1:1", there[1])))
        client.wait_event("welcome")
        second.start_aggregator()
        self.assertEqual(first.aggregator.stop(), 0)
        second.complete()
        tried = self.tried(client)
        last = len(tried) - 1 - tried[::-1].index(there[0])
        self.assertEqual(tried[last + 1], there[1])

    def test_an_address_that_the_device_does_not_know(self):
        """It goes on in its own list."""
        made, clients = self.full(lambda made: "wss://127.0.0.1:2", lambda made: made.servers[:2])
        for client in clients:
            self.assertEqual(self.tried(client)[:2], made.servers[:2])
            self.assertLessEqual(set(self.tried(client)), set(made.servers[:2]))


if __name__ == "__main__":
    unittest.main()
