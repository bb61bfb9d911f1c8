"""A bad network on one machine: network namespaces, two or more, joined by a forwarder in user space.

Each namespace has a TUN device; a process reads packets from either, loses some, delays the rest, and
now and then turns one into a reset of its TCP connection, all drawn from a seed. It may also be no faster than
some bytes a second on the way up, behind a queue, be cut for some seconds of each period, and forget TCP connections
that are idle, as a NAT does: it loses all that comes of them afterwards. Namespaces can be parted, and joined again. Needs
root.

    with Wire(loss=0.05, round_trip_s=0.2, resets=0.01, seed=1) as wire:
        Program(..., before=wire.enter_server)     # address wire.SERVER
        Program(..., before=wire.enter_client)
    wire.counts   # {"forwarded": …, "lost": …, "resets": …, "cut": …, "forgotten": …, "bytes_up": …}: packets, of
                  # connections that were forgotten too; bytes that clients sent
"""

import ctypes
import fcntl
import heapq
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import time

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET, _CLONE_NEWUTS, _CLONE_NEWPID = 0x40000000, 0x04000000, 0x20000000
_PR_SET_PDEATHSIG = 1
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_TCP = 6
_QUEUE_S = 1.0  # of a slow way up: what would wait for longer is lost


def allowed():
    """Whether this process may make namespaces and TUN devices."""
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun") and _try_namespace()


def _try_namespace():
    child = os.fork()
    if child == 0:
        os._exit(0 if _libc.unshare(_CLONE_NEWNET) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def end_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_machine(name, namespace):
    """The network of [namespace] and this host's name; children are in a PID namespace that ends with the first."""
    with open(namespace, "rb") as file:
        if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0 or _libc.unshare(_CLONE_NEWUTS | _CLONE_NEWPID) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    socket.sethostname(name)


def _address(name, address):
    """struct ifreq with an IPv4 address."""
    return struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))


def _make_end(address):
    """In a new namespace: a TUN device with this address. Returns its file and the namespace's."""
    if _libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"wire", _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, _address(b"wire", address))
        fcntl.ioctl(control, _SIOCSIFNETMASK, _address(b"wire", "255.255.255.0"))
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", b"wire", 1400))
        for name in (b"lo", b"wire"):
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", name, _IFF_UP | _IFF_RUNNING))
    return tun, os.open("/proc/self/ns/net", os.O_RDONLY)


def _end_in_child(address):
    """_make_end by a child, so that this process stays in its own namespace."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            socket.send_fds(theirs, [b"x"], _make_end(address))
            os._exit(0)
        except BaseException:
            os._exit(1)
    theirs.close()
    _, files, _, _ = socket.recv_fds(ours, 1, 2)
    ours.close()
    if os.waitpid(child, 0)[1] != 0 or len(files) != 2:
        raise OSError(f"the namespace of {address} could not be made")
    return files


def _checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tcp_flags(packet):
    """Flags of a TCP segment; 0 for any other packet."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
        return 0
    return packet[(packet[0] & 15) * 4 + 13]


def make_reset(packet, back):
    """A reset of the packet's connection: for its receiver, or (back) for its sender."""
    start = (packet[0] & 15) * 4
    source, target = packet[12:16], packet[16:20]
    ports, sequence, acknowledged = packet[start:start + 4], packet[start + 4:start + 8], packet[start + 8:
                                                                                                  start + 12]
    if back:
        source, target = target, source
        ports = ports[2:] + ports[:2]
        sequence = acknowledged
    tcp = ports + sequence + struct.pack("!IBBHHH", 0, 5 << 4, _RST, 0, 0, 0)
    tcp = tcp[:16] + struct.pack("!H", _checksum(source + target + struct.pack("!HH", _TCP, 20) + tcp)) + tcp[
        18:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, _TCP, 0) + source + target
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + tcp


