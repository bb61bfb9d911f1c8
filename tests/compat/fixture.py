"""What is kept of a release: a folder RELEASE/ with common.tar.xz (identities, data, the device's configuration) and
one SCENARIO.tar.xz for each scenario:

    job.json           the job
    state/             the server's, as it was killed before the first event
    clients/I/         device I's, likewise; not there: it starts with nothing
    transcript         what then went over all connections after TLS, see Event: for each a line of JSON, and its bytes
    expected.json      "hashes": of the models that the run then makes, round by round
    files/             in place of files of common.tar.xz

The archives are made by record.py, and read by test_compat.py."""

import io
import json
import lzma
import os
import shutil
import tarfile
from dataclasses import dataclass

from stream import toggle_mask

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICES = 3
EXAMPLES = 90
OPEN, CLIENT, SERVER, CUT, END = "open", "client", "server", "cut", "end"


@dataclass
class Event:
    """OPEN: device [device] connects. CLIENT, SERVER: it, or the server, sends [raw]: HTTP's head or one message of
    fedge's. CUT: the connection breaks. END: both have closed it."""

    what: str
    connection: int
    device: int = None
    raw: bytes = b""

    @property
    def is_head(self):
        return self.raw.startswith((b"GET ", b"HTTP/"))


def _with_mask(event):
    """What a client sends is kept without its mask, since random bytes do not shrink; and back."""
    return toggle_mask(event.raw) if event.what == CLIENT and not event.is_head else event.raw


def write_events(path, events):
    with open(path, "wb") as file:
        for event in events:
            fields = {"what": event.what, "connection": event.connection, "size": len(event.raw)}
            if event.device is not None:
                fields["device"] = event.device
            file.write(json.dumps(fields).encode() + b"\n" + _with_mask(event) + b"\n")


def read_events(path):
    with open(path, "rb") as file:
        while line := file.readline():
            fields = json.loads(line)
            event = Event(raw=file.read(fields.pop("size")), **fields)
            file.read(1)
            event.raw = _with_mask(event)
            yield event


def pack(folder, path):
    """An archive that depends on the files' names, modes and bytes alone."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for place, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(folders + files):
                full = os.path.join(place, name)
                info = archive.gettarinfo(full, os.path.relpath(full, folder))
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                with open(full, "rb") if info.isreg() else io.BytesIO() as file:
                    archive.addfile(info, file)
    with open(path, "wb") as file:
        file.write(lzma.compress(data.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(path, folder):
    """What belongs to root there belongs to the caller."""
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(path, "r:xz") as archive:
        for member in archive:
            target = os.path.join(folder, member.name)
            if member.isdir():
                os.makedirs(target, exist_ok=True)
            else:
                with archive.extractfile(member) as source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out)
            os.chmod(target, member.mode)


def releases():
    return sorted(name for name in os.listdir(HERE) if os.path.isfile(os.path.join(HERE, name, "common.tar.xz")))


def scenarios(release):
    return sorted(name[:-len(".tar.xz")] for name in os.listdir(os.path.join(HERE, release))
                  if name != "common.tar.xz")


def archive_path(release, name):
    """[release] may be a folder elsewhere, too."""
    return os.path.join(HERE, release, name + ".tar.xz")


class Scenario:
    def __init__(self, release, name, folder):
        """Unpacked into [folder]."""
        self.release, self.name, self.folder = release, name, folder
        unpack(archive_path(release, name), folder)
        with open(self.path("expected.json"), encoding="utf-8") as file:
            self.expected = json.load(file)
        self.events = list(read_events(self.path("transcript")))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def devices(self):
        return sorted({event.device for event in self.events if event.what == OPEN})

    def of_device(self, device):
        """Its events, connection by connection."""
        mine = [event.connection for event in self.events if event.what == OPEN and event.device == device]
        return [[event for event in self.events if event.connection == one] for one in mine]
