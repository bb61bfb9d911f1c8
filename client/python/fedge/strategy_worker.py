"""The process in which fedge-aggregator and fedge-simulate run a strategy in Python; they start it themselves.

Standard input is a socket. A request is a line of JSON, and so is its answer; a descriptor of shared memory comes with
the request "map". aggregator/rounds/python_process.h and python_plugin.c are the other side.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import runpy
import select
import socket
import sys
import threading
import traceback
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
from numpy.typing import NDArray

from . import strategy as api
from .errors import Error

Request = Dict[str, Any]


class Memory:
    """Memory that the server shares, and what lies in it."""

    def __init__(self, descriptor: int, layout: Request) -> None:
        self.layout = layout
        self.map = mmap.mmap(descriptor, 0)
        os.close(descriptor)

    def array(self, key: str, kind: Any, *shape: int, writable: bool = False) -> NDArray[Any]:
        count = math.prod(shape)
        made: NDArray[Any] = np.frombuffer(self.map, kind, count, self.layout[key]).reshape(shape)
        made.flags.writeable = writable
        return made


class Worker:
    def __init__(self, script: str) -> None:
        self.script = script
        self.memories: Dict[int, Memory] = {}
        with open(script, "rb") as file:
            self.sha256 = hashlib.sha256(file.read()).hexdigest()

    def load(self) -> None:
        sys.path.insert(0, os.path.dirname(os.path.abspath(self.script)))
        runpy.run_path(self.script, run_name="__fedge__")
        found = api.registered
        if found.strategy is None and found.evaluation is None and found.root_training is None:
            raise Error("it has neither a fedge.Strategy nor a function with @fedge.evaluate or @fedge.root_train")

    def answer(self, request: Request, descriptors: List[int]) -> Request:
        do: Callable[[Request], Request] = {
            "describe": self.describe, "unmap": self.unmap, "step": self.step, "combine": self.combine,
            "weigh": self.weigh, "root-train": self.root_train, "evaluate": self.evaluate}.get(request["do"], self.unknown)
        if request["do"] == "map":
            self.memories[request["memory"]] = Memory(descriptors[0], request["layout"])
            return {}
        return do(request)

    def unknown(self, request: Request) -> Request:
        raise Error(f"the server asks for '{request['do']}': install the package fedge of its release")

    def describe(self, _: Request) -> Request:
        found = api.registered.strategy
        about: Request = {"sha256": self.sha256, "evaluates": api.registered.evaluation is not None,
                          "root-trains": api.registered.root_training is not None}
        if found is not None:
            about["strategy"] = {
                "name": found.name, "vectors": found.vectors, "equal-weights": found.equal_weights,
                "combines": found.combine_function is not None, "weighs": found.weight_function is not None,
                "arguments": [dict(zip(("name", "min", "max", "default"), (name, *range_)))
                              for name, range_ in found.arguments.items()]}
        return about

    def unmap(self, request: Request) -> Request:
        self.memories.pop(request["memory"], None)
        return {}

    def common(self, request: Request) -> Tuple[api.Strategy, Memory, Request]:
        found = api.registered.strategy
        assert found is not None
        memory = self.memories[request["memory"]]
        count = request["updates"]
        return found, memory, {
            "arguments": dict(zip(found.arguments, request["arguments"])),
            "num_examples": memory.array("examples-at", np.uint64, count),
            "clients": memory.array("clients-at", np.uint32, count)}

    def step(self, request: Request) -> Request:
        found, memory, fields = self.common(request)
        values, vectors = memory.layout["values"], memory.layout["vectors"]
        model = memory.array("model-at", np.float32, values, writable=True)
        views = list(memory.array("vectors-at", np.float32, vectors, values, writable=True))
        closing = api.Round(
            memory.layout["tensors"], number=request["round"], num_updates=request["updates"],
            total_weight=request["weight"], server_learning_rate=request["rate"], model=model,
            mean=memory.array("mean-at", np.float64, values), vectors=list(views), **fields)
        found.step_function(closing)
        for view, given in zip([model, *views], [closing.model, *closing.vectors]):
            if given is not view:
                view[:] = given  # the step assigned an array of its own
        return {}

    def combine(self, request: Request) -> Request:
        found, memory, fields = self.common(request)
        assert found.combine_function is not None
        count = request["count"]
        combined = np.asarray(found.combine_function(api.Tile(
            round=request["round"], integers=memory.array("rows-at", np.int32, request["updates"], count),
            unit=request["unit"], tensor=memory.layout["tensors"][request["tensor"]][0], first=request["first"],
            **fields)), np.float64)
        if combined.shape != (count,):
            raise Error(f"combine returned an array of shape {combined.shape}, and tile.updates has {count} columns")
        memory.array("combined-at", np.float64, count, writable=True)[:] = combined
        return {}

    def weigh(self, request: Request) -> Request:
        found = api.registered.strategy
        assert found is not None and found.weight_function is not None
        weight = float(found.weight_function(api.Update(
            round=request["round"], client=request["client"], num_examples=request["examples"], max_weight=request["max"],
            arguments=dict(zip(found.arguments, request["arguments"])))))
        if not math.isfinite(weight):
            raise Error(f"the weight of client {request['client']}'s update is {weight}")
        return {"weight": weight}

    def root_train(self, request: Request) -> Request:
        assert api.registered.root_training is not None
        memory = self.memories[request["memory"]]
        values = memory.array("model-at", np.float32, memory.layout["values"], writable=True)
        views = api.tensors_of(values, memory.layout["tensors"])
        model = dict(views)
        fields = {key: value for key, value in request.items() if key not in ("do", "memory")}
        returned = api.registered.root_training(model, api.RootTask(**fields))
        trained = returned if hasattr(returned, "items") else model
        for name, view in views.items():
            array = np.asarray(trained[name])
            if array.shape != view.shape:
                raise Error(f"the training has changed the shape of '{name}' from {list(view.shape)} to {list(array.shape)}")
            if array is not view:
                view[...] = array
        return {}

    def evaluate(self, request: Request) -> Request:
        assert api.registered.evaluation is not None
        memory = self.memories[request["memory"]]
        model = api.tensors_of(memory.array("model-at", np.float32, memory.layout["values"]), memory.layout["tensors"])
        metrics = api.registered.evaluation(model, request["round"])
        if not hasattr(metrics, "items"):
            raise Error(f"the evaluation returned {type(metrics).__name__}: return a dict of numbers by name")
        numbers = {str(name): float(value) for name, value in metrics.items()}
        return {"metrics": {name: value if math.isfinite(value) else None for name, value in numbers.items()}}


def error_of(error: BaseException, script: str) -> Request:
    """Prints the traceback; the server's message is its last line and where in the script it arose."""
    traceback.print_exception(type(error), error, error.__traceback__)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if os.path.basename(frame.filename) == os.path.basename(script)]
    if isinstance(error, SyntaxError):
        lines = []  # its text names the line
    where = f" (line {lines[-1]})" if lines else ""
    return {"error": f"{type(error).__name__}: {error}{where}"}


def end_with(connection: socket.socket) -> None:
    """Ends this process with the server, also while a step runs."""
    poll = select.poll()
    poll.register(connection, 0)
    while not any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll()):
        pass
    os._exit(0)


def serve(connection: socket.socket, script: str) -> None:
    failed: Request = {}
    try:
        worker = Worker(script)
        worker.load()
    except (Exception, SystemExit) as error:
        failed = error_of(error, script)
    received = b""
    descriptors: List[int] = []
    while True:
        part, new, _, _ = socket.recv_fds(connection, 1 << 16, 1)
        if not part:
            return
        received += part
        descriptors += new
        if not received.endswith(b"\n"):
            continue
        try:
            answer = failed or worker.answer(json.loads(received), descriptors)
        except (Exception, SystemExit) as error:
            answer = error_of(error, script)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(json.dumps(answer).encode() + b"\n")
        received, descriptors = b"", []


def main() -> None:
    connection = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, 1 << 16)  # what the server has open
    threading.Thread(target=end_with, args=(connection,), daemon=True).start()
    serve(connection, sys.argv[1])


if __name__ == "__main__":
    main()
