"""Makes the golden files of tests/edge/train/model/test_golden.c with PyTorch: make_golden.py [CASE...]

Each case is a small model as a job describes it (CASE.json: model and training) and what PyTorch makes of it in
double precision (CASE.safetensors, stored as F32):

    x, labels or targets      one batch
    y, loss                   outputs and loss in evaluation mode, before any step
    w0/NAME, g0/NAME          parameters, and their gradients on the batch in training mode
    w10/NAME, b10/NAME        parameters and buffers after ten steps on that batch
    y10                       outputs in evaluation mode after them

Gradients and w10 are there for what is trained only. cases.txt lists the cases. Needs PyTorch 1.13 or newer; no
safetensors module.
"""

import json
import math
import os
import struct
import sys

import torch

from drawn_dropout import DrawnDropout, stream
from torch_model import Model, make_layer, make_optimizer

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 10


def loss_of(model, criterion, x, target, training, start):
    loss = criterion(model(x), target)
    mu = training.get("proximal-mu", 0.0)
    if mu:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                loss = loss + mu / 2 * ((parameter - start[name]) ** 2).sum()
    return loss


def run(case):
    torch.manual_seed(sum(case["name"].encode()))
    description, training = case["model"], case["training"]
    loss = dict(description.get("loss", {"type": "CrossEntropyLoss"}))
    model = Model(description["layers"])
    criterion = getattr(torch.nn, loss.pop("type"))(**loss)
    shape = [case["batch"]] + description["input-shape"]
    x = torch.randint(0, case["indices"], shape).float() if case["indices"] else torch.randn(shape)
    model, x = model.double(), x.double()
    out = {"x": x}
    outputs = model.eval()(x)
    if isinstance(criterion, torch.nn.CrossEntropyLoss):
        target = torch.randint(0, outputs.shape[1], (case["batch"],))
        out["labels"] = target
    else:
        binary = isinstance(criterion, torch.nn.BCEWithLogitsLoss)
        target = torch.randn(outputs.shape).float().double()
        target = (target > 0).double() if binary else target
        out["targets"] = target
    out["y"] = outputs
    out["loss"] = criterion(outputs, target).reshape(1)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.train()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = make_optimizer(list(trained.values()), training)
    for name, value in start.items():
        out["w0/" + name] = value
    for step in range(STEPS):
        optimizer.zero_grad()
        DrawnDropout.numbers = stream(step)
        loss_of(model, criterion, x, target, training, start).backward()
        if step == 0:
            for name, p in trained.items():
                out["g0/" + name] = p.grad.clone()
        if "clip-norm" in training:
            torch.nn.utils.clip_grad_norm_(list(trained.values()), training["clip-norm"])
        optimizer.step()
    for name, p in trained.items():
        out["w10/" + name] = p
    for name, b in model.named_buffers():
        if "num_batches" not in name:
            out["b10/" + name] = b
    out["y10"] = model.eval()(x)
    return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        values = value.detach().double().flatten().tolist()
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def case(name, shape, layers, loss=None, batch=3, indices=0, **training):
    model = {"input-shape": shape, "layers": layers}
    if loss:
        model["loss"] = loss
    training = {k.replace("_", "-"): v for k, v in training.items()}
    training.setdefault("learning-rate", 0.1)
    return {"name": name, "model": model, "training": training, "batch": batch, "indices": indices}


def L(type_, **arguments):
    return {"type": type_, **arguments}


def conv_case(name, conv, size=7, **options):
    """conv between two others, so that the gradient of its input is proven too."""
    channels = conv["in_channels"]
    front = L("Conv2d", in_channels=2, out_channels=channels, kernel_size=1)
    probe = torch.nn.Sequential(make_layer(front), make_layer(conv))(torch.zeros(1, 2, size, size + 1))
    layers = [front, conv, L("Flatten"), L("Linear", in_features=math.prod(probe.shape[1:]), out_features=3)]
    return case(name, [2, size, size + 1], layers, **options)


