"""fedge-aggregator --supervise: a process that falls is started again and goes on with the same bits."""

import os
import signal

import harness
from harness import NetTest, undisturbed, wait_until


def child_of(pid):
    """The process that it supervises; None while there is none."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Supervise(NetTest):
    def test_a_killed_process_is_started_again(self):
        rounds = 12
        federation = self.federation(rounds__num_server_rounds=rounds)
        federation.start_aggregator()  # finds the ports that all use from now on
        federation.aggregator.kill()
        federation.start_aggregator("--supervise")
        federation.start_clients()
        federation.aggregator.wait_event("round-closed", 2)
        first = child_of(federation.aggregator.pid)
        os.kill(first, signal.SIGKILL)
        federation.aggregator.wait_event("run-resumed", 2)
        self.assertNotEqual(child_of(federation.aggregator.pid), first)
        federation.complete()
        self.assertIn("was killed by signal 9; starting it again in", federation.aggregator.log())
        self.assertEqual(federation.hashes(), undisturbed(rounds))

    def test_what_a_new_start_cannot_mend_is_not_repeated(self):
        federation = self.federation()
        federation.launch_aggregator("--supervise", trust=federation.path("nowhere"))
        self.assertEqual(federation.aggregator.wait(), 3)
        self.assertNotIn("starting it again", federation.aggregator.log())

    def test_signals_reach_the_process(self):
        federation = self.federation()
        federation.start_aggregator("--supervise")
        child = child_of(federation.aggregator.pid)
        federation.aggregator.send(signal.SIGHUP)
        federation.aggregator.wait_event("reloaded")
        self.assertEqual(child_of(federation.aggregator.pid), child)
        self.assertEqual(federation.aggregator.stop(), 0)
        self.assertFalse(is_alive(child))

    def test_the_process_ends_with_its_supervisor(self):
        federation = self.federation()
        federation.start_aggregator("--supervise")
        child = child_of(federation.aggregator.pid)
        federation.aggregator.kill()
        wait_until("the end of the supervised process", lambda: not is_alive(child))


if __name__ == "__main__":
    harness.main()
