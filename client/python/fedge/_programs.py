"""The commands that the wheel brings: fedge's programs in the package's folder bin."""

import os
import sys
from typing import NoReturn


def path_of(name: str) -> str:
    """Where the wheel has a program."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)


def _run(name: str) -> NoReturn:
    path = path_of(name)
    if not os.path.exists(path):
        sys.exit(f"{name}: {path} is missing; reinstall the package fedge")
    os.environ.setdefault("FEDGE_PYTHON", sys.executable)  # for --strategy-plugin FILE.py
    os.execv(path, [name, *sys.argv[1:]])


def aggregator() -> NoReturn:
    _run("fedge-aggregator")


def client() -> NoReturn:
    _run("fedge-client")


def keys() -> NoReturn:
    _run("fedge-keys")


def simulate() -> NoReturn:
    _run("fedge-simulate")
