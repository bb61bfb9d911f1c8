"""A torch module as a list of fedge's layers, for jobs that C clients train too."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import operator
import os
import sys
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ._fedge import ffi, lib
from .errors import Error
from .models import TorchAdapter
from .task import text

# What fedge's layers always do, where PyTorch's have a choice.
ALWAYS = {"batch_first": True, "norm_first": True}
# Arguments that change nothing, or show in the tensors.
UNSEEN = {"device", "dtype", "bias", "kdim", "vdim"}
# Layers whose modules return tuples.
RECURRENT = ("LSTM", "GRU")
TUPLES = (*RECURRENT, "MultiheadAttention")

POOL = ("kernel_size", "stride", "padding")
# Functions and methods of tensors: the layer, and the arguments after the tensor.
FUNCTIONS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "relu": ("ReLU", ()),
    "relu6": ("ReLU6", ()),
    "leaky_relu": ("LeakyReLU", ("negative_slope",)),
    "gelu": ("GELU", ()),
    "sigmoid": ("Sigmoid", ()),
    "tanh": ("Tanh", ()),
    "silu": ("SiLU", ()),
    "hardswish": ("Hardswish", ()),
    "hardsigmoid": ("Hardsigmoid", ()),
    "elu": ("ELU", ("alpha",)),
    "softplus": ("Softplus", ("beta", "threshold")),
    "glu": ("GLU", ("dim",)),
    "softmax": ("Softmax", ("dim",)),
    "interpolate": ("Upsample", ("size", "scale_factor", "mode", "align_corners")),
    "max_pool1d": ("MaxPool1d", (*POOL, "dilation", "ceil_mode")),
    "max_pool2d": ("MaxPool2d", (*POOL, "dilation", "ceil_mode")),
    "avg_pool1d": ("AvgPool1d", (*POOL, "ceil_mode", "count_include_pad")),
    "avg_pool2d": ("AvgPool2d", (*POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    "adaptive_avg_pool2d": ("AdaptiveAvgPool2d", ("output_size",)),
    "dropout": ("Dropout", ("p", "training")),
}
# Arguments of functions that layers lack.
IMPLIED = {"training": True, "return_indices": False, "dtype": None, "recompute_scale_factor": None, "antialias": False}
RESHAPES = ("flatten", "view", "reshape")
JOINS = {"add": "Add", "iadd": "Add", "add_": "Add", "mul": "Mul", "imul": "Mul", "mul_": "Mul"}
UNCHANGED = ("contiguous", "clone")
NUMBERS = ("size", "getattr")  # of which shapes are made


class Unknown(Error):
    """The model has something that fedge's layers lack."""


class Layered(NamedTuple):
    """The parts of a job whose model is a list of layers."""

    model: Dict[str, Any]
    data: Dict[str, Any]  # without a name
    values: Dict[str, NDArray[Any]]  # the initial model


class Examples(NamedTuple):
    """What a device's data set has."""

    shape: Tuple[int, ...]  # of one example
    bytes: bool  # they are made floats from 0 to 1, as by fedge.data


