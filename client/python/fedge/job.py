"""Jobs made of models: python -m fedge init."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Dict, List, Optional

import numpy as np

from . import safetensors
from .client import Client
from .errors import Error
from .models import tensors_of


def import_model(name: str) -> Any:
    """The object MODULE:NAME, of a module in the working directory or an installed one. A function is called."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise Error(f"--model is '{name}'; it must be MODULE:NAME, such as client:model for 'model' in client.py")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # of what the module imports
        raise Error(f"there is no module '{error.name}' for --model {name}: run this in the folder of {module}.py") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    if not hasattr(imported, attribute):
        raise Error(f"the module {module} has no '{attribute}' (--model {name})")
    value = getattr(imported, attribute)
    is_model = hasattr(value, "state_dict") or hasattr(value, "get_params")
    return value() if isinstance(value, type) or (callable(value) and not is_model) else value


def initial_path_of(path: str) -> str:
    return f"{os.path.splitext(path)[0]}.safetensors"


def write_job(model: Any, path: str, *, name: str, rounds: int = 10, clients: int = 2) -> List[str]:
    """Writes a job whose model is `external`, and its initial values beside it. Returns the files' paths.

    model: as Client takes it, or a Client, whose trainable_only counts.
    """
    trainable_only = False
    if isinstance(model, Client):
        model, trainable_only = model._model, model._trainable_only
    tensors: List[Dict[str, Any]] = []
    values = {}
    for tensor, shape, initial in tensors_of(model, trainable_only):
        if not np.issubdtype(initial.dtype, np.floating):
            raise Error(f"tensor '{tensor}' has type {initial.dtype}: models have floats so far")
        tensors.append({"name": tensor, "shape": list(shape)})
        values[tensor] = np.asarray(initial, dtype=np.float32)
    initial_path = initial_path_of(path)
    job = {
        "fedge-job": 1,
        "name": name,
        "seed": 1,
        "model": {"type": "external", "tensors": tensors},
        "initial-model": os.path.basename(initial_path),
        "training": {"local-epochs": 1, "batch-size": 32, "learning-rate": 0.01},
        "rounds": {
            "num-server-rounds": rounds,
            "min-available-nodes": clients,
            "min-train-nodes": clients,
            "round-deadline-s": 600,
        },
        "strategy": {"type": "FedAvg"},
        "update": {"codec": "int8", "deflate": True},
    }
    safetensors.write(initial_path, values)
    with open(path, "w", encoding="utf-8") as file:
        file.write(_dump(job))
    return [path, initial_path]


def _dump(job: Dict[str, Any]) -> str:
    """JSON with one tensor a line."""
    text = json.dumps(job, indent=2)
    compact = ",\n      ".join(json.dumps(tensor) for tensor in job["model"]["tensors"])
    whole = json.dumps(job["model"]["tensors"], indent=2).replace("\n", "\n    ")
    return text.replace(whole, f"[\n      {compact}\n    ]") + "\n"


def main(model: str, output: str, name: Optional[str], rounds: int, clients: int, force: bool) -> None:
    for path in (output, initial_path_of(output)):
        if os.path.exists(path) and not force:
            raise Error(f"{path} exists; give --output FILE, or --force to replace it")
    written = write_job(
        import_model(model), output, name=name or model.partition(":")[0].rpartition(".")[2], rounds=rounds, clients=clients
    )
    for path in written:
        print(f"wrote {path}")
    print(f"next: set learning rate, rounds and clients in {output}, then: fedge-aggregator --job {output} ...")