class _Forwarder:
    def __init__(self, ends, groups, loss, delay_s, resets, seed, up_bytes_s, cuts_s, forgets_s):
        self.ends, self.groups, self.loss, self.delay_s, self.resets = ends, groups, loss, delay_s, resets
        self.up_bytes_s, self.cuts_s, self.forgets_s = up_bytes_s, cuts_s, forgets_s
        self.seen = {}  # by the client's port: when its connection had its last packet
        self.draw = random.Random(seed)
        self.queue = []
        self.started = self.up_free = time.monotonic()
        self.counts = {"forwarded": 0, "lost": 0, "resets": 0, "cut": 0, "forgotten": 0, "bytes_up": 0}

    def is_cut(self, now):
        """For the last seconds of each period."""
        period, length = self.cuts_s or (1, 0)
        return (now - self.started) % period >= period - length

    def put(self, packet, side):
        at = time.monotonic()
        if self.is_cut(at):
            self.counts["cut"] += 1
            return
        if self.up_bytes_s and side == 0:
            if self.up_free > at + _QUEUE_S:
                self.counts["lost"] += 1
                return
            at = self.up_free = max(at, self.up_free) + len(packet) / self.up_bytes_s
        heapq.heappush(self.queue, (at + self.delay_s, self.counts["forwarded"], side, packet))
        self.counts["forwarded"] += 1

    def is_known(self, packet, side, flags):
        """Of a connection that has not been idle for too long. Only a client can make a new one."""
        now, ports = time.monotonic(), (packet[0] & 15) * 4 + (0 if side == 1 else 2)
        port = packet[ports:ports + 2]
        if not (side == 1 and flags & _SYN) and now - self.seen.get(port, -self.forgets_s) >= self.forgets_s:
            self.seen.pop(port, None)
            return False
        self.seen[port] = now
        return True

    def receiver(self, packet):
        """The end that it goes to; None: there is none."""
        number = packet[19] - 1 if len(packet) >= 20 and packet[0] >> 4 == 4 else -1
        return number if 0 <= number < len(self.ends) else None

    def take(self, packet, side):
        """A packet that end [side] has sent."""
        flags = tcp_flags(packet)
        to = self.receiver(packet)
        if to is None:
            return
        self.counts["bytes_up"] += len(packet) if side == 1 else 0
        if self.groups[side] != self.groups[to]:
            self.counts["cut"] += 1
        elif self.forgets_s and flags and not self.is_known(packet, side, flags):
            self.counts["forgotten"] += 1
        elif self.draw.random() < self.loss:
            self.counts["lost"] += 1
        elif flags & _ACK and not flags & (_SYN | _FIN | _RST) and self.draw.random() < self.resets:
            self.counts["resets"] += 1
            self.put(make_reset(packet, False), to)
            self.put(make_reset(packet, True), side)
        else:
            self.put(packet, to)

    def read(self, side):
        try:
            while True:
                self.take(os.read(self.ends[side], 65536), side)
        except BlockingIOError:
            pass

    def run(self, until):
        while not until():
            now = time.monotonic()
            while self.queue and self.queue[0][0] <= now:
                _, _, side, packet = heapq.heappop(self.queue)
                try:
                    os.write(self.ends[side], packet)
                except OSError:
                    pass  # its queue is full: one more packet lost
            wait = max(0, self.queue[0][0] - now) if self.queue else 0.5
            for end in select.select(self.ends, [], [], min(wait, 0.5))[0]:
                self.read(self.ends.index(end))


class Wire:
    SERVER, CLIENT = "10.77.0.1", "10.77.0.2"

    def __init__(self, loss=0.0, round_trip_s=0.0, resets=0.0, seed=1, up_bytes_s=None, cuts_s=None, forgets_s=None,
                 ends=2):
        """cuts_s: (period, length). ends: with the addresses 10.77.0.1 and so on."""
        self._options = (loss, round_trip_s / 2, resets, seed, up_bytes_s, cuts_s, forgets_s)
        self.addresses = [f"10.77.0.{1 + i}" for i in range(ends)]
        self.counts = None

    def __enter__(self):
        made = [_end_in_child(address) for address in self.addresses]
        self._ends, self._namespaces = [end for end, _ in made], [namespace for _, namespace in made]
        self._groups = mmap.mmap(-1, len(made))  # shared with the forwarder; those of one number hear each other
        self._report, report = os.pipe()
        parent = os.getpid()
        self._forwarder = os.fork()
        if self._forwarder == 0:
            ended = []
            signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
            forwarder = _Forwarder(self._ends, self._groups, *self._options)
            try:
                forwarder.run(lambda: ended or os.getppid() != parent)
                os.write(report, json.dumps(forwarder.counts).encode())
            finally:
                os._exit(0)
        os.close(report)
        return self

    def __exit__(self, *_):
        os.kill(self._forwarder, signal.SIGTERM)
        with os.fdopen(self._report) as file:
            self.counts = json.loads(file.read() or "null")
        os.waitpid(self._forwarder, 0)
        for file in (*self._ends, *self._namespaces):
            os.close(file)

    def part(self, *ends):
        """They and the others hear each other no more. Of none: all do again."""
        for end in range(len(self._groups)):
            self._groups[end] = end in ends

    def namespace(self, end):
        """A path by which other processes enter it, as long as this one lives."""
        return f"/proc/{os.getpid()}/fd/{self._namespaces[end]}"

    def enter(self, end):
        if _libc.setns(self._namespaces[end], _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def enter_server(self):
        self.enter(0)

    def enter_client(self):
        self.enter(1)