def _schema() -> Tuple[Dict[str, Any], List[str], List[str]]:
    """Of the JSON Schema of jobs: its definitions, and the types of layers and losses."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.schema.json"), encoding="utf-8") as file:
        definitions = json.load(file)["$defs"]
    properties = definitions["model"]["properties"]
    layers, losses = ([entry["$ref"].rpartition("/")[2] for entry in choice["oneOf"]]
                      for choice in (properties["layers"]["items"], properties["loss"]))
    return definitions, layers, losses


def known_losses() -> List[str]:
    return _schema()[2]


def known_layers() -> Dict[str, Dict[str, Any]]:
    """The arguments of each layer, by its type."""
    definitions, layers, _ = _schema()
    return {
        name: {key: value for key, value in definitions[name]["properties"].items() if key != "type" and "$ref" not in value}
        for name in layers
    }


def _plain(value: Any, description: Dict[str, Any]) -> Any:
    """An argument as JSON has it: one number where all dimensions have the same."""
    if not isinstance(value, (tuple, list)):
        return value
    if description.get("type") != "array" and len(set(value)) == 1:
        return value[0]
    return list(value)


def _attributes(module: Any) -> Any:
    """Where a module keeps its arguments under other names: an object that has them under theirs."""
    if type(module).__name__ == "TransformerEncoderLayer":
        activation = getattr(module.activation, "__name__", type(module.activation).__name__.lower())
        return SimpleNamespace(
            d_model=module.self_attn.embed_dim, nhead=module.self_attn.num_heads, dim_feedforward=module.linear1.out_features,
            dropout=module.dropout.p, activation=activation, layer_norm_eps=module.norm1.eps,
            batch_first=module.self_attn.batch_first, norm_first=module.norm_first, bias=module.linear1.bias is not None)
    if type(module).__name__ == "Upsample" and module.scale_factor is not None:
        factors = module.scale_factor if isinstance(module.scale_factor, tuple) else (module.scale_factor,)
        whole = tuple(int(factor) if factor == int(factor) else factor for factor in factors)
        return SimpleNamespace(size=None, scale_factor=whole if len(whole) > 1 else whole[0], mode=module.mode,
                               align_corners=module.align_corners)
    return module


def _argument(source: Any, key: str) -> Any:
    if key != "bias":
        return getattr(source, key, None)
    value = getattr(source, "in_proj_bias" if hasattr(source, "in_proj_bias") else "bias", None)
    return value if isinstance(value, bool) else value is not None


def _arguments(kind: str, place: str, source: Any, known: Dict[str, Any]) -> Dict[str, Any]:
    """Those that differ from a layer's defaults. source: an object with the arguments as attributes."""
    arguments: Dict[str, Any] = {}
    for key, description in known.items():
        if key == "bias" or hasattr(source, key):
            value = _plain(_argument(source, key), description)
            if key in ALWAYS and value != ALWAYS[key]:
                raise Unknown(f"{place} has {key}={value}, and fedge's {kind} has {key}={ALWAYS[key]}")
            default = arguments.get("kernel_size") if key == "stride" and kind.endswith(("Pool1d", "Pool2d")) else description.get("default")
            if value is not None and value != [] and value != default:
                arguments[key] = value
    return arguments


def _check_signature(kind: str, place: str, module: Any, source: Any, known: Dict[str, Any]) -> None:
    """Refuses arguments that fedge's layer lacks, unless they have PyTorch's defaults."""
    for base in type(module).__mro__[:-2]:
        if base.__name__ == "Module":
            return
        for parameter in inspect.signature(vars(base).get("__init__", object.__init__)).parameters.values():
            name = parameter.name
            if parameter.default is parameter.empty or name in known or name in UNSEEN:
                continue
            value = getattr(source, name, parameter.default)
            if value != parameter.default:
                raise Unknown(f"{place} has {name}={value!r}, which fedge's {kind} lacks")


