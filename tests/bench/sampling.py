"""Where a running program's CPU time goes, sampled by Linux's perf."""

import collections
import os
import re
import signal
import subprocess

RATE_HZ = 997
KERNEL = re.compile(r"\[(kernel|vdso|[a-z0-9_]+\])")

# What a sample is counted as: by the library or the function that it fell in, the first that fits.
USER = (
    ("ciphers and hashes", r"^libgcrypt|gcm|aes|chacha|poly1305|sha256|sha512"),
    ("CRC-32", r"crc32"),
    ("inflate", r"^libisal|^libz\b|inflate|adler32|huff"),
    ("decode and sum", r"fixed|codec|decode|accum|validate|floats_|block_|quantise|sum_"),
    ("copies", r"mem(cpy|move|set)"),
    ("TLS, websockets, messages", r"mbedtls|ssl|lws|ws_|frame|message|record|transport|^conn|ev_"),
)
SYSCALLS = (
    ("kernel: the link", r"^(readv?|recv\w*|writev?|send\w*|epoll_\w+|ioctl|accept4?)$"),
    ("kernel: files written", r"^pwrite"),
    ("kernel: files read", r"^pread"),
    ("kernel: syncs", r"^(fdatasync|fsync)$"),
)


def read_samples(path):
    """(thread, [(function, library), ...] from the innermost on) of each sample."""
    text = subprocess.run(["perf", "script", "--no-inline", "-i", path, "-F", "comm,ip,sym,dso"], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
    for sample in text.split("\n\n"):
        lines = [line for line in sample.splitlines() if line.strip()]
        frames = []
        for line in lines[1:]:
            found = re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line)
            if found:
                frames.append((found[1], os.path.basename(found[2])))
        if frames:
            yield lines[0].strip(), frames


def part_of(frames):
    function, library = frames[0]
    if KERNEL.match(library):
        if any("page_fault" in frame[0] for frame in frames):
            return "kernel: page faults"
        caller = next((frame[0] for frame in frames if not KERNEL.match(frame[1])), "")
        name = re.sub(r"^_*(GI_+)?(libc_)?|(64)?(@.*)?$", "", caller)
        return next((part for part, pattern in SYSCALLS if re.search(pattern, name)), "kernel: the rest")
    for part, pattern in USER:
        if re.search(pattern, library) or re.search(pattern, function):
            return part
    return "the rest"


def available():
    """Whether perf is installed and sees into the kernel."""
    try:
        return subprocess.run(["perf", "stat", "-e", "cpu-clock:k", "true"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Profile:
    """Samples a process until stop()."""

    def __init__(self, pid, folder):
        self.path = os.path.join(folder, "perf.data")
        self._perf = subprocess.Popen(
            ["perf", "record", "--quiet", "-e", "cpu-clock", "-F", str(RATE_HZ), "--call-graph", "dwarf,4096",
             "-o", self.path, "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        """The share of each (thread, part), the largest first."""
        self._perf.send_signal(signal.SIGINT)
        self._perf.wait()
        counted = collections.Counter()
        for thread, frames in read_samples(self.path):
            counted[thread, part_of(frames)] += 1
        return [(thread, part, count / counted.total()) for (thread, part), count in counted.most_common()]
