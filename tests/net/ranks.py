"""An aggregator on several ranks of this machine: mpirun and where each rank listens."""

import os

import harness
from harness import wait_until

# One machine, whoever runs the tests and however few its cores are.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_plm_rsh_agent": "false",
    "OMPI_MCA_odls_base_sigkill_timeout": "2", "TMPDIR": "/tmp",  # its sockets' paths are short
    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",  # Open MPI keeps memory to the end
}


class Ranks(harness.Federation):
    """A federation whose aggregator runs on [ranks] ranks; clients begin at one by their index."""

    ranks = 2

    def start_aggregator(self, *more, environment=None, **options):
        for rank in range(1, self.ranks):
            if os.path.exists(self.path(f"ports.{rank}")):
                os.unlink(self.path(f"ports.{rank}"))
        options.setdefault("listen", "127.0.0.1:0")
        options.setdefault("http", "127.0.0.1:0")
        super().start_aggregator(*more, environment={**ENVIRONMENT, **(environment or {})},
                                 prefix=("mpirun", "-n", str(self.ranks)), **options)
        self.ports = [self.port]
        for rank in range(1, self.ranks):
            words = wait_until(f"the ports of rank {rank}", lambda rank=rank: self._words(f"ports.{rank}"))
            self.ports.append(int(words[0]))
        return self.aggregator

    def _words(self, name):
        try:
            with open(self.path(name), encoding="ascii") as file:
                return file.read().split()
        except FileNotFoundError:
            return None

    def server(self, index, first=0):
        return f"wss://127.0.0.1:{self.ports[(index + first) % self.ranks]}"

    def start_client(self, index, *more, **options):
        options.setdefault("server", self.server(index))
        return super().start_client(index, *more, **options)