def between(name, shape, middle, **options):
    """[middle] between a Linear on the last dimension and a Flatten and Linear."""
    front = L("Linear", in_features=shape[-1], out_features=shape[-1])
    probe = make_layer(middle).eval()(torch.randn([2] + shape))
    layers = [front, middle, L("Flatten"), L("Linear", in_features=math.prod(probe.shape[1:]), out_features=3)]
    return case(name, shape, layers, **options)


def two_layers(name, **options):
    layers = [
        L("Linear", name="fc1", in_features=5, out_features=4),
        L("Tanh"),
        L("Linear", name="fc2", in_features=4, out_features=options.pop("outputs", 3)),
    ]
    for index, mode in options.pop("train", {}).items():
        layers[index]["train"] = mode
    return case(name, [5], layers, **options)


def residual():
    conv = dict(in_channels=2, out_channels=2, kernel_size=3, padding=1)
    return [
        L("Conv2d", name="stem", **conv),
        L("GroupNorm", num_groups=2, num_channels=2),
        L("ReLU", name="a"),
        L("Conv2d", **conv),
        L("ReLU"),
        L("Conv2d", name="b", **conv),
        L("Add", inputs=["b", "a"]),
        L("ReLU", name="c"),
        L("Add", inputs=["c", "input", "c"]),
        L("AdaptiveAvgPool2d", output_size=1),
        L("Flatten"),
        L("Linear", in_features=2, out_features=3),
    ]


def depthwise_block():
    return [
        L("Conv2d", in_channels=2, out_channels=4, kernel_size=1, bias=False),
        L("BatchNorm2d", num_features=4),
        L("ReLU"),
        L("Conv2d", in_channels=4, out_channels=4, kernel_size=3, stride=2, padding=1, groups=4, bias=False),
        L("GroupNorm", num_groups=2, num_channels=4),
        L("ReLU6"),
        L("AdaptiveAvgPool2d", output_size=1),
        L("Flatten"),
        L("Linear", in_features=4, out_features=3),
    ]


def transformer():
    encoder = dict(d_model=6, nhead=2, dim_feedforward=7, dropout=0.0, is_causal=True)
    return [
        L("Embedding", num_embeddings=9, embedding_dim=6),
        L("PositionalEmbedding", num_embeddings=5, embedding_dim=6),
        L("TransformerEncoderLayer", **encoder),
        L("TransformerEncoderLayer", **encoder, activation="gelu"),
        L("LayerNorm", normalized_shape=[6]),
        L("Select", dim=1, index=-1),
        L("Linear", in_features=6, out_features=9),
    ]


