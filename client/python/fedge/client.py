"""A device that takes part in a job with a trainer written in Python."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar, Union, overload

import numpy as np

from ._fedge import ffi, lib
from .errors import ClientExit, Error, TaskCancelled
from .models import Adapter, Shapes, Types, Views, adapter_of
from .task import Demands, Task, text

Path = Union[str, "os.PathLike[str]"]
Report = Union[int, Tuple[int, Mapping[str, Any]]]
Trainer = Callable[[Any, Task], Report]
TrainerT = TypeVar("TrainerT", bound=Trainer)
LossT = TypeVar("LossT", bound=Callable[[Any, Task], float])

SIMULATOR = "FEDGE_SIMULATOR"  # environment variable: the channel to fedge-simulate
LOG_LEVELS = ("error", "warn", "info", "debug")

_making = threading.Lock()  # clients are made and freed one at a time
_running: List["_Run"] = []  # under _making


def _function(decorator: str, function: Any) -> Any:
    """What a decorator is given. Error: no function."""
    if not callable(function):
        raise Error(f"@app.{decorator} stands before a function {decorator}(model, task), not before {type(function).__name__}")
    return function


def _fail(err: Any, status: int, message: str) -> int:
    content = message.encode(errors="backslashreplace")[: lib.FEDGE_ERROR_MESSAGE_SIZE - 1].decode(errors="ignore").encode() + b"\0"
    if err != ffi.NULL:
        err.status = status
        ffi.memmove(err.message, content, len(content))
    return status


def _shapes(schema: Any) -> Shapes:
    shapes: Shapes = {}
    for i in range(schema.num_tensors):
        tensor = schema.tensors[i]
        shapes[text(tensor.name)] = tuple(tensor.shape[k] for k in range(tensor.rank))
    return shapes


TYPES = {lib.FEDGE_F32: "F32", lib.FEDGE_F16: "F16", lib.FEDGE_BF16: "BF16", lib.FEDGE_I64: "I64"}
NUMPY_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64}  # BF16: the bits


def _types(schema: Any) -> Types:
    return {text(schema.tensors[i].name): TYPES[schema.tensors[i].dtype] for i in range(schema.num_tensors)}


def _typed_views(task: Any) -> Views:
    """Of the task's tensors, each in its own type."""
    views: Views = {}
    for i in range(task.plan.schema.num_tensors):
        spec = task.tensors[i].spec
        dtype = np.dtype(NUMPY_TYPES[TYPES[spec.dtype]])
        block = np.frombuffer(ffi.buffer(task.tensors[i].data, spec.count * dtype.itemsize), dtype=dtype)
        views[text(spec.name)] = block.reshape(tuple(spec.shape[k] for k in range(spec.rank)))
    return views


def _views(schema: Any, values: Any, num_values: int) -> Views:
    """Of the tensors of floats within the first `num_values` values."""
    block = np.frombuffer(ffi.buffer(values, num_values * 4), dtype=np.float32)
    views: Views = {}
    for i in range(schema.num_tensors):
        tensor = schema.tensors[i]
        if tensor.offset + tensor.count > num_values:
            break
        if tensor.dtype == lib.FEDGE_I64:
            continue
        shape = tuple(tensor.shape[k] for k in range(tensor.rank))
        views[text(tensor.name)] = block[tensor.offset : tensor.offset + tensor.count].reshape(shape)
    return views


