"""An aggregator on several ranks of this machine: mpirun and where each rank listens."""

import glob
import os
import re
import signal

import harness
from harness import is_free, wait_until

MOST = 4
# One machine, whoever runs the tests and however few its cores are.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_plm_rsh_agent": "false",
    "OMPI_MCA_odls_base_sigkill_timeout": "1", "TMPDIR": "/tmp",  # its sockets' paths are short
    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",  # Open MPI keeps memory to the end
}


class Ranks(harness.Federation):
    """A federation whose aggregator runs on [ranks] ranks, which are the same addresses at each start."""

    def __init__(self, ranks, **options):
        super().__init__(**options)
        self.use(ranks)

    def use(self, ranks):
        self.ranks = ranks
        self.port = harness.reserve_ports(2 * MOST)
        self.http_port = self.port + 1
        self.servers = [f"wss://127.0.0.1:{self.port + 2 * rank}" for rank in range(MOST)]

    def launch_aggregator(self, *more, environment=None, prefix=None, **options):
        environment = {**ENVIRONMENT, **(environment or {})}
        environment["ASAN_OPTIONS"] += ":detect_leaks=0"  # what is given may have options of its own
        return super().launch_aggregator(*more, environment=environment,
                                         prefix=prefix or ("mpirun", "-n", str(self.ranks)), **options)

    def start_aggregator(self, *more, **options):
        super().start_aggregator(*more, **options)
        self.aggregator.wait_event("listening", self.ranks)
        return self.aggregator

    def write_hosts(self, *lines):
        """The file of --hosts, put in its place whole."""
        with open(self.path("hosts.new"), "w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(self.path("hosts.new"), self.path("hosts"))

    def disk(self, rank):
        """The state directory of a rank whose machine does not share rank 0's."""
        return self.path(f"disk-{rank}") if rank else self.state

    def on_disks(self, environment=None):
        """Starts two ranks, each with a state directory of its own."""
        program, *words = self.aggregator_arguments()
        self.launch_aggregator(prefix=("mpirun", "-n", "1", os.path.join(harness.BIN, program), *words, ":", "-n", "1"),
                               environment=environment, state=self.disk(1))
        self.aggregator.wait_event("listening", 2)

    def reported(self, count):
        """Whether so many of the round's updates count by now."""
        found = re.search(r"(\d+) of \d+ reported", self.health()["state"])
        return found and int(found[1]) >= count

    def start_client(self, index, *more, **options):
        """One that knows the addresses of two ranks: [server], and the second."""
        words = [word for server in self.servers[1:2] for word in ("--server", server)]
        return super().start_client(index, *words, *more, **{"server": self.servers[0], **options})

    def pid_of(self, rank):
        """The process of a rank, which mpirun has started."""
        found = [self.aggregator.pid]
        for pid in found:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"OMPI_COMM_WORLD_RANK={rank}".encode() in file.read().split(b"\0"):
                    return pid
        raise AssertionError(f"mpirun has no rank {rank}")

    def wait_for_watch(self, rank):
        """Until it hears when others say nothing: it does not yet while it starts."""
        def watches():
            for path in glob.glob(f"/proc/{self.pid_of(rank)}/task/*/comm"):
                with open(path, encoding="ascii") as file:
                    if file.read() == "ranks\n":  # what the watch hears by
                        return True
            return False
        wait_until(f"rank {rank} watches others", watches)

    def kill_rank(self, rank):
        """What Open MPI says of it; all ranks have ended then."""
        os.kill(self.pid_of(rank), signal.SIGKILL)
        return self.wait_for_loss()

    def wait_for_loss(self):
        """The same, once a rank is killed by something else."""
        code = self.aggregator.wait()
        if code == 0:
            raise AssertionError("mpirun has ended with 0 although a rank was killed")
        wait_until("the ports are free", lambda: all(is_free(self.port + i) for i in range(2 * MOST)))
        return self.aggregator.log()


class RanksTest(harness.NetTest):
    def ranks(self, count, **options):
        made = Ranks(count, **options)
        self._federations.append(made)
        return made

    def play(self, made, timeout_s=harness.PATIENCE_S):
        made.start_aggregator()
        made.start_clients()
        return made.complete(timeout_s)

    def change_ranks(self, strategy, *arguments, prepare=lambda made: None, **options):
        """1, 4 and 2 ranks, one after another, while a round is open. [prepare]: what is done to their federation."""
        job = {"clients": 4, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 4,
               "strategy__type": strategy, "training__optimizer": {"type": "SGD"}}
        alone = self.play(self.federation(**job))
        changing = self.ranks(1, **job)
        prepare(changing)
        changing.start_aggregator(*arguments, **options)
        clients = {i: changing.start_client(i) for i in (2, 3)}
        changing.aggregator.wait_event("client-hello", 2)
        for client in clients.values():
            client.send(signal.SIGSTOP)  # known, and before there are enough for a round
        changing.start_clients(0, 1)

        harness.wait_until("two of four", lambda: changing.reported(2))
        recovered = []
        for ranks in (4, 2):
            changing.kill_rank(0)
            changing.ranks = ranks
            changing.start_aggregator(*arguments, **options)
            recovered.append(changing.aggregator.wait_event("run-resumed")["updates-recovered"])
            if ranks == 4:
                clients[2].send(signal.SIGCONT)
                harness.wait_until("three of four", lambda: changing.reported(3))
        clients[3].send(signal.SIGCONT)
        self.assertEqual(changing.complete()["model_sha256"], alone["model_sha256"])
        self.assertGreaterEqual(recovered[0], 2)
        self.assertGreaterEqual(recovered[1], 3)
        return changing
