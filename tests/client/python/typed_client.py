"""A device of the tests with tensors of each type, in NumPy: typed_client.py DIRECTORY STATE [NUMBER OF TENSORS]

It adds numbers to what it may train, and to what it may not. With a number its model has so many tensors of one float.
"""

import sys

import numpy as np

import fedge

directory, state, number = (*sys.argv[1:], "0")[:3]
COUNT = 2**62 + 1
if int(number):
    app = fedge.Client({f"t{i}": np.zeros(1, np.float32) for i in range(int(number))})
else:
    app = fedge.Client({"half": np.zeros(2, np.float16), "brain": np.zeros(2, np.float32), "count": np.zeros((), np.int64),
                        "fixed": np.zeros(3, np.float32), "float": np.zeros(1, np.float32)})


@app.train
def train(model, task):
    if int(number):
        for i in range(int(number)):
            model[f"t{i}"] += i % 3
        return 1, {"loss": 1}
    assert [array.dtype.name for array in model.values()] == ["float16", "float32", "int64", "float32", "float32"], model
    assert model["count"] == COUNT and model["fixed"].tolist() == [1, 2, 3], model
    model["half"] += np.float16(0.1)
    model["brain"] += np.float32(1 / 512)
    model["count"] += 1
    model["fixed"] = np.ones(3)
    model["float"] += 1
    return 1, {"loss": 1}


app.run(directory, state=state, log_json=True)
