"""Strategies and evaluations on the server: fedge-aggregator --strategy-plugin strategy.py

    import fedge, numpy as np

    strategy = fedge.Strategy("Median")

    @strategy.combine
    def median(tile):
        return np.median(tile.updates, axis=0)

A job names it: "strategy": {"type": "Median"}. The server runs the file in a process of its own, which it may start
again at any time: what has to last between rounds belongs in round.vectors, which the server's checkpoints store. A
result must depend on the arguments alone, not on clocks or random numbers.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .batches import Batches
from .errors import Error

Tensors = Sequence[Tuple[str, Sequence[int], str]]  # name, shape and type
Argument = Sequence[float]


class Round:
    """A round that closes."""

    number: int  # from 1
    num_updates: int
    total_weight: int  # Σ w_i
    server_learning_rate: float
    arguments: Dict[str, float]  # the job's, or their defaults
    model: NDArray[np.float32]  # (values,): the trained parameters, tensor after tensor; the step changes it in place
    mean: NDArray[np.float64]  # (values,): Σ w_i Δ_i / Σ w_i, or what combine returned; read-only
    vectors: List[NDArray[np.float32]]  # (values,) each: 0 at first, stored in checkpoints; the step changes them
    num_examples: NDArray[np.uint64]  # (num_updates,)
    clients: NDArray[np.uint32]  # (num_updates,): the clients' indices

    def __init__(self, tensors: Tensors, **fields: Any) -> None:
        self._tensors = tensors
        self.__dict__.update(fields)

    def move(self, change: NDArray[Any]) -> None:
        """model += server_learning_rate · change, with the bits of the built-in strategies. change: (values,)."""
        self.model += (self.server_learning_rate * np.asarray(change, np.float64)).astype(np.float32)

    def tensors(self, vector: NDArray[Any]) -> Dict[str, NDArray[Any]]:
        """The tensors of a vector such as model, by name, as views."""
        return tensors_of(vector, self._tensors)


class Tile:
    """The updates of a round, for a range of the coordinates of a tensor. Ranges differ between machines, so a
    coordinate's result must not depend on others."""

    round: int  # from 1
    arguments: Dict[str, float]
    integers: NDArray[np.int32]  # (num_updates, count): the updates in fixed point
    unit: float  # a power of 2: an update is integers · unit
    num_examples: NDArray[np.uint64]  # (num_updates,)
    clients: NDArray[np.uint32]  # (num_updates,)
    tensor: str  # its name
    first: int  # the first coordinate, counted as in Round.model

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    @property
    def updates(self) -> NDArray[np.float64]:
        """(num_updates, count): each client's changes, exact."""
        return np.multiply(self.integers, self.unit, dtype=np.float64)


class Update:
    """An update that has arrived."""

    round: int  # from 1
    client: int  # the client's index
    num_examples: int
    max_weight: int  # the job's
    arguments: Dict[str, float]

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class RootTask(Batches):
    """A training on the server, with the job's arguments for devices: round, learning_rate, epochs, steps (where not 0),
    batch_size, seed, momentum, weight_decay, config (a dict). `batches` and `generator` are those of fedge.Task."""

    learning_rate: float
    momentum: float
    weight_decay: float
    config: Dict[str, Any]

    def __init__(self, **fields: Any) -> None:
        self.client_index = 2**32 - 1  # no device has it
        self.__dict__.update(fields)


StepFunction = TypeVar("StepFunction", bound=Callable[[Round], Any])
CombineFunction = TypeVar("CombineFunction", bound=Callable[[Tile], Any])
WeightFunction = TypeVar("WeightFunction", bound=Callable[[Update], float])
RootFunction = TypeVar("RootFunction", bound=Callable[[Dict[str, NDArray[np.float32]], RootTask], Any])
EvaluateFunction = TypeVar("EvaluateFunction", bound=Callable[[Dict[str, NDArray[np.float32]], int], Mapping[str, float]])


class Strategy:
    """A strategy of the server; without functions it is FedAvg.

    name: in the job, at most 31 bytes. arguments: by name (min, max, default), or (min, max) if the job must give it.
    vectors: number of Round.vectors, at most 16. equal_weights: every update has weight 1, not its examples.
    """

    def __init__(self, name: str, arguments: Optional[Mapping[str, Argument]] = None, vectors: int = 0,
                 equal_weights: bool = False) -> None:
        self.name = name
        self.arguments = {key: tuple(float(value) for value in range_) for key, range_ in (arguments or {}).items()}
        for key, range_ in self.arguments.items():
            if len(range_) not in (2, 3):
                raise Error(f"argument '{key}' of {name} is {range_}: give (min, max) or (min, max, default)")
        self.vectors = int(vectors)
        self.equal_weights = bool(equal_weights)
        self.step_function: Callable[[Round], Any] = lambda round: round.move(round.mean)
        self.combine_function: Optional[Callable[[Tile], Any]] = None
        self.weight_function: Optional[Callable[[Update], float]] = None
        if registered.strategy is not None:
            raise Error(f"a file has one strategy, and there are {registered.strategy.name} and {name}")
        registered.strategy = self

    def step(self, function: StepFunction) -> StepFunction:
        """Decorator: function(round) changes round.model in place."""
        self.step_function = function
        return function

    def weight(self, function: WeightFunction) -> WeightFunction:
        """Decorator: function(update) returns the update's weight, cut to a whole number from 1 to update.max_weight; without
        it that is the number of examples. It is called as updates arrive, and perhaps again after a crash."""
        if self.equal_weights:
            raise Error(f"{self.name} has equal_weights and a function for weights: leave one of them out")
        self.weight_function = function
        return function

    def combine(self, function: CombineFunction) -> CombineFunction:
        """Decorator: function(tile) returns (count,) values: what the step sees as round.mean. The server then keeps
        a round's updates in at most --robust-memory bytes. A model with BatchNorm is refused."""
        self.combine_function = function
        return function


def evaluate(function: EvaluateFunction) -> EvaluateFunction:
    """Decorator: function(model, round) returns numbers by name for rounds.jsonl's "metrics".

    model: arrays by name, read-only. Names have lower case, digits and "_". Unless the job has a test-set, "accuracy"
    and "loss" are the round's, for keep-best and early-stopping.
    """
    registered.evaluation = function
    return function


def root_train(function: RootFunction) -> RootFunction:
    """Decorator: function(model, task) trains the model on the server's own examples, in place or with a dict that it
    returns, as a device would. For FLTrust without a "root-set", also with external models.

    model: arrays by name, a copy of the round's model. task: RootTask.
    """
    registered.root_training = function
    return function


class Registered:
    """What the server's file has."""

    strategy: Optional[Strategy] = None
    root_training: Optional[Callable[[Dict[str, NDArray[np.float32]], RootTask], Any]] = None
    evaluation: Optional[Callable[[Dict[str, NDArray[np.float32]], int], Mapping[str, float]]] = None


registered = Registered()


def tensors_of(vector: NDArray[Any], tensors: Tensors) -> Dict[str, NDArray[Any]]:
    """The tensors that lie in a vector one after another, as views."""
    found = {}
    at = 0
    for name, shape, kind in tensors:
        size = int(np.prod(shape, dtype=np.int64)) * (2 if kind == "I64" else 1)
        values = vector[at : at + size]
        found[name] = (values.view(np.int64) if kind == "I64" else values).reshape(shape)
        at += size
    return found
