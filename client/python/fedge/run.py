"""What a run has left: its rounds and its model."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Dict, List, Optional, Union

import numpy as np

from . import safetensors
from .errors import Error
from .safetensors import Path


def load_checkpoint(path: Path) -> Dict[str, Any]:
    """The tensors of a model's file, in its types: torch tensors where torch is imported, NumPy arrays otherwise.

    NumPy has no BF16, which becomes float32 there.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return dict(safetensors.read(path))
    tensors: Dict[str, Any] = {}
    for name, (kind, array) in safetensors.read_typed(path).items():
        is_bf16 = kind == "BF16"
        tensor = torch.from_numpy((array.view(np.int16) if is_bf16 else array).copy())
        tensors[name] = tensor.view(torch.bfloat16) if is_bf16 else tensor
    return tensors


def _find(path: str) -> str:
    """The folder of the run in an aggregator's state directory, or of a simulation."""
    if os.path.isfile(os.path.join(path, "rounds.jsonl")):
        return path
    runs = os.path.join(path, "runs")
    names = os.listdir(runs) if os.path.isdir(runs) else []
    found = sorted(name for name in names if os.path.isdir(os.path.join(runs, name)) and not name.startswith("."))
    if len(found) == 1:
        return os.path.join(runs, found[0])
    if found:
        raise Error(f"{path} has {len(found)} runs; name one of them: {', '.join(os.path.join(runs, name) for name in found)}")
    raise Error(f"{path} has no rounds.jsonl and no runs: give the folder of a run, or an aggregator's --state")


def _table(rows: List[Dict[str, Any]]) -> Any:
    """A pandas DataFrame indexed by round; without pandas the rows."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return rows
    return pandas.DataFrame(rows).set_index("round") if rows else pandas.DataFrame()


def _index_of(name: Union[int, str], registry: Optional[Path]) -> int:
    """The index of a device in the server's registry, by its name or id there."""
    if isinstance(name, int):
        return name
    if registry is None:
        raise Error(f"device '{name}': give its index, or with registry= the server's folder registry, which has the names")
    path = os.fspath(registry)
    if os.path.isdir(path):
        path = os.path.join(path, "registry.json")
    with open(path, encoding="utf-8") as file:
        devices = [device for device in json.load(file)["devices"] if device["role"] == "device"]
    for device in devices:
        if name in (device["name"], device["device_id"]):
            return int(device["index"])
    raise Error(f"{path} has no device '{name}', but {len(devices)} others")


class Run:
    """A run, finished or not, of an aggregator or a simulation.

    path: the run's folder, an aggregator's state directory that has one run, or a simulation's --out. Error: there is
    no run.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = _find(os.fspath(path))

    def records(self) -> List[Dict[str, Any]]:
        """The lines of rounds.jsonl so far, as dicts: trainings and evaluations in their order."""
        path = os.path.join(self.path, "rounds.jsonl")
        if not os.path.exists(path):
            return []  # no phase has ended yet
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def rounds(self, phase: str = "train") -> Any:
        """One row a round, a pandas DataFrame indexed by round; without pandas a list of dicts.

        phase: "train" or "evaluate". Columns: docs/guides/running.md.
        """
        rows = [row for row in self.records() if row.get("phase", "train") == phase]
        return _table([{key: row[key] for key in row if key not in ("devices", "crc32")} for row in rows])

    def device(self, name: Union[int, str], registry: Optional[Path] = None) -> Any:
        """The trainings of one device that counted, one row a round like `rounds`.

        name: its index in the server's registry (task.client_index), or a simulated client's; with `registry`, the
        server's folder of that name, also its name or id there. Columns: examples, loss (the mean while it trained; None:
        not reported), attempt, and in an asynchronous round staleness. Rounds of more than 512 devices are not listed.
        """
        index, rows = _index_of(name, registry), []
        for record in self.records():
            staleness = {client: rounds for client, rounds in record.get("updates", [])}
            for client, examples, loss in record.get("devices", []):
                if client == index:
                    row = {"round": record["round"], "examples": examples, "loss": loss, "attempt": record.get("attempt", 0)}
                    rows.append({**row, "staleness": staleness[client]} if client in staleness else row)
        return _table(rows)

    def state_dict(self, best: bool = False) -> Dict[str, Any]:
        """The final model as load_checkpoint gives it; `best`: that of the job's keep-best."""
        name = "model-best.safetensors" if best else "model.safetensors"
        path = os.path.join(self.path, name)
        if not os.path.exists(path):
            raise Error(f"there is no {path}: the run has not ended" + (", or its job has no keep-best" if best else ""))
        return load_checkpoint(path)