class _Walk:
    """Makes layers of a traced module, in the order of their work."""

    def __init__(self, module: Any, graph: Any, names: Sequence[str]) -> None:
        self.torch = sys.modules["torch"]
        self.modules = dict(module.named_modules())
        self.graph = graph
        self.known = known_layers()
        self.layers: List[Dict[str, Any]] = []
        self.names = set(names)  # of modules
        self.labels: Dict[Any, Optional[str]] = {}  # of each value: the layer whose output it is; None: numbers
        self.shapes: Dict[Any, Tuple[int, ...]] = {}
        self.seen: Dict[str, str] = {}
        self.live = self._live()

    def _live(self) -> List[Any]:
        """The nodes that the output depends on."""
        needed: Dict[Any, None] = {}
        for node in reversed(list(self.graph.nodes)):
            if node.op == "output" or node in needed:
                needed.update(dict.fromkeys([node, *node.all_input_nodes]))
        return [node for node in self.graph.nodes if node in needed]

    def place(self, name: str) -> str:
        """For messages."""
        return f"{type(self.modules[name]).__name__} '{name}'"

    def check_modules(self) -> None:
        """Before shapes are known."""
        for node in self.live:
            if node.op != "call_module":
                continue
            module = self.modules[node.target]
            kind = type(module).__name__
            if kind == "Identity":
                continue
            own = kind not in self.known or getattr(self.torch.nn, kind, None) is not type(module)
            if own:
                raise Unknown(f"fedge has no layer {kind} ('{node.target}')")
            if module._forward_hooks or module._forward_pre_hooks:
                raise Unknown(f"{self.place(node.target)} has hooks")
            source = _attributes(module)
            _check_signature(kind, self.place(node.target), module, source, self.known[kind])
            _arguments(kind, self.place(node.target), source, self.known[kind])

    def reads_indices(self) -> bool:
        """Whether the input goes into an Embedding."""
        first = next(node for node in self.graph.nodes if node.op == "placeholder")
        return any(user.op == "call_module" and type(self.modules[user.target]).__name__ == "Embedding" for user in first.users)

    # --- layers ---

    def _add(self, node: Any, kind: str, name: str, arguments: Dict[str, Any], inputs: List[Any]) -> None:
        labels: List[str] = []
        for value in inputs:
            label = self.labels.get(value)
            if label is None:
                raise Unknown(f"fedge has no layer for what '{node.name}' reads")
            labels.append(label)
        layer: Dict[str, Any] = {"type": kind, "name": name, **arguments}
        if labels != [self.layers[-1]["name"] if self.layers else "input"]:
            layer["inputs"] = labels
        self.layers.append(layer)
        self.labels[node] = name

    def _own_name(self, node: Any) -> str:
        """Of a layer that is no module."""
        name = str(node.name)
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def walk(self) -> None:
        for node in self.live:
            if node.op == "placeholder":
                if "input" in self.labels.values():
                    raise Unknown("the model's forward has more than one input")
                self.labels[node] = "input"
            elif node.op == "call_module":
                self._module(node)
            elif node.op in ("call_function", "call_method"):
                self._function(node, self._name_of(node))
            elif node.op == "get_attr":
                raise Unknown(f"the model's forward uses '{node.target}' outside of a layer")
            elif not self.layers or self.labels.get(node.args[0] if self._is_value(node.args[0]) else None) != self.layers[-1]["name"]:
                raise Unknown("the model's output is not that of one last layer")

    def _is_value(self, value: Any) -> bool:
        return isinstance(value, self.torch.fx.Node)

    def _module(self, node: Any) -> None:
        name = str(node.target)
        module = self.modules[name]
        kind = type(module).__name__
        inputs = list(node.args)
        if kind == "MultiheadAttention" and len(inputs) == 3 and not set(node.kwargs) - {"need_weights", "average_attn_weights"}:
            inputs = list(dict.fromkeys(inputs))
        elif node.kwargs:
            raise Unknown(f"{self.place(name)} is called with {', '.join(node.kwargs)}")
        if len(inputs) != 1 or not self._is_value(inputs[0]):
            raise Unknown(f"{self.place(name)} is called with {len(inputs)} inputs")
        if kind == "Identity":
            self.labels[node] = self.labels.get(inputs[0])
            return
        has_parameters = any(True for _ in module.parameters())
        if name in self.seen and has_parameters:
            raise Unknown(f"{self.place(name)} is used twice")
        own_name = self._own_name(node) if name in self.seen else name
        self.seen[name] = kind
        arguments = _arguments(kind, self.place(name), _attributes(module), self.known[kind])
        arguments.update(self._trained(name, module))
        self._add(node, kind, own_name, arguments, inputs)

    def _trained(self, name: str, module: Any) -> Dict[str, Any]:
        trained = {key: parameter.requires_grad for key, parameter in module.named_parameters()}
        if all(trained.values()):
            return {}
        if not any(trained.values()):
            return {"train": "none"}
        if all(value == ("bias" in key) for key, value in trained.items()):
            return {"train": "bias"}
        raise Unknown(f"{self.place(name)} is trained in part")

    def _name_of(self, node: Any) -> str:
        """A function's name, or '' if it is not one of torch's or Python's."""
        if node.op == "call_method":
            return str(node.target)
        name = str(getattr(node.target, "__name__", ""))
        if node.target is getattr:
            return name
        homes = (self.torch, self.torch.nn.functional, operator)
        return name if any(getattr(home, name, None) is node.target for home in homes) else ""

    def _function(self, node: Any, name: str) -> None:
        arguments = [*node.args]
        x = arguments.pop(0) if arguments else node.kwargs.get("input")
        if name == "getitem":
            self._getitem(node, x, arguments[0])
        elif name in NUMBERS or all(self.labels.get(value) is None for value in node.all_input_nodes):
            self.labels[node] = None
        elif name in UNCHANGED or (name in ("long", "int", "to") and self._goes_to_embedding(node)):
            self.labels[node] = self.labels.get(x)
        elif name in RESHAPES:
            self._reshape(node, x)
        elif name in JOINS and len(arguments) == 1 and self._is_value(arguments[0]) and not node.kwargs:
            self._add(node, JOINS[name], self._own_name(node), {}, [x, arguments[0]])
        elif name in ("cat", "concat"):
            given = {**dict(zip(("tensors", "dim"), [x, *arguments])), **node.kwargs}
            self._add(node, "Concat", self._own_name(node), {"dim": given.get("dim", 0)}, list(given["tensors"]))
        elif name == "mean":
            self._mean(node, x, arguments)
        elif name == "select" and len(arguments) == 2 and not node.kwargs:
            self._add(node, "Select", self._own_name(node), {"dim": arguments[0], "index": arguments[1]}, [x])
        elif name in FUNCTIONS:
            self._layer_of_function(node, name, x, arguments)
        else:
            raise Unknown(f"fedge has no layer for the function {name or node.target} ('{node.name}')")

    def _goes_to_embedding(self, node: Any) -> bool:
        """The conversion to whole numbers before an Embedding."""
        return all(user.op == "call_module" and type(self.modules[user.target]).__name__ == "Embedding" for user in node.users)

    def _layer_of_function(self, node: Any, name: str, x: Any, positional: List[Any]) -> None:
        kind, keys = FUNCTIONS[name]
        given = {**dict(zip(keys, positional)), **node.kwargs}
        given.pop("input", None)
        if len(positional) > len(keys):
            raise Unknown(f"the function {name} ('{node.name}') has arguments that fedge's {kind} lacks")
        if name == "dropout" and given.get("training") is False:
            self.labels[node] = self.labels.get(x)
            return
        for key, value in given.items():
            if key not in self.known[kind] and key != "inplace" and IMPLIED.get(key) != value:
                raise Unknown(f"the function {name} ('{node.name}') has {key}={value}, which fedge's {kind} lacks")
        arguments = _arguments(kind, f"the function {name} ('{node.name}')", SimpleNamespace(**given), self.known[kind])
        self._add(node, kind, self._own_name(node), arguments, [x])

    def _reshape(self, node: Any, x: Any) -> None:
        before, after = self.shapes[x], self.shapes[node]
        if after == before:
            self.labels[node] = self.labels.get(x)
        elif after == (before[0], math.prod(before[1:])):
            self._add(node, "Flatten", self._own_name(node), {}, [x])
        else:
            raise Unknown(f"fedge has no layer that makes {list(after[1:])} of {list(before[1:])} ('{node.name}')")

    def _mean(self, node: Any, x: Any, positional: List[Any]) -> None:
        given = {**dict(zip(("dim", "keepdim"), positional)), **node.kwargs}
        given.pop("input", None)
        dims = given.pop("dim", None)
        if dims is None or any(given.values()):
            raise Unknown(f"fedge's Mean is over dimensions other than the batch, without keepdim ('{node.name}')")
        rank = len(self.shapes[x])
        for dim in sorted({dim % rank for dim in (dims if isinstance(dims, (tuple, list)) else [dims])}, reverse=True):
            self._add(node, "Mean", self._own_name(node), {"dim": dim}, [x])
            x = node

    # --- items of tuples and of tensors ---

    def _getitem(self, node: Any, x: Any, index: Any) -> None:
        tuple_module, path = self._tuple_of(x)
        if tuple_module is not None:
            self._item_of_tuple(node, tuple_module, (*path, index))
            return
        if self.labels.get(x) is None:
            self.labels[node] = None  # a number of a shape
            return
        whole = slice(None)
        places = list(index) if isinstance(index, (tuple, list)) else [index]
        chosen = [dim for dim, place in enumerate(places) if place != whole]
        if len(chosen) != 1 or chosen[0] == 0 or not isinstance(places[chosen[0]], int):
            raise Unknown(f"fedge's Select takes one index of one dimension ('{node.name}')")
        self._add(node, "Select", self._own_name(node), {"dim": chosen[0], "index": places[chosen[0]]}, [x])

    def _tuple_of(self, value: Any) -> Tuple[Any, Tuple[Any, ...]]:
        """The node of the module whose result has this tuple or state in it, and its place there."""
        if not self._is_value(value):
            return None, ()
        if value.op == "call_module" and type(self.modules[value.target]).__name__ in TUPLES:
            return value, ()
        if value.op == "call_function" and value.target is operator.getitem and self.labels.get(value) is None:
            module, path = self._tuple_of(value.args[0])
            return module, (*path, value.args[1])
        return None, ()

    def _item_of_tuple(self, node: Any, source: Any, path: Tuple[Any, ...]) -> None:
        module = self.modules[source.target]
        kind = type(module).__name__
        final = (1, 0) if kind == "LSTM" else (1,)  # the hidden states after the last step, one for each of num_layers
        if path == (0,):
            self.labels[node] = self.labels[source]
        elif kind not in RECURRENT or len(path) <= len(final):
            self.labels[node] = None
        elif path[:-1] == final and not module.bidirectional and path[-1] in (-1, module.num_layers - 1):
            self._add(node, "Select", self._own_name(node), {"dim": 1, "index": -1}, [source])
        else:
            raise Unknown(f"of {self.place(source.target)} fedge has the outputs and the last layer's last state alone")


