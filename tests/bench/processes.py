"""What the kernel knows of a process."""

import os


def status_bytes(pid, *keys):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return [int(lines[key].split()[0]) * 1024 for key in keys]


def written_bytes(pid):
    """To files on disks (none of tmpfs), since its start; what of it was removed again counts."""
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("write_bytes:"))


def pss_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


# Threads by their names; main's, and those of the network, have any other.
WORKERS, CLOSING, ENGINE = ("ingest",), ("finalizer", "saver"), ("engine",)


def thread_seconds(pid):
    """CPU seconds of the threads of each name."""
    seconds = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
            name = file.read().strip()
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            seconds[name] = seconds.get(name, 0) + int(file.read().split()[0]) / 1e9
    return seconds


class Spent:
    """What threads have spent between two thread_seconds."""

    def __init__(self, first, last):
        spent = {name: last[name] - first.get(name, 0) for name in last}
        self.all = sum(spent.values())
        self.workers, self.closing, self.engine = (
            sum(spent.get(name, 0) for name in names) for names in (WORKERS, CLOSING, ENGINE))
        self.connections = self.all - self.workers - self.closing - self.engine
