"""What a trainer knows of its task."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Mapping, NoReturn, Optional, Set, Tuple

import numpy as np

from ._fedge import ffi, lib
from .batches import Batches
from .errors import Error, TaskCancelled
from .models import Adapter, Views


def text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode(errors="replace"))


def _encode(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b" + bytes(value)
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if isinstance(value, (np.ndarray, np.generic)):
            file = io.BytesIO()
            np.save(file, value, allow_pickle=False)
            return b"n" + file.getvalue()
        return b"j" + json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Error(f"a state's value may not be this: {error}; torch.save to io.BytesIO makes bytes of a state_dict") from error


def _decode(content: bytes) -> Any:
    kind, rest = content[:1], content[1:]
    if kind == b"n":
        return np.load(io.BytesIO(rest), allow_pickle=False)
    return json.loads(rest) if kind == b"j" else rest


class State:
    """Values that this device keeps between rounds, on disk where the client has a state directory: state["key"].

    Keys: 1 to 64 letters, digits, "-", "_" and "."; at most 64. Values: bytes, NumPy arrays, torch tensors (which come
    back as NumPy arrays) and what JSON has: None, numbers, texts, lists, dicts. A value lasts until another run of the
    job begins. Reading raises KeyError where there is none, or where the disk has damaged it.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def _alive(self) -> Any:
        if self._client is None:
            raise Error("the task has ended: its state is for the trainer's call alone")
        return self._client

    def __setitem__(self, key: str, value: Any) -> None:
        """Keeps a value. Error: it is of another type, or too large, the key is not allowed, or the disk fails."""
        if not isinstance(key, str):
            raise Error(f"state[{key!r}]: a key is a text")
        if key.startswith("fedge-"):
            raise Error(f"state['{key}']: keys that begin with 'fedge-' belong to the library")
        content = _encode(value)
        err = ffi.new("fedge_error *")
        if lib.fedge_client_put(self._alive(), key.encode(), content, len(content), err):
            raise Error(text(err.message))

    def __getitem__(self, key: str) -> Any:
        err, out, size = ffi.new("fedge_error *"), ffi.new("void **"), ffi.new("size_t *")
        status = lib.fedge_client_get(self._alive(), key.encode(), out, size, err)
        if status in (lib.FEDGE_NOT_FOUND, lib.FEDGE_CORRUPT):
            raise KeyError(key)
        if status:
            raise Error(text(err.message))
        try:
            return _decode(bytes(ffi.buffer(out[0], size[0])))
        finally:
            lib.free(out[0])

    def __contains__(self, key: str) -> bool:
        try:
            self[key]
        except KeyError:
            return False
        return True

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` where there is none."""
        try:
            return self[key]
        except KeyError:
            return default


@dataclass
class Demands:
    """What a strategy wants of a training, besides that it trains."""

    correction: Optional[Views] = None
    proximal_mu: float = 0.0
    anchor: Optional[Views] = None
    trained: Optional[FrozenSet[str]] = None
    personal_model: bool = False


class Task(Batches):
    """One training or evaluation, with the job's arguments for it.

    id: number of the task. round: from 1. client_index: of this device in the server's registry.
    num_clients: of a simulation, whose virtual clients have client_index 0 to num_clients - 1; on a device 0. learning_rate: of this
    round. epochs, steps: local epochs, or local steps where those are not 0. batch_size, momentum, weight_decay: of the
    job. seed: of the job. deadline: seconds from the task's arrival, after which its result may not count. job, run_id:
    texts. config: the job's "config", a dict. state: values that last between rounds (State). personal_model: True when
    the model is this device's own (Ditto), which is trained in a call of its own.

    Strategies may change gradients. `correct_gradients` does all of it; a trainer that does it in its own way reads
    `correction`, `proximal_mu` and `anchor`, and `trained`. A task whose trainer does neither fails.
    """

    def __init__(self, client: Any, task: Any, adapter: Adapter, demands: Demands, trains: bool) -> None:
        plan = task.plan
        self._client = client
        self._adapter = adapter
        self._trains = trains
        self.id = int(task.task_id)
        self.round = int(task.round)
        self.client_index = int(task.client_index)
        self.num_clients = int(task.num_clients)
        self.learning_rate = float(task.learning_rate)
        self.deadline = task.deadline_ms / 1000
        self.job = text(plan.name)
        self.run_id = text(plan.run_id)
        self.seed = int(plan.seed)
        self.epochs = int(plan.local_epochs)
        self.steps = int(plan.local_steps)
        self.batch_size = int(plan.batch_size)
        self.momentum = float(plan.momentum)
        self.weight_decay = float(plan.weight_decay)
        self.config: Dict[str, Any] = json.loads(text(plan.config))
        self.personal_model = demands.personal_model
        self._demands = demands
        self._unmet: Set[str] = set()
        if demands.correction is not None:
            self._unmet.add("correction")
        if demands.proximal_mu > 0:
            self._unmet.add("proximal_mu")
        if demands.trained is not None:
            self._unmet.add("trained")
        self.state = State(client)

    def _arrays(self, arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
        return self._adapter.batch(arrays)

    @property
    def correction(self) -> Optional[Views]:
        """None, or arrays by name that are added to each parameter's gradient (SCAFFOLD's c − c_i, FedDyn's −g_i)."""
        self._unmet.discard("correction")
        return self._demands.correction

    @property
    def proximal_mu(self) -> float:
        """μ of the term μ · (weights − anchor) that is added to each gradient (FedProx, FedDyn, Ditto); 0: none."""
        self._unmet.discard("proximal_mu")
        return self._demands.proximal_mu

    @property
    def anchor(self) -> Optional[Views]:
        """Arrays by name, the model that the proximal term stays near; None where proximal_mu is 0."""
        return self._demands.anchor

    @property
    def trained(self) -> Optional[FrozenSet[str]]:
        """Names of the tensors that this call trains while the others stay (FedRep); None: all of them."""
        self._unmet.discard("trained")
        return self._demands.trained

    def correct_gradients(self, gradients: Optional[Mapping[str, Any]] = None) -> None:
        """Makes the gradients of a step what the strategy wants, in place. Call it between gradient and step.

        A torch model needs no argument: between loss.backward() and optimizer.step(). Otherwise gradients: NumPy arrays
        of floats by the names of the tensors. Does nothing where the strategy (FedAvg, say) asks for nothing.
        """
        demands = self._demands
        if self._trains:
            self._adapter.correct(demands.correction, demands.proximal_mu, demands.anchor, demands.trained, gradients)
        self._unmet.clear()

    def __reduce__(self) -> NoReturn:
        raise Error("a task cannot be pickled, since it belongs to this process: give others what they need of it, such as "
                    "task.seed or task.client_index")

    def _freeze(self) -> None:
        if self._demands.trained is not None and self._adapter.freeze(self._demands.trained):
            self._unmet.discard("trained")

    def _check_demands(self) -> None:
        if self._unmet:
            raise Error("the job's strategy changes gradients, and the trainer has not let it: call task.correct_gradients() "
                        f"between gradient and step, or heed task.{', task.'.join(sorted(self._unmet))}")

    def _end(self) -> None:
        """The client may be freed from now on."""
        self._client = self.state._client = None

    @property
    def cancelled(self) -> bool:
        """True when the result is no longer wanted; from any thread."""
        return self._client is None or bool(lib.fedge_client_cancelled(self._client))

    def check(self) -> None:
        """Raises TaskCancelled when the result is no longer wanted. Call it in loops of your own."""
        if self.cancelled:
            raise TaskCancelled(f"task {self.id} was cancelled")