def window_cases():
    wide = dict(in_channels=4, out_channels=6, kernel_size=3)
    yield conv_case("conv2d", L("Conv2d", **wide, stride=2, padding=1))
    yield conv_case("conv2d-dilated", L("Conv2d", **wide, dilation=2, padding=[2, 1], bias=False))
    yield conv_case("conv2d-groups", L("Conv2d", **wide, groups=2, stride=[1, 2]))
    yield conv_case("conv2d-depthwise", L("Conv2d", in_channels=4, out_channels=8, kernel_size=3, groups=4, padding=1))
    yield conv_case("conv2d-depthwise-stride", L("Conv2d", in_channels=3, out_channels=3, kernel_size=[3, 5], groups=3,
                                                 padding=2, stride=2, dilation=[1, 2]), size=9)
    yield conv_case("conv2d-pointwise", L("Conv2d", in_channels=5, out_channels=3, kernel_size=1))
    yield between("conv1d", [3, 11], L("Conv1d", in_channels=3, out_channels=4, kernel_size=3, stride=2, padding=2))
    yield case("depthwise-block", [2, 7, 6], depthwise_block())
    yield conv_case("conv2d-same", L("Conv2d", in_channels=3, out_channels=2, kernel_size=[3, 4], dilation=[1, 2], padding="same"))
    yield between("conv1d-same", [3, 9], L("Conv1d", in_channels=3, out_channels=4, kernel_size=5, padding="same"))
    yield between("conv1d-valid", [3, 9], L("Conv1d", in_channels=3, out_channels=4, kernel_size=5, padding="valid"))
    yield between("conv1d-groups", [4, 9], L("Conv1d", in_channels=4, out_channels=6, kernel_size=3, dilation=2, groups=2))
    yield between("maxpool2d", [2, 7, 8], L("MaxPool2d", kernel_size=3, stride=2, padding=1))
    yield between("maxpool1d", [3, 11], L("MaxPool1d", kernel_size=3, stride=2, padding=1))
    yield between("avgpool2d", [2, 7, 8], L("AvgPool2d", kernel_size=[3, 2], stride=2, padding=1))
    yield between("avgpool2d-no-pad", [2, 6, 6], L("AvgPool2d", kernel_size=3, padding=1, count_include_pad=False))
    yield between("avgpool1d", [3, 11], L("AvgPool1d", kernel_size=4, stride=3, padding=2))
    yield between("maxpool2d-dilated", [2, 8, 9], L("MaxPool2d", kernel_size=3, stride=2, padding=1, dilation=[2, 1]))
    yield between("maxpool2d-ceil", [2, 8, 9], L("MaxPool2d", kernel_size=[3, 2], stride=[2, 3], ceil_mode=True))
    yield between("maxpool2d-larger", [2, 1, 4], L("MaxPool2d", kernel_size=2, ceil_mode=True))
    yield between("maxpool2d-wide", [1, 18, 19], L("MaxPool2d", kernel_size=17, stride=1), batch=2)
    yield between("maxpool1d-ceil", [3, 12], L("MaxPool1d", kernel_size=3, stride=3, padding=1, dilation=2, ceil_mode=True))
    yield between("avgpool2d-ceil", [2, 7, 8], L("AvgPool2d", kernel_size=[3, 4], stride=[3, 3], padding=1, ceil_mode=True))
    yield between("avgpool2d-ceil-no-pad", [2, 6, 8], L("AvgPool2d", kernel_size=3, stride=2, padding=1, ceil_mode=True,
                                                        count_include_pad=False))
    yield between("avgpool2d-divisor", [2, 6, 7], L("AvgPool2d", kernel_size=3, padding=1, divisor_override=5))
    yield between("avgpool1d-ceil", [3, 12], L("AvgPool1d", kernel_size=4, stride=3, padding=1, ceil_mode=True))
    yield between("adaptiveavgpool2d", [2, 7, 8], L("AdaptiveAvgPool2d", output_size=[3, 5]))
    yield between("adaptiveavgpool2d-1", [4, 5, 3], L("AdaptiveAvgPool2d", output_size=1))


def more_activation_cases():
    for name in ("Hardswish", "Hardsigmoid", "ELU", "Softplus", "PReLU"):
        yield between(name.lower(), [11], L(name), batch=7)
    yield between("elu-options", [11], L("ELU", alpha=0.7, inplace=True))
    yield between("softplus-options", [11], L("Softplus", beta=3.0, threshold=1.5))
    yield between("prelu-channels", [3, 4, 5], L("PReLU", num_parameters=3, init=0.4))
    yield between("glu", [3, 8], L("GLU"))
    yield between("glu-channels", [4, 3, 5], L("GLU", dim=1))
    yield between("softmax", [3, 8], L("Softmax", dim=-1), batch=5)
    yield between("softmax-channels", [4, 3, 5], L("Softmax", dim=1))


def squeeze_and_excitation():
    return [
        L("Conv2d", name="a", in_channels=2, out_channels=4, kernel_size=3, padding=1),
        L("AdaptiveAvgPool2d", output_size=1),
        L("Conv2d", in_channels=4, out_channels=2, kernel_size=1),
        L("ReLU"),
        L("Conv2d", in_channels=2, out_channels=4, kernel_size=1),
        L("Hardsigmoid", name="gate"),
        L("Mul", inputs=["a", "gate"]),
        L("Flatten"),
        L("Linear", in_features=4 * 30, out_features=3),
    ]