class Client:
    """A device with a model and functions of its own that train and evaluate it.

    model: a torch.nn.Module, a dict of NumPy arrays, or a linear model of scikit-learn. Names and shapes of its tensors
    must be those of the job (python -m fedge init makes a job of a model). trainable_only: the job's model has only the
    torch module's parameters with requires_grad; the others, and buffers, stay on the device, as a pretrained base does.
    """

    def __init__(self, model: Any, *, trainable_only: bool = False) -> None:
        self._model = model
        self._trainable_only = trainable_only
        self._adapter: Adapter = adapter_of(model, trainable_only)
        self._train: Optional[Trainer] = None
        self._evaluate: Optional[Trainer] = None
        self._loss: Optional[Callable[[Any, Task], float]] = None
        self._shows_errors = False
        self._client: Any = None  # of the run under way
        self._tracebacks: Optional[Callable[[str], None]] = None  # takes those of a simulation; None: stderr does

    @overload
    def train(self, function: TrainerT) -> TrainerT: ...

    @overload
    def train(self) -> Callable[[TrainerT], TrainerT]: ...

    def train(self, function: Any = None) -> Any:
        """Decorator of the trainer: train(model, task) -> number of examples, or (number of examples, metrics).

        The model has the weights of the round; the trainer changes them in place. The number of examples is the weight
        of this device in the average. Metrics: finite numbers by name, at most 48; "loss" and "accuracy" are means over
        the examples. An exception declines this task: the server learns its type, and its text where the client file
        has "show-errors"; the traceback goes to stderr. Called on a thread of its own, one task at a time.
        """
        if function is None:
            return self.train  # @app.train()
        self._train = _function("train", function)
        return self._train

    @overload
    def evaluate(self, function: TrainerT) -> TrainerT: ...

    @overload
    def evaluate(self) -> Callable[[TrainerT], TrainerT]: ...

    def evaluate(self, function: Any = None) -> Any:
        """Decorator of the evaluation on this device's held-out examples: evaluate(model, task) returns as train does.

        Its metrics have "loss" and "accuracy". The model's weights must stay as they are.
        """
        if function is None:
            return self.evaluate
        self._evaluate = _function("evaluate", function)
        return self._evaluate

    @overload
    def loss(self, function: LossT) -> LossT: ...

    @overload
    def loss(self) -> Callable[[LossT], LossT]: ...

    def loss(self, function: Any = None) -> Any:
        """Decorator of the mean loss on this device's training examples: loss(model, task) -> float.

        QFedAvg weighs devices by it, and IFCA trains the model that has the least. The weights must stay as they are.
        """
        if function is None:
            return self.loss
        self._loss = _function("loss", function)
        return self._loss

    def run(
        self,
        directory: Optional[Path] = None,
        *,
        server: Optional[str] = None,
        config: Optional[Path] = None,
        identity: Optional[Path] = None,
        trust: Optional[Path] = None,
        state: Optional[Path] = "/var/lib/fedge",
        log_level: str = "info",
        log_json: bool = False,
    ) -> None:
        """Takes part until the run is complete, the server refuses for good, or SIGINT or SIGTERM.

        directory: has client.json, identity/ and trust/, unless `config`, `identity` and `trust` name others. server:
        wss://HOST[:PORT], or several with commas between; by default the client file's "servers". state: a directory
        that makes the device resume after a crash; None: in memory. Call it on the main thread, which then handles the
        signals; elsewhere `stop` ends it. A process may have several clients, each with its own model and state. A trainer that
        does not end within half a second of a signal is given up: then the process exits. Afterwards the model's
        weights are zeros; fedge.Run has the result.

        In a process that fedge-simulate --trainer has started, it serves the simulation instead, and needs none of these.

        Raises Error if there is no trainer, or another client of this process has the same model; ClientExit, with the exit code of fedge-client, unless that is 0; a program that lets it pass ends with
        this code.
        """
        if self._train is None:
            raise Error("the client has no trainer: put @app.train before a function train(model, task)")
        if os.environ.get(SIMULATOR):
            self._serve()
            return
        if log_level not in LOG_LEVELS:
            raise Error(f"log_level is '{log_level}'; it is one of {', '.join(LOG_LEVELS)}")
        base = os.fspath(directory if directory is not None else "/etc/fedge")
        paths = {
            "config": os.fspath(config or os.path.join(base, "client.json")),
            "identity": os.fspath(identity or os.path.join(base, "identity")),
            "trust": os.fspath(trust or os.path.join(base, "trust")),
        }
        _Run(self, paths, server, None if state is None else os.fspath(state), LOG_LEVELS.index(log_level), log_json).run()

    def _serve(self) -> None:
        """Trains the virtual clients of the simulation whose channel the environment names, on this thread."""
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)  # the same sums as on every machine; the processes share the processors
        self._shows_errors = True  # nobody else sees them
        client, err, handle = ffi.new("fedge_client **"), ffi.new("fedge_error *"), ffi.new_handle(self)
        config = ffi.new("fedge_client_config *", {"struct_size": ffi.sizeof("fedge_client_config")})
        if lib.fedge_client_new(config, callbacks_of(self, handle), client, err):
            raise Error(text(err.message))
        try:
            if lib.fedge_client_run(client[0], err):
                raise Error(text(err.message))
        finally:
            lib.fedge_client_free(client[0])
            self._adapter.end()

    def stop(self) -> None:
        """Ends a run that another thread is in, as SIGTERM does. Does nothing without one."""
        client = self._client
        if client is not None:
            lib.fedge_client_stop(client)

    # --- what the library calls ---

    def _plan(self, plan: Any) -> None:
        self._adapter.check(_shapes(plan.schema), _types(plan.schema))

    def _call(self, client: Any, task: Any, trains: bool, function: Callable[[Any, Task], Any]) -> Tuple[Any, Task]:
        """What `function` returns for the task's tensors, and its task."""
        views = _typed_views(task)
        python_task = Task(client, task, self._adapter, _demands(task) if trains else Demands(), trains)
        try:
            model = self._adapter.attach(views)
            if trains:
                python_task._freeze()
            result = function(model, python_task)
            self._adapter.detach(views)
        finally:
            self._adapter.release()
            python_task._end()
        return result, python_task

    def _describe(self, error: BaseException) -> str:
        """For the server: a text may quote data."""
        if isinstance(error, Error):
            return str(error)
        name = type(error).__name__
        if self._shows_errors:
            return f"{name}: {error}"
        return f'{name}; its text stays on the device, whose client file may allow it ("show-errors")'


