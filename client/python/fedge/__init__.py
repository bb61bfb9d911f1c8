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

from . import data
from .client import Client
from .errors import ClientExit, Error, TaskCancelled
from .run import Run, load_checkpoint
from .simulation import simulate
from .strategy import Round, Strategy, Tile, evaluate
from .task import State, Task

__all__ = ["Client", "ClientExit", "Error", "Round", "Run", "State", "Strategy", "Task", "TaskCancelled", "Tile", "data",
           "evaluate", "load_checkpoint", "simulate"]
