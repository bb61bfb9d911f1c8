#!/usr/bin/env python3
"""Makes python.safetensors, which tests/edge/data/formats/test_safetensors.c reads.

Run in this folder, with the packages safetensors, numpy and ml_dtypes. The same six numbers in
float32, float64, float16 and bfloat16, a scalar with a name that needs escapes, and metadata, as
the Python package orders and pads them. fedge.safetensors beside it is what fedge writes: the C
test compares its bytes, tests/edge/data/formats/load_safetensors.py loads it in Python.
"""

import ml_dtypes
import numpy
from safetensors.numpy import save_file

values = numpy.arange(-3, 3, dtype=numpy.float32).reshape(2, 3) * numpy.float32(0.625)

save_file(
    {
        "0.weight": values,
        "double": values.astype(numpy.float64),
        "half": values.astype(numpy.float16),
        "brain": values.astype(ml_dtypes.bfloat16),
        'quoted "\u00e4"': numpy.array(7, dtype=numpy.float32),
    },
    "python.safetensors",
    {"format": "pt", "made by": "the safetensors package"},
)