def u_net():
    return [
        L("Conv2d", name="down1", in_channels=2, out_channels=3, kernel_size=3, padding=1),
        L("ReLU", name="skip"),
        L("MaxPool2d", kernel_size=2),
        L("Conv2d", in_channels=3, out_channels=4, kernel_size=3, padding=1),
        L("ReLU", name="low"),
        L("ConvTranspose2d", name="up", in_channels=4, out_channels=3, kernel_size=2, stride=2),
        L("Upsample", name="wide", inputs=["low"], scale_factor=2, mode="bilinear"),
        L("Concat", inputs=["skip", "up", "wide"], dim=1),
        L("Conv2d", in_channels=10, out_channels=2, kernel_size=1),
        L("Flatten"),
        L("Linear", in_features=2 * 48, out_features=3),
    ]


def more_layer_cases():
    yield case("squeeze-and-excitation", [2, 5, 6], squeeze_and_excitation())
    yield case("u-net", [2, 6, 8], u_net())
    yield case("gated", [5], [L("Linear", name="a", in_features=5, out_features=6),
                              L("Linear", name="b", inputs=["input"], in_features=5, out_features=6), L("Tanh", name="c"),
                              L("Mul", inputs=["a", "c", "b"]), L("Linear", in_features=6, out_features=3)])
    yield between("rmsnorm", [4, 6], L("RMSNorm", normalized_shape=[6]))
    yield between("rmsnorm-2d", [4, 6], L("RMSNorm", normalized_shape=[4, 6], eps=0.1, elementwise_affine=False))
    yield between("batchnorm1d", [7], L("BatchNorm1d", num_features=7), batch=9)
    yield between("batchnorm1d-length", [3, 5], L("BatchNorm1d", num_features=3, eps=0.01, momentum=0.3))
    yield between("upsample", [2, 3, 4], L("Upsample", scale_factor=[2, 3]))
    yield between("upsample-size", [2, 5, 4], L("Upsample", size=[7, 9]))
    yield between("upsample-bilinear", [2, 3, 4], L("Upsample", size=[7, 5], mode="bilinear"))
    yield between("upsample-corners", [2, 3, 4], L("Upsample", scale_factor=2, mode="bilinear", align_corners=True))
    yield between("upsample-linear", [3, 5], L("Upsample", scale_factor=3, mode="linear"))
    wide = dict(in_channels=4, out_channels=6, kernel_size=3)
    yield conv_case("convtranspose2d", L("ConvTranspose2d", **wide, stride=2, padding=1, output_padding=[1, 0]))
    yield conv_case("convtranspose2d-groups", L("ConvTranspose2d", **wide, groups=2, dilation=[1, 2], bias=False))
    yield between("convtranspose1d", [4, 7], L("ConvTranspose1d", in_channels=4, out_channels=3, kernel_size=4, stride=2, padding=1))
    yield between("conv1d-causal", [3, 11], L("Conv1d", in_channels=3, out_channels=4, kernel_size=3, dilation=2, causal=True))


def elementwise_and_norm_cases():
    for name in ("ReLU", "ReLU6", "LeakyReLU", "GELU", "Sigmoid", "Tanh", "SiLU"):
        yield between(name.lower(), [11], L(name), batch=7)
    yield from more_activation_cases()
    yield from more_layer_cases()
    yield between("leakyrelu-steep", [11], L("LeakyReLU", negative_slope=0.5, inplace=True))
    yield between("gelu-tanh", [11], L("GELU", approximate="tanh"))
    yield case("dropout", [5], [L("Linear", in_features=5, out_features=9), L("Dropout", p=0.5), L("Tanh"),
                                L("Dropout", p=0.2), L("Linear", in_features=9, out_features=3)], batch=4)
    yield between("batchnorm2d", [3, 4, 5], L("BatchNorm2d", num_features=3))
    yield between("batchnorm2d-options", [3, 4, 5], L("BatchNorm2d", num_features=3, eps=0.01, momentum=0.3, affine=False))
    yield between("batchnorm2d-untracked", [3, 4, 5], L("BatchNorm2d", num_features=3, track_running_stats=False))
    yield between("batchnorm2d-frozen", [3, 4, 5], L("BatchNorm2d", num_features=3, frozen=True))
    yield between("groupnorm", [6, 3, 2], L("GroupNorm", num_groups=3, num_channels=6))
    yield between("groupnorm-plain", [4, 5], L("GroupNorm", num_groups=1, num_channels=4, eps=0.1, affine=False))
    yield between("layernorm", [4, 6], L("LayerNorm", normalized_shape=[6]))
    yield between("layernorm-2d", [4, 6], L("LayerNorm", normalized_shape=[4, 6], eps=0.1, bias=False))
    yield between("layernorm-plain", [3, 4, 5], L("LayerNorm", normalized_shape=[4, 5], elementwise_affine=False))


