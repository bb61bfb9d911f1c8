#!/usr/bin/env python3
"""Loads tests/golden/safetensors/fedge.safetensors, which fedge wrote, with the Python package.

Ends with 77 (skipped) where the packages safetensors and numpy are not installed.
"""

import os
import sys

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

path = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests/golden/safetensors/fedge.safetensors")
tensors = load_file(path)
expected = {
    "0.weight": numpy.arange(6, dtype=numpy.float32).reshape(2, 3) - numpy.float32(2.5),
    "0.bias": numpy.array([0.1, -0.0], dtype=numpy.float32),
    'odd "\\\n': numpy.array(3e38, dtype=numpy.float32),
}
assert tensors.keys() == expected.keys(), tensors.keys()
for name, values in expected.items():
    assert tensors[name].dtype == values.dtype, name
    assert tensors[name].shape == values.shape, name
    assert tensors[name].tobytes() == values.tobytes(), name
with safe_open(path, framework="numpy") as file:
    assert list(file.keys()), "no names"
print("loaded", len(tensors), "tensors")
