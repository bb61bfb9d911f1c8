"""The batches of a training, on devices and on the server."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Tuple

import numpy as np

from .data import as_batches
from .errors import Error


class Batches:
    """What a training with these arguments goes through."""

    round: int
    client_index: int
    seed: int
    epochs: int
    steps: int
    batch_size: int
    num_steps = 0  # batches so far; loops without `batches` count theirs
    _trains = True

    def check(self) -> None:
        """Called before each batch."""

    def _arrays(self, arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
        """The arrays of a batch as the model takes them."""
        return arrays

    def generator(self) -> np.random.Generator:
        """Random numbers that depend on the job's seed, the round and the device alone."""
        return np.random.default_rng([self.seed, self.round, self.client_index])

    def batches(self, data: Any, *, shuffle: bool = True) -> Iterator[Tuple[Any, ...]]:
        """The batches of the job's epochs or steps, in an order drawn by `generator`; in an evaluation, of all
        examples once and in their order.

        data: fedge.data.Arrays, a tuple of arrays of one length, or any sequence of examples such as a torch Dataset.
        Each batch is a tuple: of tensors on the model's device for a torch model, of NumPy arrays otherwise. The last
        batch of an epoch may be smaller. Raises TaskCancelled when the task is cancelled.
        """
        take: Callable[[Any], Tuple[Any, ...]]
        num_examples, take = as_batches(data)
        if num_examples == 0:
            raise Error("there are no examples to train on")
        random = self.generator()
        steps = self.steps if self._trains else 0
        num_epochs = self.epochs if steps == 0 else -(-steps * self.batch_size // num_examples) + 1
        end = self.num_steps + steps
        for _ in range(num_epochs if self._trains else 1):
            order = random.permutation(num_examples) if shuffle and self._trains else np.arange(num_examples)
            for begin in range(0, num_examples, self.batch_size):
                if 0 < steps and self.num_steps == end:
                    return
                self.check()
                self.num_steps += 1
                yield self._arrays(take(order[begin:begin + self.batch_size]))