def _trace(model: Any) -> Any:
    """The graph of the model's work."""
    torch = sys.modules["torch"]
    fx = importlib.import_module("torch.fx")
    functions: Dict[str, Any] = {}

    def call_module(self: Any, module: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        result = fx.Tracer.call_module(self, module, forward, args, kwargs)
        if type(module) is torch.nn.LSTM:
            return result[0], (result[1][0], result[1][1])
        if type(module) in (torch.nn.GRU, torch.nn.MultiheadAttention):
            return result[0], result[1]
        return result

    functions["call_module"] = call_module
    tracer = type("Tracer", (fx.Tracer,), functions)()
    if type(model).__module__.startswith("torch.nn") and not isinstance(model, torch.nn.Sequential):
        raise Unknown(f"the model is one {type(model).__name__}; put it into a Sequential")
    training = {module: module.training for module in model.modules()}
    try:
        model.train()  # so that functions such as dropout are there
        return tracer.trace(model)
    except Unknown:
        raise
    except Exception as error:
        raise Unknown(f"torch.fx cannot trace the model's forward ({type(error).__name__}: {_first_line(error)})") from error
    finally:
        for module, mode in training.items():
            module.training = mode


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


BATCH = 3  # examples, so that a dimension of the batch is told from others


def _find_shapes(model: Any, walk: _Walk, examples: Examples) -> Tuple[int, ...]:
    """Sets the shapes of all values; returns that of the output."""
    torch = sys.modules["torch"]
    fx = importlib.import_module("torch.fx")

    def run_node(self: Any, node: Any) -> Any:
        result = fx.Interpreter.run_node(self, node)
        walk.shapes[node] = tuple(getattr(result, "shape", ()))
        return result

    first = next(model.parameters(), torch.zeros(()))
    kind = torch.int64 if walk.reads_indices() else first.dtype
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            x = torch.zeros((BATCH, *examples.shape), dtype=kind, device=first.device)
            result = type("Shapes", (fx.Interpreter,), {"run_node": run_node})(fx.GraphModule(model, walk.graph)).run(x)
    except Exception as error:
        raise Error(f"the model does not take examples of shape {list(examples.shape)} "
                    f"({type(error).__name__}: {_first_line(error)}); give --input-shape") from error
    finally:
        for module, mode in training.items():
            module.training = mode
    return tuple(getattr(result, "shape", ()))


def _check_job(model: Dict[str, Any], data: Dict[str, Any], values: Dict[str, NDArray[Any]]) -> None:
    """By fedge's own reader of jobs: Unknown if it refuses the layers, or has other tensors than the module."""
    job = {"fedge-job": 1, "name": "model", "model": model, "data": {"name": "data", **data},
           "training": {"learning-rate": 1}, "rounds": {"num-server-rounds": 1}}
    content = json.dumps(job).encode()
    out, err = ffi.new("struct fedge_job **"), ffi.new("fedge_error *")
    if lib.fedge_client_job_parse(content, len(content), out, err):
        raise Unknown(f"fedge refuses these layers ({text(err.message)})")
    try:
        schema = lib.fedge_client_job_schema(out[0])
        tensors = [schema.tensors[i] for i in range(schema.num_tensors)]
        job_shapes = {text(tensor.name): tuple(tensor.shape[k] for k in range(tensor.rank)) for tensor in tensors}
    finally:
        lib.fedge_client_job_free(out[0])
    for name in [*values, *job_shapes]:
        ours, theirs = job_shapes.get(name), tuple(values[name].shape) if name in values else None
        if ours != theirs:
            raise Unknown(f"tensor '{name}' is {theirs and list(theirs)} in the module and {ours and list(ours)} in fedge's layers")


def _values_of(model: Any) -> Dict[str, NDArray[Any]]:
    torch = sys.modules["torch"]
    values: Dict[str, NDArray[Any]] = {}
    names: Dict[int, str] = {}
    for name, tensor in TorchAdapter(model).tensors().items():
        if tensor.dtype == torch.int64 and name.endswith("num_batches_tracked"):
            continue  # which nothing needs
        if tensor.dtype == torch.int64:
            continue  # BatchNorm's counter, which fedge's layers are without: it stays on the device
        if tensor.dtype != torch.float32:
            raise Unknown(f"tensor '{name}' has type {tensor.dtype}")
        if names.setdefault(id(tensor), name) != name:
            raise Unknown(f"'{names[id(tensor)]}' and '{name}' are one tensor")
        values[name] = tensor.detach().cpu().numpy().astype(np.float32)
    return values


def layered(model: Any, examples: Optional[Examples], loss: str) -> Layered:
    """A torch module as fedge's layers, with the names of its state_dict.

    examples: the shape of one, and its type; None if it is not known. Unknown: fedge lacks something. Error: the shape is
    missing, or the model does not take it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise Unknown(f"a model of type {type(model).__name__} has no layers")
    values = _values_of(model)
    walk = _Walk(model, _trace(model), [name for name, _ in model.named_modules()])
    walk.check_modules()
    if examples is None:
        raise Error("the job needs the shape of an example: give --input-shape, such as 1,28,28, "
                    "or name the data set 'data' in the model's file; or give --external")
    output = _find_shapes(model, walk, examples)
    walk.walk()
    if len(output) != 2 or output[0] != BATCH:
        raise Unknown(f"its outputs have the shape {list(output[1:])}, not one number for each label")
    layers = walk.layers
    if layers and layers[-1]["type"] == "Softmax" and loss == "CrossEntropyLoss":
        raise Unknown("the model ends with a Softmax, but the loss takes logits: remove it")
    if all(layer["name"] == str(i) for i, layer in enumerate(layers)):
        for layer in layers:
            del layer["name"]  # they are the default
    description: Dict[str, Any] = {"input-shape": list(examples.shape), "layers": layers, "loss": {"type": loss}}
    data: Dict[str, Any] = {"shape": list(examples.shape), "dtype": "u8" if examples.bytes else "f32", "labels": max(output[1], 2)}
    if examples.bytes and not walk.reads_indices():
        data["normalisation"] = {"divide-by": 255}
    _check_job(description, data, values)
    return Layered(description, data, values)