def sequence_cases():
    yield case("embedding", [6], [L("Embedding", num_embeddings=5, embedding_dim=3), L("Flatten"),
                                  L("Linear", in_features=18, out_features=3)], indices=5)
    yield between("select-last", [4, 5], L("Select", dim=1, index=-1))
    yield between("select-3d", [3, 4, 5], L("Select", dim=-2, index=1))
    yield between("mean-steps", [4, 5], L("Mean", dim=1))
    yield between("mean-3d", [3, 4, 5], L("Mean", dim=-1))
    yield between("positionalembedding", [4, 6], L("PositionalEmbedding", num_embeddings=5, embedding_dim=6))
    yield between("multiheadattention", [5, 8], L("MultiheadAttention", embed_dim=8, num_heads=2))
    yield between("multiheadattention-causal", [5, 8], L("MultiheadAttention", embed_dim=8, num_heads=4, is_causal=True))
    yield between("multiheadattention-plain", [4, 6], L("MultiheadAttention", embed_dim=6, num_heads=1, bias=False))
    encoder = dict(d_model=8, dim_feedforward=12, dropout=0.0)
    yield between("transformerencoderlayer", [5, 8], L("TransformerEncoderLayer", nhead=2, **encoder))
    yield between("transformerencoderlayer-gelu", [5, 8], L("TransformerEncoderLayer", nhead=4, activation="gelu",
                                                            layer_norm_eps=0.01, is_causal=True, **encoder))
    yield between("transformerencoderlayer-bias", [5, 8], L("TransformerEncoderLayer", nhead=1, train="bias", **encoder))
    # Not Adam: a key's bias has no effect, and Adam would make steps of its gradient's rounding errors.
    yield case("transformer", [5], transformer(), indices=9, optimizer={"type": "SGD", "momentum": 0.9})
    for name, type_ in (("lstm", "LSTM"), ("gru", "GRU")):
        yield between(name, [5, 4], L(type_, input_size=4, hidden_size=6))
        yield between(name + "-2", [4, 3], L(type_, input_size=3, hidden_size=5, num_layers=2, bias=False), batch=5)
        yield between(name + "-bias-only", [3, 4], L(type_, input_size=4, hidden_size=3, num_layers=3, train="bias"))
        yield between(name + "-bidirectional", [5, 4], L(type_, input_size=4, hidden_size=6, bidirectional=True))
        yield case("char-" + name, [12], [L("Embedding", num_embeddings=9, embedding_dim=4),
                                          L(type_, name="rnn", input_size=4, hidden_size=9, num_layers=2),
                                          L("Select", dim=1, index=-1),
                                          L("Linear", in_features=9, out_features=9)], indices=9, batch=4)


def graph_cases():
    yield case("residual", [2, 5, 6], residual())
    yield case("sequence-linear", [4, 5], [L("Linear", in_features=5, out_features=3), L("ReLU"),
                                           L("Linear", in_features=3, out_features=2, bias=False), L("Flatten")])
    yield case("lora", [5], [L("Linear", in_features=5, out_features=6), L("ReLU"),
                             L("Linear", in_features=6, out_features=7, r=2, lora_alpha=3.0), L("ReLU"),
                             L("Linear", in_features=7, out_features=3, bias=False, r=1)])