def _demands(task: Any) -> Demands:
    """What the strategy wants of the training."""
    plan, schema = task.plan, task.plan.schema
    demands = Demands(personal_model=bool(task.personal_model))
    if task.correction != ffi.NULL:
        demands.correction = _views(schema, task.correction, plan.num_parameters)
    if task.proximal_mu > 0:
        demands.proximal_mu = float(task.proximal_mu)
        demands.anchor = _views(schema, task.anchor, schema.num_elements)
    if task.trained != ffi.NULL:
        demands.trained = frozenset(text(schema.tensors[i].name) for i in range(schema.num_tensors) if task.trained[i])
    return demands


def _take_report(result: Any, task: Task, report: Any, err: Any) -> int:
    num_examples, metrics = result if isinstance(result, (tuple, list)) and len(result) == 2 else (result, {})
    if isinstance(num_examples, bool) or not isinstance(num_examples, (int, np.integer)) or num_examples < 1:
        said = num_examples if isinstance(num_examples, (int, float)) else f"a value of type {type(num_examples).__name__}"
        raise Error(f"the trainer returned {said} as its number of examples; return an integer of at least 1, "
                    'or (number of examples, {"loss": ...})')
    task._check_demands()
    report.corrected = True
    report.num_examples = int(num_examples)
    report.num_steps = task.num_steps
    if metrics is not None and not isinstance(metrics, Mapping):
        raise Error(f'the trainer returned metrics of type {type(metrics).__name__}; return a dict, such as {{"loss": 0.5}}')
    for name, value in (metrics or {}).items():
        status = lib.fedge_client_metric(report, str(name).encode(), _number(name, value), err)
        if status:
            return int(status)
    return int(lib.FEDGE_OK)


