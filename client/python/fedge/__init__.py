"""fedge: federated learning on edge devices, with trainers in Python.

    app = fedge.Client(model)

    @app.train
    def train(model, task):
        for x, y in task.batches(data):
            ...
        return len(data), {"loss": loss}

    app.run("/etc/fedge")

`python -m fedge init` makes the job of a model, and `fedge.simulate` runs it with virtual clients.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import data
from .errors import ClientExit, Error, TaskCancelled
from .run import Run, load_checkpoint
from .strategy import RootTask, Round, Strategy, Tile, Update, evaluate, root_train

if TYPE_CHECKING:
    from .client import Client
    from .simulation import simulate
    from .task import State, Task

__all__ = ["Client", "ClientExit", "Error", "RootTask", "Round", "Run", "State", "Strategy", "Task", "TaskCancelled", "Tile", "Update",
           "data", "evaluate", "load_checkpoint", "root_train", "simulate"]

_LATER = {"Client": ".client", "State": ".task", "Task": ".task", "simulate": ".simulation"}


def __getattr__(name: str) -> Any:
    """Loads what needs the C client when it is first used: a server's strategies do without it."""
    if name == "__version__":
        from ._fedge import ffi, lib
        return ffi.string(lib.fedge_python_version()).decode()
    if name not in _LATER:
        raise AttributeError(f"module 'fedge' has no attribute '{name}'")
    found = globals()[name] = getattr(importlib.import_module(_LATER[name], __name__), name)
    return found
