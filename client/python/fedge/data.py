"""Data sets of a device."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Mapping
from typing import Any, Callable, List, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from .errors import Error

Take = Callable[[Any], Tuple[Any, ...]]

IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


class Arrays:
    """Examples x with labels y, both with one row an example.

    Bytes (uint8) in x are made floats from 0 to 1 when they are taken, so that the data set stays small in memory.
    """

    def __init__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        x, y = np.asarray(x), np.asarray(y)
        if x.ndim == 0 or y.ndim == 0:
            raise Error("examples and labels are arrays with one row an example")
        if len(x) != len(y):
            raise Error(f"there are {len(x)} examples and {len(y)} labels")
        self.x = x
        self.y = y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> Tuple[Any, Any]:
        x = self.x[index]
        if self.x.dtype == np.uint8:
            x = np.asarray(x, dtype=np.float32) / np.float32(255)
        return x, self.y[index]

    def part(self, index: int, num_parts: int) -> "Arrays":
        """Part `index`, from 0, of `num_parts`: every num_parts-th example. For demonstrations on one machine."""
        if not 0 <= index < num_parts:
            raise Error(f"part {index} of {num_parts}: parts are numbered from 0 to {num_parts - 1}")
        return Arrays(self.x[index::num_parts], self.y[index::num_parts])


def read_idx(path: Union[str, "os.PathLike[str]"]) -> NDArray[Any]:
    """The array in a file of MNIST's format (IDX), which may be compressed by gzip."""
    with open(path, "rb") as file:
        content = file.read()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise Error(f"{path} is not a whole gzip file: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise Error(f"{path} is not an IDX file: it should begin with two zero bytes and a known type")
    rank = content[3]
    offset = 4 + 4 * rank
    shape = tuple(int(n) for n in np.frombuffer(content[4:offset], ">u4"))
    values = np.frombuffer(content, IDX_TYPES[content[2]], offset=min(offset, len(content)))
    if len(shape) != rank or values.size != np.prod(shape, dtype=np.int64):
        raise Error(f"{path} has {values.size} values, its header says {list(shape)}")
    return values.reshape(shape).astype(values.dtype.newbyteorder("="))


def idx(images: Union[str, "os.PathLike[str]"], labels: Union[str, "os.PathLike[str]"]) -> Arrays:
    """The data set of two IDX files, such as Fashion-MNIST's. Images [N, H, W] become [N, 1, H, W], labels int64."""
    x = read_idx(images)
    return Arrays(x[:, None] if x.ndim == 3 else x, read_idx(labels).astype(np.int64))


def _stack(examples: Sequence[Any]) -> Any:
    first = examples[0]
    if hasattr(first, "detach"):
        return sys.modules["torch"].stack(list(examples))
    return np.stack([np.asarray(example) for example in examples])


def as_batches(data: Any) -> Tuple[int, Take]:
    """Number of examples, and a function that makes the batch of an array of indices. Error: data has neither."""
    if isinstance(data, Arrays):
        return len(data), data.__getitem__
    if isinstance(data, tuple):
        if len({len(array) for array in data}) != 1:
            raise Error(f"a tuple of data has arrays of one length, not {[len(array) for array in data]}")
        return len(data[0]), lambda indices: tuple(array[indices] for array in data)

    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        loader = ", without its DataLoader: loader.dataset" if hasattr(data, "dataset") else ""
        raise Error("data is a fedge.data.Arrays, a tuple of arrays or a sequence of examples such as a torch Dataset, "
                    f"not {type(data).__name__}{loader}")

    def take(indices: Any) -> Tuple[Any, ...]:
        examples: List[Any] = [data[int(index)] for index in indices]
        if isinstance(examples[0], Mapping):
            raise Error(f"an example is an array or a tuple of arrays, not a {type(examples[0]).__name__}: give "
                        "[(example[...], example[...]) for example in data]")
        if isinstance(examples[0], (tuple, list)):
            return tuple(_stack(field) for field in zip(*examples))
        return (_stack(examples),)

    return len(data), take