def _number(name: Any, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise Error(f"metric '{name}' is of type {type(value).__name__}, not one number: return its mean, such as "
                    "loss.mean().item()") from None


def callbacks_of(app: Client, handle: Any) -> Any:
    return ffi.new(
        "fedge_client_callbacks *",
        {
            "struct_size": ffi.sizeof("fedge_client_callbacks"),
            "user": handle,
            "plan": lib.on_plan,
            "train": lib.on_train,
            "evaluate": lib.on_evaluate if app._evaluate else ffi.NULL,
            "loss": lib.on_loss if app._loss else ffi.NULL,
            "typed_tensors": True,
        },
    )


class _Run:
    """One run of a client."""

    def __init__(
        self, app: Client, paths: Dict[str, str], server: Optional[str], state: Optional[str], level: int, log_json: bool
    ) -> None:
        self.app = app
        self.paths = paths
        self.server = server
        self.state = state
        self.log = ffi.new("fedge_log *")
        lib.fedge_python_log(self.log, level, log_json)
        self.ended = threading.Event()
        self.exit_code = 0
        self.err = ffi.new("fedge_error *")

    def _end(self, code: int, reason: Optional[str] = None) -> None:
        """Logs why the client ends, and raises ClientExit unless all is well."""
        message = text(self.err.message) if reason is None else reason
        lib.fedge_python_log_end(self.log, message.encode(), code)
        if code:
            raise ClientExit(code, message)

    def run(self) -> None:
        site = ffi.new("struct fedge_site **")
        if lib.fedge_client_site_load(os.fsencode(self.paths["config"]), site, self.err):
            self._end(lib.FEDGE_EXIT_CONFIG)
        try:
            self._run(site[0])
        finally:
            lib.fedge_client_site_free(site[0])

    def _run(self, site: Any) -> None:
        server = self.server or text(lib.fedge_client_site_servers(site))
        if not server:
            self._end(lib.FEDGE_EXIT_USAGE, f'no server: give server="wss://HOST", or "servers" in {self.paths["config"]}')
        self.app._shows_errors = bool(lib.fedge_client_site_shows_errors(site))
        handle = ffi.new_handle(self.app)
        keep = [handle]  # what the structs below only point to
        client = ffi.new("fedge_client **")
        with _making:
            if any(other.app._model is self.app._model for other in _running):
                raise Error("a client of this process with the same model is running: give each client a model of its own, "
                            "such as copy.deepcopy(model)")
            status = lib.fedge_client_new(self._config(server, site, keep), callbacks_of(self.app, handle), client, self.err)
            if status == lib.FEDGE_OK:
                _running.append(self)
        if status:
            self._end(int(lib.fedge_client_exit_code(status)))
        try:
            self._wait(client[0])
        finally:
            self._free(client[0])
        self._end(self.exit_code)

    def _free(self, client: Any) -> None:
        with _making:
            _running.remove(self)
            alone = not _running and threading.current_thread() is threading.main_thread()
            if alone and lib.fedge_client_busy(client):
                # The trainer does not return. The state survives the end of the process.
                lib.fedge_python_log_end(self.log, self.err.message, self.exit_code)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.exit_code)
            lib.fedge_client_free(client)
        self.app._adapter.end()

    def _config(self, server: str, site: Any, keep: List[Any]) -> Any:
        def pointer(value: Optional[str]) -> Any:
            if value is None:
                return ffi.NULL
            keep.append(ffi.new("char[]", os.fsencode(value)))
            return keep[-1]

        return ffi.new(
            "fedge_client_config *",
            {
                "struct_size": ffi.sizeof("fedge_client_config"),
                "server": pointer(server),
                "identity_dir": pointer(self.paths["identity"]),
                "trust_dir": pointer(self.paths["trust"]),
                "state_dir": pointer(self.state),
                "site": site,
                "log": self.log,
            },
        )

    def _wait(self, client: Any) -> None:
        """Runs the network on a thread, so that this one, the main thread, can handle signals."""

        def network() -> None:
            self.exit_code = int(lib.fedge_client_run(client, self.err))
            self.ended.set()

        process = os.getpid()

        def stop(number: int, _: Any) -> None:
            if os.getpid() != process:  # a fork that the trainer has made, such as a worker that reads data
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            lib.fedge_client_stop(client)

        in_main = threading.current_thread() is threading.main_thread()
        former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
        thread = threading.Thread(target=network, name="fedge-network", daemon=True)
        self.app._client = client
        try:
            thread.start()
            while not self.ended.wait(3600):
                pass
        finally:
            self.app._client = None
            if thread.ident is not None:  # also where a signal's handler has raised
                lib.fedge_client_stop(client)
                thread.join()
            for number, handler in former.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@ffi.def_extern(error=lib.FEDGE_INTERNAL)
def on_plan(user: Any, client: Any, plan: Any, err: Any) -> int:
    app: Client = ffi.from_handle(user)
    try:
        app._plan(plan)
    except Exception as error:
        return _fail(err, lib.FEDGE_UNSUPPORTED, _tell(app, error))
    return int(lib.FEDGE_OK)


def _tell(app: Client, error: BaseException) -> str:
    """The text for the server. What is not said there goes to stderr."""
    if app._tracebacks is not None:
        app._tracebacks(traceback.format_exc())
    elif not isinstance(error, Error):
        traceback.print_exc()
    return app._describe(error)


def _work(user: Any, client: Any, err: Any, work: Callable[[Client], int]) -> int:
    app: Client = ffi.from_handle(user)
    try:
        return work(app)
    except TaskCancelled as error:
        cancelled = lib.fedge_client_cancelled(client)
        return _fail(err, lib.FEDGE_CANCELLED if cancelled else lib.FEDGE_INTERNAL, str(error))
    except BaseException as error:
        return _fail(err, lib.FEDGE_INTERNAL, _tell(app, error))


@ffi.def_extern(error=lib.FEDGE_INTERNAL)
def on_train(user: Any, client: Any, task: Any, values: Any, report: Any, err: Any) -> int:
    def work(app: Client) -> int:
        assert app._train is not None
        return _take_report(*app._call(client, task, True, app._train), report, err)

    return _work(user, client, err, work)


@ffi.def_extern(error=lib.FEDGE_INTERNAL)
def on_evaluate(user: Any, client: Any, task: Any, values: Any, report: Any, err: Any) -> int:
    def work(app: Client) -> int:
        assert app._evaluate is not None
        return _take_report(*app._call(client, task, False, app._evaluate), report, err)

    return _work(user, client, err, work)


@ffi.def_extern(error=lib.FEDGE_INTERNAL)
def on_loss(user: Any, client: Any, task: Any, values: Any, loss: Any, err: Any) -> int:
    def work(app: Client) -> int:
        assert app._loss is not None
        loss[0] = float(app._call(client, task, False, app._loss)[0])
        return int(lib.FEDGE_OK)

    return _work(user, client, err, work)
