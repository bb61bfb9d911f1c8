"""One aggregator on several machines: network namespaces, with a bad wire between them.

A bad wire makes the run slower, and its hash is the same; a machine that is cut off ends the ranks, and the run goes on without
it.
"""

import os
import sys

import harness
import wire
from machines import Machines, RanksOnMachines
from ranks import RanksTest

CLIENTS = 3
PATIENCE_S = 4 * harness.PATIENCE_S  # each message between ranks waits for the wire
# How long a machine may be silent until mpirun takes it for lost: in 6 s here, or as the supervisor sets it.
AS_SET = bool(os.environ.get("FEDGE_NET_DEFAULT_SILENCE"))
PROBES = {} if AS_SET else {"OMPI_MCA_oob_tcp_keepalive_time": "3", "OMPI_MCA_oob_tcp_keepalive_intvl": "1",
                            "OMPI_MCA_oob_tcp_keepalive_probes": "3"}
SILENCE_S = 40 if AS_SET else 3 + 1 * 3
NOTICE_S = 240  # from there to mpirun's words, on a busy machine


class OnMachines(RanksTest):
    def on(self, net, ranks=2, **job):
        keys = harness.make_keys(os.path.join(harness.make_folder(), "keys"), CLIENTS, ip=net.addresses[:ranks])
        made = RanksOnMachines(net, ranks, keys=keys, clients=CLIENTS, rounds__min_train_nodes=CLIENTS, **job)
        self._federations.append(made)
        return made

    def test_loss_and_delay(self):
        """2 % and 50 ms, between ranks and on the way to devices. The devices are on a machine of their own."""
        with Machines(ends=3, loss=0.02, round_trip_s=0.05, seed=3) as net:
            made = self.on(net, rounds__num_server_rounds=3)
            made.launch_aggregator()
            made.aggregator.wait_event("listening", 2, PATIENCE_S)
            made.start_clients()
            made.complete(PATIENCE_S)
            made.stop()
        self.assertGreater(net.counts["lost"], 0, net.counts)
        self.assertEqual(made.hashes(), harness.undisturbed(3, clients=CLIENTS, rounds__min_train_nodes=CLIENTS))

    def write_hosts(self, made, count):
        made.write_hosts(*(f"{address} slots=1" for address in made.machines.addresses[:count]))

    def test_a_machine_is_cut_off(self):
        """In the middle of a round. mpirun says so once its probes were in vain; the supervisor starts it again, with the
        machines that its file names by then."""
        with Machines(ends=3, seed=3) as net:
            made = self.on(net, rounds__num_server_rounds=2)
            self.write_hosts(made, 2)
            made.launch_aggregator("--supervise", "--hosts", made.path("hosts"), "--heartbeat", "3", prefix=("env",),
                                   environment=PROBES)
            made.aggregator.wait_event("listening", 2, PATIENCE_S)
            last = made.start_client(2)
            made.aggregator.wait_event("client-hello", timeout_s=PATIENCE_S)
            last.send(harness.signal.SIGSTOP)  # known, and before there are enough for a round
            for client in (made.start_client(0), made.start_client(1)):
                client.wait_event("accepted", timeout_s=PATIENCE_S)
            self.write_hosts(made, 1)
            net.part(1)
            # Without the probes it takes eight minutes.
            harness.wait_until("the loss", lambda: "lost communication with a remote daemon" in made.aggregator.log(),
                               SILENCE_S + NOTICE_S)
            made.aggregator.wait_event("listening", 3, PATIENCE_S)
            net.part()
            self.assertIn("starting it again", made.aggregator.log())
            self.assertEqual(made.aggregator.wait_event("run-resumed")["updates-recovered"], 2)
            last.send(harness.signal.SIGCONT)
            made.complete(PATIENCE_S)
            made.stop()
        self.assertEqual(made.hashes(), harness.undisturbed(2, clients=CLIENTS, rounds__min_train_nodes=CLIENTS))


if __name__ == "__main__":
    if not wire.allowed():
        print("skipped: network namespaces and TUN devices need root and /dev/net/tun", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    harness.main()
