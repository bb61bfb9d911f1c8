"""Several machines on one: a network namespace and a host's name for each, with wire.py between them.

mpirun runs on the first of them and starts what it wants on the others by a launcher in place of ssh, which is this file as
a program. All that a machine runs is in one PID namespace, which ends with its first process; that one ends with mpirun, and
mpirun with the test. Needs what wire.py needs.
"""

import os
import sys

import wire
from ranks import ENVIRONMENT, Ranks

HERE = os.path.abspath(__file__)


class Machines(wire.Wire):
    """As wire.Wire, with that many ends, each a machine."""

    def run_on(self, number):
        """What begins the command line of a program that is to run there."""
        return (sys.executable, "-B", HERE, f"m{number + 1}", self.namespace(number))

    def environment(self):
        """Of mpirun: its messages, and those of the ranks, go over the wire."""
        places = ",".join(f"{address}=m{i + 1}={self.namespace(i)}" for i, address in enumerate(self.addresses))
        return {**ENVIRONMENT, "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "wire",
                "OMPI_MCA_oob_tcp_if_include": "wire", "OMPI_MCA_plm_rsh_agent": f"{sys.executable} -B {HERE}",
                "OMPI_MCA_orte_leave_session_attached": "1", "FEDGE_NET_MACHINES": places}


class RanksOnMachines(Ranks):
    """An aggregator with a rank on each of the first [ranks] machines. Ranks on different machines have the same ports."""

    def __init__(self, machines, ranks, **options):
        self.machines = machines
        super().__init__(ranks, **options)

    def use(self, ranks):
        super().use(ranks)
        self.servers = [f"wss://{address}:{self.port}" for address in self.machines.addresses]

    def launch_aggregator(self, *more, environment=None, prefix=None, **options):
        hosts = ",".join(f"{address}:1" for address in self.machines.addresses[:self.ranks])
        prefix = prefix or ("mpirun", "--host", hosts, "-n", str(self.ranks))
        return super().launch_aggregator(
            *more, environment={**self.machines.environment(), **(environment or {})},
            prefix=(*self.machines.run_on(0), *prefix), listen=f"0.0.0.0:{self.port}", http="off", **options)

    def start_client(self, index, *more, on=None, **options):
        """On a machine; [on]: the last."""
        where = len(self.machines.addresses) - 1 if on is None else on
        words = [word for server in self.servers[1:self.ranks] for word in ("--server", server)]
        return super(Ranks, self).start_client(index, *words, *more, before=lambda: self.machines.enter(where),
                                               **{"server": self.servers[0], **options})


def enter(name, namespace, command):
    """This process waits for [command], which is the first of its machine's processes."""
    wire.end_with_parent()
    wire.enter_machine(name, namespace)
    child = os.fork()
    if child == 0:
        wire.end_with_parent()
        os.execvp(command[0], command)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)


def main(words):
    if words[0] in (places := dict(place.split("=", 1) for place in
                                   os.environ.get("FEDGE_NET_MACHINES", "").split(",") if place)):
        name, namespace = places[words[0]].split("=", 1)
        enter(name, namespace, ["sh", "-c", " ".join(words[1:])])  # as ssh HOST COMMAND does
    enter(words[0], words[1], words[2:])


if __name__ == "__main__":
    main(sys.argv[1:])
