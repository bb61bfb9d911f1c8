"""Jobs made of models: python -m fedge init."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from . import safetensors
from ._fedge import ffi, lib
from .client import Client
from .data import Arrays, as_batches
from .errors import Error
from .layers import Examples, Layered, Unknown, layered
from .models import tensors_of
from .task import text


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
        if error.name is None:
            raise
        if not f"{module}.".startswith(f"{error.name}."):
            raise Error(f"{module} imports {error.name}, which {sys.executable} does not have: install it, by pip say") from error
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
    """Where the initial values of a job's model are: beside the job."""
    return f"{os.path.splitext(path)[0]}.safetensors"


def external(model: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The job's `model`, of tensors alone, and their initial values.

    model: as Client takes it, or a Client, whose trainable_only counts.
    """
    trainable_only = False
    if isinstance(model, Client):
        model, trainable_only = model._model, model._trainable_only
    tensors: List[Dict[str, Any]] = []
    values = {}
    for tensor in tensors_of(model, trainable_only):
        entry: Dict[str, Any] = {"name": tensor.name, "shape": list(np.shape(tensor.initial))}
        if tensor.type != "F32":
            entry["dtype"] = tensor.type
        if tensor.frozen and tensor.type != "I64":
            entry["frozen"] = True
        tensors.append(entry)
        values[tensor.name] = tensor.initial
    return {"type": "external", "tensors": tensors}, values


def write_job(
    model: Any, path: str, *, name: str, rounds: int = 10, clients: int = 2, layers: Optional[Layered] = None
) -> List[str]:
    """Writes a job and its initial values beside it. Returns the files' paths. Error: the aggregator would refuse it.

    layers: the model as fedge's layers; without them it is `external`.
    """
    description, values = (layers.model, layers.values) if layers else external(model)
    initial_path = initial_path_of(path)
    job = {
        "fedge-job": 1,
        "name": name,
        "seed": 1,
        "model": description,
        **({"data": {"name": name, **layers.data}} if layers else {}),
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
    content = _dump(job)
    _check(content.encode())
    safetensors.write(initial_path, values)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return [path, initial_path]


def _check(content: bytes) -> None:
    """Error: the aggregator would refuse the job, whose tensors have names it does not take, say."""
    out, err = ffi.new("struct fedge_job **"), ffi.new("fedge_error *")
    if lib.fedge_client_job_parse(content, len(content), out, err):
        raise Error(f"the aggregator would refuse the job: {text(err.message)}")
    lib.fedge_client_job_free(out[0])


def _dump(job: Dict[str, Any]) -> str:
    """JSON with one tensor or layer a line."""
    whole_job = json.dumps(job, indent=2)
    entries = job["model"].get("layers") or job["model"]["tensors"]
    compact = ",\n      ".join(json.dumps(entry) for entry in entries)
    whole = json.dumps(entries, indent=2).replace("\n", "\n    ")
    return whole_job.replace(whole, f"[\n      {compact}\n    ]") + "\n"


class Options(NamedTuple):
    """Of python -m fedge init."""

    name: Optional[str] = None  # default: the module's
    rounds: int = 10
    clients: int = 2
    form: Optional[str] = None  # "layers" or "external"; None: layers if fedge has them
    input_shape: Optional[str] = None
    input_type: Optional[str] = None
    loss: str = "CrossEntropyLoss"


def examples_of(data: Any) -> Optional[Examples]:
    """Of a device's data set; None if it has none."""
    if data is None:
        return None
    num_examples, take = as_batches(data)
    x = np.asarray(take(np.zeros(1, dtype=np.int64))[0]) if num_examples else np.zeros(())
    is_bytes = isinstance(data, Arrays) and data.x.dtype == np.uint8
    return Examples(tuple(x.shape[1:]), is_bytes) if x.ndim > 1 else None


def _examples(options: Options, data: Any) -> Optional[Examples]:
    if options.input_shape is None:
        examples = examples_of(data)
    elif re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", options.input_shape):
        examples = Examples(tuple(int(number) for number in options.input_shape.split(",")), False)
    else:
        raise Error(f"--input-shape is '{options.input_shape}'; it must be numbers above 0, such as 1,28,28")
    if examples is None or options.input_type is None:
        return examples
    return examples._replace(bytes=options.input_type == "u8")


def _layers(model: Any, options: Options, data: Any) -> Optional[Layered]:
    """None: the job's model is external, for which the user has asked, or for a reason that is printed."""
    torch = sys.modules.get("torch")
    if isinstance(model, Client):
        if model._trainable_only and options.form == "layers":
            raise Error("clients in C have no base beside the trained parameters: leave out --layers, or trainable_only")
        if model._trainable_only:
            return None
        model = model._model
    if options.form == "external" or (options.form is None and (torch is None or not isinstance(model, torch.nn.Module))):
        return None
    try:
        return layered(model, _examples(options, data), options.loss)
    except Unknown as error:
        if options.form == "layers":
            raise
        print(f"the model is external, for clients in Python alone: {error}")
        return None


def main(model: str, output: str, force: bool, options: Options) -> None:
    for path in (output, initial_path_of(output)):
        if os.path.exists(path) and not force:
            raise Error(f"{path} exists; give --output FILE, or --force to replace it")
    value = import_model(model)
    module = model.partition(":")[0]
    layers = _layers(value, options, getattr(sys.modules[module], "data", None))
    name = options.name or module.rpartition(".")[2]
    written = write_job(value, output, name=name, rounds=options.rounds, clients=options.clients, layers=layers)
    for path in written:
        print(f"wrote {path}")
    if layers:
        print(f"the model has {len(layers.model['layers'])} layers of fedge: clients in C and in Python train it")
    print(f"next: set learning rate, rounds and clients in {output}, then: fedge-aggregator --job {output} ...")
