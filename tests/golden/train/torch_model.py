"""PyTorch's side of a job: its model and its optimizer. For make_golden.py beside it and tests/bench."""

import math

import torch

from drawn_dropout import DrawnDropout


class LoraLinear(torch.nn.Linear):
    """loralib.Linear without its dropout and merging."""

    def __init__(self, in_features, out_features, bias=True, r=1, lora_alpha=1.0):
        super().__init__(in_features, out_features, bias)
        self.lora_A = torch.nn.Parameter(torch.randn(r, in_features) * 0.3)
        self.lora_B = torch.nn.Parameter(torch.randn(out_features, r) * 0.3)
        self.scale = lora_alpha / r
        for own in (self.weight, self.bias):
            if own is not None:
                own.requires_grad_(False)

    def forward(self, x):
        return super().forward(x) + x @ self.lora_A.T @ self.lora_B.T * self.scale


class FrozenNorm(torch.nn.BatchNorm2d):
    def forward(self, x):
        return torch.nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


class Add(torch.nn.Module):
    def forward(self, *inputs):
        return sum(inputs[1:], inputs[0])


class Mul(torch.nn.Module):
    def forward(self, *inputs):
        return math.prod(inputs)


class Concat(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, *inputs):
        return torch.cat(inputs, self.dim)


class RMSNorm(torch.nn.Module):
    """torch.nn.RMSNorm, which PyTorch has from 2.4 on."""

    def __init__(self, normalized_shape, eps=torch.finfo(torch.float32).eps, elementwise_affine=True):
        super().__init__()
        self.dims, self.eps = tuple(range(-len(normalized_shape), 0)), eps
        self.weight = torch.nn.Parameter(torch.ones(normalized_shape)) if elementwise_affine else None

    def forward(self, x):
        y = x * (x.pow(2).mean(self.dims, keepdim=True) + self.eps).rsqrt()
        return y if self.weight is None else y * self.weight


class CausalConv1d(torch.nn.Conv1d):
    def forward(self, x):
        return super().forward(torch.nn.functional.pad(x, (self.dilation[0] * (self.kernel_size[0] - 1), 0)))


class Select(torch.nn.Module):
    def __init__(self, dim, index):
        super().__init__()
        self.dim, self.index = dim, index

    def forward(self, x):
        return x.select(self.dim, self.index)


class Mean(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.mean(self.dim)


def future(x):
    """The mask of is_causal: a step sees itself and those before it."""
    steps = x.shape[1]
    return torch.full((steps, steps), float("-inf"), dtype=x.dtype, device=x.device).triu(1)


class SelfAttention(torch.nn.MultiheadAttention):
    """Of a sequence with itself; is_causal is an argument of PyTorch's forward."""

    def __init__(self, is_causal=False, batch_first=True, **arguments):
        super().__init__(batch_first=batch_first, **arguments)
        self.is_causal = is_causal

    def forward(self, x):
        mask = future(x) if self.is_causal else None
        return super().forward(x, x, x, need_weights=False, attn_mask=mask)[0]


class EncoderLayer(torch.nn.TransformerEncoderLayer):
    def __init__(self, is_causal=False, batch_first=True, norm_first=True, **arguments):
        super().__init__(batch_first=batch_first, norm_first=norm_first, **arguments)
        self.is_causal = is_causal

    def forward(self, x):
        return super().forward(x, src_mask=future(x) if self.is_causal else None)


class PositionalEmbedding(torch.nn.Embedding):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        torch.nn.init.normal_(self.weight, 0.0, 0.02)

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


class LSTM(torch.nn.LSTM):
    """The outputs alone, without the last states."""

    def __init__(self, batch_first=True, **arguments):
        super().__init__(batch_first=batch_first, **arguments)

    def forward(self, x):
        return super().forward(x)[0]


class GRU(torch.nn.GRU):
    def __init__(self, batch_first=True, **arguments):
        super().__init__(batch_first=batch_first, **arguments)

    def forward(self, x):
        return super().forward(x)[0]


OWN = {
    "Add": Add,
    "Mul": Mul,
    "Concat": Concat,
    "RMSNorm": RMSNorm,
    "Dropout": DrawnDropout,
    "Select": Select,
    "Mean": Mean,
    "LSTM": LSTM,
    "GRU": GRU,
    "PositionalEmbedding": PositionalEmbedding,
    "MultiheadAttention": SelfAttention,
    "TransformerEncoderLayer": EncoderLayer,
}


def make_layer(spec):
    arguments = {k: v for k, v in spec.items() if k not in ("type", "name", "inputs", "train")}
    if spec["type"] in OWN:
        return OWN[spec["type"]](**arguments)
    if spec["type"] == "Linear" and arguments.get("r"):
        return LoraLinear(**arguments)
    if spec["type"] == "BatchNorm2d" and arguments.pop("frozen", False):
        return FrozenNorm(**arguments)
    if spec["type"] == "Conv1d" and arguments.pop("causal", False):
        return CausalConv1d(**arguments)
    if spec["type"] == "LayerNorm":
        bias = arguments.pop("bias", True)
        layer = torch.nn.LayerNorm(**arguments)
        if not bias:
            layer.bias = None
        return layer
    arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    return getattr(torch.nn, spec["type"])(**arguments)


class Model(torch.nn.Module):
    """The layers of a job, by name; an integer input becomes one where an Embedding reads it."""

    def __init__(self, layers):
        super().__init__()
        self.layers = []  # not a ModuleList: the names are the job's
        self.labels = [spec.get("name", str(i)) for i, spec in enumerate(layers)]
        for label, spec in zip(self.labels, layers):
            layer = make_layer(spec)
            parent = self
            *folders, leaf = label.split(".")
            for folder in folders:
                if folder not in dict(parent.named_children()):
                    parent.add_module(folder, torch.nn.Module())
                parent = parent.get_submodule(folder)
            parent.add_module(leaf, layer)
            self.layers.append((layer, spec))
            for name, parameter in layer.named_parameters():
                if parameter.dim() == 1 and any(kind in spec["type"] for kind in ("Norm", "Attention", "Encoder")):
                    torch.nn.init.normal_(parameter, 0.0 if "bias" in name else 1.0, 0.3)
                mode = spec.get("train", "all")
                if mode == "none" or (mode == "bias" and "bias" not in name):
                    parameter.requires_grad_(False)

    def forward(self, x):
        made = {"input": x}
        last = "input"
        for label, (layer, spec) in zip(self.labels, self.layers):
            inputs = [made[name] for name in spec.get("inputs", [last])]
            if spec["type"] == "Embedding":
                inputs = [inputs[0].long()]
            made[label] = layer(*inputs)
            last = label
        return made[last]


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2, which torch.optim does not have."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.sub_(group["lr"] * (direction + group["weight_decay"] * p))
                m.mul_(b2).add_((1 - b2) * p.grad)


def make_optimizer(parameters, training):
    arguments = dict(training.get("optimizer", {"type": "SGD"}))
    type_ = arguments.pop("type")
    kind = Lion if type_ == "Lion" else getattr(torch.optim, type_)
    return kind(parameters, lr=training["learning-rate"], **arguments)
