"""The file format safetensors: an 8-byte size, a JSON header, and the tensors' values."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from .errors import Error

Path = Union[str, "os.PathLike[str]"]

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}
NAMES = {np.dtype(code).str: name for name, code in TYPES.items()}


def read(path: Path) -> Dict[str, NDArray[Any]]:
    """The tensors by name. BF16 becomes float32. Error: not such a file."""
    return {
        name: (array.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else array
        for name, (kind, array) in read_typed(path).items()
    }


def read_typed(path: Path) -> Dict[str, Tuple[str, NDArray[Any]]]:
    """Type and values of the tensors by name. BF16: its bits, as uint16."""
    with open(path, "rb") as file:
        content = bytearray(file.read())  # so that arrays may be changed
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            kind = entry["dtype"]
            if kind not in TYPES and kind != "BF16":
                raise Error(f"{path}: tensor '{name}' has type {kind}, which is not supported")
            values = np.frombuffer(content[begin:end], TYPES.get(kind, "<u2"))
            tensors[name] = (kind, values.reshape(entry["shape"]))
        return tensors
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Error(f"{path} is not a whole safetensors file ({type(error).__name__}: {error})") from error


def write(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Writes the tensors in this order."""
    header: Dict[str, Any] = {}
    parts = []
    offset = 0
    for name, array in tensors.items():
        values = np.ascontiguousarray(array)
        kind = values.dtype.newbyteorder("<").str if values.dtype.itemsize > 1 else values.dtype.str
        if kind not in NAMES:
            raise Error(f"tensor '{name}' has type {values.dtype}, which safetensors files lack here")
        header[name] = {"dtype": NAMES[kind], "shape": list(np.shape(array)), "data_offsets": [offset, offset + values.nbytes]}
        parts.append(values.astype(kind, copy=False).tobytes())
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