def training_cases():
    yield two_layers("loss-smoothing", loss={"type": "CrossEntropyLoss", "label_smoothing": 0.2}, outputs=4)
    yield two_layers("loss-bce", loss={"type": "BCEWithLogitsLoss"})
    yield two_layers("loss-bce-one", loss={"type": "BCEWithLogitsLoss"}, outputs=1, batch=6)
    yield two_layers("loss-mse", loss={"type": "MSELoss"})
    yield two_layers("loss-l1", loss={"type": "L1Loss"}, learning_rate=0.01)
    yield two_layers("loss-huber", loss={"type": "HuberLoss"})
    yield two_layers("loss-huber-delta", loss={"type": "HuberLoss", "delta": 0.4})
    yield two_layers("loss-smooth-l1", loss={"type": "SmoothL1Loss"})
    yield two_layers("loss-smooth-l1-beta", loss={"type": "SmoothL1Loss", "beta": 0.4})
    yield two_layers("sgd", optimizer={"type": "SGD", "momentum": 0.9, "weight_decay": 0.01})
    yield two_layers("sgd-nesterov", optimizer={"type": "SGD", "momentum": 0.8, "weight_decay": 0.01, "nesterov": True})
    yield two_layers("adam", optimizer={"type": "Adam"}, learning_rate=0.01)
    yield two_layers("adam-options", optimizer={"type": "Adam", "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1},
                     learning_rate=0.01)
    yield two_layers("adamw", optimizer={"type": "AdamW"}, learning_rate=0.01)
    yield two_layers("rmsprop", optimizer={"type": "RMSprop"}, learning_rate=0.01)
    yield two_layers("rmsprop-options", learning_rate=0.01,
                     optimizer={"type": "RMSprop", "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.7,
                                "centered": True})
    yield two_layers("rmsprop-momentum", optimizer={"type": "RMSprop", "momentum": 0.9}, learning_rate=0.001)
    yield two_layers("rmsprop-centered", optimizer={"type": "RMSprop", "centered": True, "eps": 1e-2}, learning_rate=0.01)
    yield two_layers("adagrad", optimizer={"type": "Adagrad"}, learning_rate=0.05)
    yield two_layers("adagrad-options", learning_rate=0.1,
                     optimizer={"type": "Adagrad", "lr_decay": 0.3, "weight_decay": 0.1,
                                "initial_accumulator_value": 0.2, "eps": 1e-3})
    yield two_layers("lion", optimizer={"type": "Lion"}, learning_rate=0.01)
    yield two_layers("lion-options", optimizer={"type": "Lion", "betas": [0.8, 0.95], "weight_decay": 0.3},
                     learning_rate=0.02)
    yield two_layers("clip", clip_norm=0.25, optimizer={"type": "SGD", "momentum": 0.9})
    yield two_layers("clip-adamw", clip_norm=0.25, optimizer={"type": "AdamW", "weight_decay": 0.3}, learning_rate=0.02)
    yield two_layers("fedprox", proximal_mu=0.7)
    yield two_layers("fedprox-clip", proximal_mu=2.0, clip_norm=0.3)
    yield two_layers("frozen-first", train={0: "none"})
    yield two_layers("frozen-last", train={2: "none"})
    yield two_layers("bias-only", train={0: "bias", 2: "bias"}, optimizer={"type": "Adam"}, learning_rate=0.01)


def cases():
    yield from window_cases()
    yield from elementwise_and_norm_cases()
    yield from sequence_cases()
    yield from graph_cases()
    yield from training_cases()


def main():
    torch.set_num_threads(1)
    made = list(cases())
    with open(os.path.join(HERE, "cases.txt"), "w", encoding="utf-8") as file:
        file.write("".join(c["name"] + "\n" for c in made))
    for c in made:
        if len(sys.argv) == 1 or c["name"] in sys.argv[1:]:
            path = os.path.join(HERE, c["name"])
            with open(path + ".json", "w", encoding="utf-8") as file:
                json.dump({"model": c["model"], "training": c["training"]}, file, indent=1)
                file.write("\n")
            write_safetensors(path + ".safetensors", run(c))


if __name__ == "__main__":
    main()
