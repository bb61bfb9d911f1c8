"""How the model of a job and the user's model share memory.

The client has each tensor of a job's model in its own type. Each adapter gives the trainer a model whose weights are
views of that memory, so that training in place needs no copy, and writes back what the trainer has put elsewhere.
NumPy has no BF16: a view of such a tensor has its bits, as np.uint16, and trainers in NumPy get a copy in float32.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import AbstractSet, Any, Dict, List, NamedTuple, Optional, Protocol, Tuple

import numpy as np
from numpy.typing import NDArray

from .errors import Error

Array = NDArray[Any]
Views = Dict[str, Array]
Shapes = Dict[str, Tuple[int, ...]]
Types = Dict[str, str]  # F32, F16, BF16 or I64; a tensor that is not there: F32

INIT_ADVICE = "make the job of this model: python -m fedge init --model MODULE:NAME"


class Adapter(Protocol):
    """Of one kind of model."""

    def check(self, shapes: Shapes, types: Optional[Types] = None) -> None:
        """Raises Error unless the model has tensors of just these names, shapes and types."""

    def attach(self, views: Views) -> Any:
        """Makes the model's weights those in `views`; returns what the trainer gets as its model."""

    def detach(self, views: Views) -> None:
        """Copies weights that the trainer has put elsewhere to `views`. Error: they do not fit."""

    def release(self) -> None:
        """Lets the model refer to the views no longer. Does nothing twice, and never fails."""

    def end(self) -> None:
        """After the last task: gives the model memory of its own again."""

    def batch(self, arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
        """The arrays of a batch as the model takes them."""

    def freeze(self, trained: AbstractSet[str]) -> bool:
        """Keeps the other tensors from being trained until `release`; False: the trainer has to."""

    def correct(
        self, correction: Optional[Views], mu: float, anchor: Optional[Views], trained: Optional[AbstractSet[str]], gradients: Any
    ) -> None:
        """Adds `correction` and mu · (weights − anchor) to the gradients, and makes those of tensors not in `trained` 0."""


def check_shapes(job: Shapes, model: Shapes) -> None:
    for name, shape in job.items():
        if name not in model:
            raise Error(f"the job's model has a tensor '{name}' {list(shape)}, which this client's model lacks: {INIT_ADVICE}")
        if model[name] != shape:
            raise Error(f"tensor '{name}' is {list(shape)} in the job and {list(model[name])} in this client's model: {INIT_ADVICE}")
    for name, shape in model.items():
        if name not in job:
            raise Error(f"this client's model has a tensor '{name}' {list(shape)}, which the job's model lacks: {INIT_ADVICE}")


def correct_arrays(
    model: Mapping[str, Any],
    correction: Optional[Views],
    mu: float,
    anchor: Optional[Views],
    trained: Optional[AbstractSet[str]],
    gradients: Any,
) -> None:
    if gradients is None:
        raise Error("give correct_gradients the gradients by name: task.correct_gradients({'weight': ...})")
    for name, gradient in gradients.items():
        if name not in model:
            raise Error(f"there is a gradient of '{name}', and the model has the tensors {', '.join(model)}")
        if not isinstance(gradient, np.ndarray) or gradient.shape != np.shape(model[name]):
            raise Error(f"the gradient of '{name}' must be a NumPy array of shape {list(np.shape(model[name]))}")
        if trained is not None and name not in trained:
            gradient[...] = 0
            continue
        if correction is not None and name in correction:
            gradient += correction[name]
        if anchor is not None:
            gradient += np.float32(mu) * (model[name] - anchor[name])


def bf16_of(values: Any) -> Array:
    """The bits of floats, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    whole: Array = np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16).reshape(np.shape(values))
    return whole


def floats_of_bf16(bits: Array) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def copy_back(name: str, view: Array, value: Any) -> None:
    """Writes what the trainer has left for a tensor. Floats for a view of bits are rounded."""
    array = np.asarray(value)
    if array.shape != view.shape:
        raise Error(f"the trainer has changed the shape of '{name}' from {list(view.shape)} to {list(array.shape)}")
    view[...] = bf16_of(array) if view.dtype == np.uint16 and array.dtype != np.uint16 else array


class ArraysAdapter:
    """A model that is a dict of NumPy arrays, which have the job's types."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.shapes: Shapes = {name: tuple(np.shape(array)) for name, array in model.items()}
        self.model: Dict[str, Any] = {}

    def check(self, shapes: Shapes, types: Optional[Types] = None) -> None:
        check_shapes(shapes, self.shapes)

    def attach(self, views: Views) -> Dict[str, Any]:
        self.model = {name: floats_of_bf16(view) if view.dtype == np.uint16 else view for name, view in views.items()}
        return self.model

    def detach(self, views: Views) -> None:
        for name, view in views.items():
            if name not in self.model:
                raise Error(f"the trainer has removed '{name}' from the model")
            if self.model[name] is not view:
                copy_back(name, view, self.model[name])

    def release(self) -> None:
        self.model = {}

    def end(self) -> None:
        pass

    def batch(self, arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
        return arrays

    def freeze(self, trained: AbstractSet[str]) -> bool:
        return False

    def correct(
        self, correction: Optional[Views], mu: float, anchor: Optional[Views], trained: Optional[AbstractSet[str]], gradients: Any
    ) -> None:
        correct_arrays(self.model, correction, mu, anchor, trained, gradients)


class EstimatorAdapter:
    """A linear model of scikit-learn: its coef_ and intercept_."""

    NAMES = ("coef_", "intercept_")

    def __init__(self, model: Any) -> None:
        self.model = model
        kind = type(model).__name__
        if hasattr(model, "hidden_layer_sizes"):
            raise Error(f"{kind} has lists of arrays and no coef_: give the client its arrays, model = {{f'coefs_{{i}}': a for i, a in "
                        "enumerate(mlp.coefs_)} and so on with intercepts_, and in train write them into the estimator's, "
                        "mlp.coefs_[i][...] = model[f'coefs_{i}'], before partial_fit, and back after it; or take a torch.nn.Module")
        if hasattr(model, "n_features_in_") and not hasattr(model, "coef_"):
            raise Error(f"{kind} has no coef_: of scikit-learn's models the linear ones work, such as SGDClassifier, "
                        "LogisticRegression and SGDRegressor")
        if getattr(model, "average", False):
            raise Error(f"{kind} with average=True trains weights beside coef_, which the round does not reach: set average=False")
        if getattr(model, "warm_start", True) is False and not hasattr(model, "partial_fit"):
            raise Error(f"{kind} would begin at zero in every round: set warm_start=True")
        # Those that train by steps take data of one type alone, that of their weights.
        fitted = np.asarray(getattr(model, "coef_", 0.0)).dtype
        self.dtype = fitted if fitted == np.float32 else np.dtype(np.float64)

    def check(self, shapes: Shapes, types: Optional[Types] = None) -> None:
        if set(shapes) != set(self.NAMES):
            raise Error(f"a scikit-learn model has the tensors coef_ and intercept_; the job's are {', '.join(shapes)}")
        if all(hasattr(self.model, name) for name in self.NAMES):
            check_shapes(shapes, {name: tuple(np.shape(getattr(self.model, name))) for name in self.NAMES})

    def attach(self, views: Views) -> Any:
        for name, view in views.items():
            floats = floats_of_bf16(view) if view.dtype == np.uint16 else view
            setattr(self.model, name, floats.astype(self.dtype))
        return self.model

    def detach(self, views: Views) -> None:
        for name, view in views.items():
            copy_back(name, view, getattr(self.model, name))

    def release(self) -> None:
        pass  # its weights are copies

    def end(self) -> None:
        pass

    def batch(self, arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
        return tuple(array.astype(self.dtype) if np.issubdtype(np.asarray(array).dtype, np.floating) else array for array in arrays)

    def freeze(self, trained: AbstractSet[str]) -> bool:
        return False

    def correct(
        self, correction: Optional[Views], mu: float, anchor: Optional[Views], trained: Optional[AbstractSet[str]], gradients: Any
    ) -> None:
        if correction is None and mu == 0 and trained is None:
            return
        if gradients is None:
            raise Error("scikit-learn does not hand out gradients, which the job's strategy changes: take FedAvg, "
                        "or write the steps in NumPy")
        correct_arrays({name: getattr(self.model, name) for name in self.NAMES}, correction, mu, anchor, trained, gradients)


class TorchAdapter:
    """A torch.nn.Module: its parameters and floating-point buffers, by the names of its state_dict.

    Integers of 64 bits, such as BatchNorm's counter of batches, are the job's where it has them; others stay on the
    device. So does, with `trainable_only`, all that has no gradient.
    """

    def __init__(self, model: Any, trainable_only: bool = False) -> None:
        self.torch = sys.modules["torch"]
        self.model = model
        self.trainable_only = trainable_only
        self.attached: List[Any] = []
        self.frozen: List[Any] = []
        self.integers: Optional[Shapes] = None  # names in the job; None: all
        torch = self.torch
        self.types = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}

    def tensors(self) -> Dict[str, Any]:
        def belongs(name: str, tensor: Any) -> bool:
            is_integer = tensor.dtype == self.torch.int64 and (self.integers is None or name in self.integers)
            is_wanted = tensor.requires_grad or not self.trainable_only
            return bool(is_wanted and (is_integer or tensor.is_floating_point() or tensor.is_complex()))

        state = self.model.state_dict(keep_vars=True).items()  # a module may put other objects there
        return {name: tensor for name, tensor in state if isinstance(tensor, self.torch.Tensor) and belongs(name, tensor)}

    def check(self, shapes: Shapes, types: Optional[Types] = None) -> None:
        self.integers = shapes
        tensors = self.tensors()
        check_shapes(shapes, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
        for name, tensor in tensors.items():
            wanted = (types or {}).get(name, "F32")
            if self.types.get(tensor.dtype) != wanted:
                advice = "convert it with .float()" if wanted == "F32" else INIT_ADVICE
                raise Error(f"tensor '{name}' has type {tensor.dtype}, and {wanted} in the job: {advice}")
            if tensor.device.type == "meta":
                raise Error(f"tensor '{name}' is on device 'meta' and has no memory: make the model on a real device")

    def attach(self, views: Views) -> Any:
        tensors = self.tensors()
        self.attached = list(tensors.values())
        with self.torch.no_grad():
            for name, tensor in tensors.items():
                shared = self.share(views[name])
                if tensor.device.type == "cpu":
                    tensor.data = shared
                else:
                    tensor.copy_(shared)
        return self.model

    def share(self, view: Array) -> Any:
        """A tensor in the view's memory."""
        if view.dtype == np.uint16:
            return self.torch.from_numpy(view.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(view)

    def detach(self, views: Views) -> None:
        tensors = self.tensors()
        check_shapes({name: view.shape for name, view in views.items()},
                     {name: tuple(tensor.shape) for name, tensor in tensors.items()})
        for name, tensor in tensors.items():
            is_view = tensor.data_ptr() == views[name].ctypes.data and tensor.is_contiguous()
            if tensor.device.type != "cpu" or not is_view:
                is_bf16 = tensor.dtype == self.torch.bfloat16
                array = (tensor.detach().float() if is_bf16 else tensor.detach()).cpu().numpy()
                copy_back(name, views[name], array)

    def freeze(self, trained: AbstractSet[str]) -> bool:
        for name, tensor in self.tensors().items():
            if name not in trained and tensor.requires_grad:
                tensor.requires_grad_(False)
                self.frozen.append(tensor)
        return True

    def correct(
        self, correction: Optional[Views], mu: float, anchor: Optional[Views], trained: Optional[AbstractSet[str]], gradients: Any
    ) -> None:
        done = set()
        with self.torch.no_grad():
            for name, tensor in self.tensors().items() if correction is not None or anchor is not None else ():
                if not tensor.requires_grad or id(tensor) in done:
                    continue  # frozen, a buffer, or a parameter that has two names
                done.add(id(tensor))
                if tensor.grad is None:
                    tensor.grad = self.torch.zeros_like(tensor)
                if correction is not None and name in correction:
                    tensor.grad += self.torch.from_numpy(correction[name]).to(tensor.device)
                if anchor is not None:
                    tensor.grad += mu * (tensor - self.torch.from_numpy(anchor[name]).to(tensor.device))

    def release(self) -> None:
        """Leaves zeros, without memory of their own, which keep the shapes; and no gradients."""
        for tensor in self.attached:
            tensor.grad = None
            if tensor.device.type == "cpu":
                tensor.data = self.torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
        self.attached = []
        for tensor in self.frozen:
            tensor.requires_grad_(True)
        self.frozen = []

    def end(self) -> None:
        for tensor in self.tensors().values():
            if tensor.device.type == "cpu":
                tensor.data = self.torch.zeros(tensor.shape, dtype=tensor.dtype)

    def device(self) -> Any:
        for tensor in self.tensors().values():
            return tensor.device
        return self.torch.device("cpu")

    def batch(self, arrays: Tuple[Any, ...]) -> Tuple[Any, ...]:
        device = self.device()
        return tuple(self.torch.as_tensor(array).to(device) for array in arrays)


def adapter_of(model: Any, trainable_only: bool = False) -> Adapter:
    torch = sys.modules.get("torch")  # a torch model comes with torch imported
    if torch is not None and isinstance(model, torch.nn.Module):
        adapter = TorchAdapter(model, trainable_only)
        for name, parameter in model.named_parameters():
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
                raise Error(f"tensor '{name}' has no shape yet: run the model on one batch first")
        if trainable_only and not adapter.tensors():
            raise Error("no parameter of the model is trained: set requires_grad of some to True")
        return adapter
    if trainable_only:
        raise Error(f"trainable_only is for a torch.nn.Module, not for {type(model).__name__}: leave out what is not trained")
    if isinstance(model, Mapping):
        return ArraysAdapter(model)
    if hasattr(model, "get_params") and hasattr(model, "fit"):
        return EstimatorAdapter(model)
    if isinstance(model, type):
        raise Error(f"{model.__name__} is a class: give a model of it, {model.__name__}(...)")
    raise Error(f"a model is a torch.nn.Module, a dict of NumPy arrays or a linear model of scikit-learn, not {type(model).__name__}")


class Tensor(NamedTuple):
    """Of a job. F32 has the initial values of BF16."""

    name: str
    type: str
    frozen: bool
    initial: Array


def of_numpy(name: str, array: Any) -> Tensor:
    values = np.asarray(array)
    if values.dtype == np.int64:
        return Tensor(name, "I64", True, values)
    if not np.issubdtype(values.dtype, np.floating):
        raise Error(f"tensor '{name}' has type {values.dtype}: models have floats, and integers of 64 bits")
    is_half = values.dtype == np.float16
    return Tensor(name, "F16" if is_half else "F32", False, values if is_half else values.astype(np.float32))


def of_torch(adapter: TorchAdapter, name: str, tensor: Any) -> Tensor:
    kind = adapter.types.get(tensor.dtype)
    if kind is None:
        raise Error(f"tensor '{name}' has type {tensor.dtype}: convert it with .float()")
    if tensor.device.type == "meta":
        raise Error(f"tensor '{name}' is on device 'meta' and has no memory: make the model on a real device")
    values = tensor.detach().cpu()
    frozen = kind == "I64" or (isinstance(tensor, adapter.torch.nn.Parameter) and not tensor.requires_grad)
    return Tensor(name, kind, frozen, (values.float() if kind == "BF16" else values).numpy())


def tensors_of(model: Any, trainable_only: bool = False) -> List[Tensor]:
    """The tensors of a job."""
    adapter = adapter_of(model, trainable_only)
    if isinstance(adapter, TorchAdapter):
        return [of_torch(adapter, name, tensor) for name, tensor in adapter.tensors().items()]
    if isinstance(adapter, ArraysAdapter):
        return [of_numpy(name, array) for name, array in model.items()]
    missing = [name for name in EstimatorAdapter.NAMES if not hasattr(model, name)]
    if missing:
        raise Error(f"the model has no {missing[0]} yet: fit it to one batch first, which sets the shapes")
    return [of_numpy(name, getattr(model, name)) for name in EstimatorAdapter.NAMES]
