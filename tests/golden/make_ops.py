"""Writes ops.npz: PyTorch's answers, in float64, to the shared list of cases. It needs torch."""

import numpy as np
import torch
import torch.nn.functional as F

from core.ops.op_table import OPS
from tests.golden.cases import UPDATES, update_gradients, update_weights
from tests.helpers.golden import FOLDER, digest
from tests.helpers.shapes import arrays, cases, label, smooth_gradient

ACTIVATIONS = {"": lambda x: x, "relu": F.relu, "relu6": F.relu6}


def nchw(x):
    return x.movedim(-1, 1) if x.ndim == 4 else x


def nhwc(x):
    return x.movedim(1, -1) if x.ndim == 4 else x


def pad(x, case, value=0.0):
    top, left, bottom, right = case.attributes["padding"]
    return F.pad(nchw(x), (left, right, top, bottom), value=value)


def is_native(case):
    """PyTorch's own padding can express the case."""
    top, left, bottom, right = case.attributes["padding"]
    kh, kw = case.attributes["kernel"]
    return top == bottom <= kh // 2 and left == right <= kw // 2


def conv2d(case, x, weight, bias=None):
    groups = case.attributes.get("groups", case.inputs[0][-1])
    return nhwc(F.conv2d(pad(x, case), weight.movedim(-1, 1), bias, case.attributes["stride"], groups=groups))


def max_pool(case, x):
    a = case.attributes
    if is_native(case):
        return nhwc(F.max_pool2d(nchw(x), a["kernel"], a["stride"], a["padding"][:2], ceil_mode=a["ceil_mode"]))
    out = F.max_pool2d(pad(x, case, -torch.inf), a["kernel"], a["stride"], ceil_mode=a["ceil_mode"])
    return nhwc(out)[:, : case.output[0], : case.output[1]]


def avg_pool(case, x):
    a = case.attributes
    window = {"kernel_size": a["kernel"], "stride": a["stride"], "ceil_mode": a["ceil_mode"]}
    if is_native(case):
        include = a["count_include_pad"]
        return nhwc(F.avg_pool2d(nchw(x), padding=a["padding"][:2], count_include_pad=include, **window))
    if a["count_include_pad"]:
        out = F.avg_pool2d(pad(x, case), **window)
    else:
        total = F.avg_pool2d(pad(x, case), divisor_override=1, **window)
        out = total / F.avg_pool2d(pad(torch.ones_like(x), case), divisor_override=1, **window)
    return nhwc(out)[:, : case.output[0], : case.output[1]]


def batch_norm(case, x, weight, bias, running_mean, running_var):
    a = case.attributes
    out = F.batch_norm(nchw(x), running_mean, running_var, weight, bias, not a["frozen"], a["momentum"], a["epsilon"])
    return nhwc(out)


def softmax_cross_entropy(case, x, labels, targets=None):
    if targets is not None:  # PyTorch's own divides by the batch where targets are probabilities, not by the weights
        weights = torch.tensor(case.attributes["class_weights"] or [1.0] * x.shape[-1], dtype=x.dtype)
        known = labels >= 0
        shares = F.cross_entropy(x[known], targets[known], weights, reduction="sum")
        return (shares / weights[labels[known].long()].sum()).reshape(1, 1)
    weights, smoothing = case.attributes["class_weights"], case.attributes["label_smoothing"]
    weights = torch.tensor(weights, dtype=x.dtype) if weights else None
    return F.cross_entropy(x, labels.long(), weights, ignore_index=-1, label_smoothing=smoothing).reshape(1, 1)


TORCH = {
    "conv2d": conv2d, "depthwise_conv2d": conv2d, "max_pool": max_pool, "avg_pool": avg_pool,
    "global_avg_pool": lambda case, x: x.mean((1, 2)),
    "dense": lambda case, x, weight, bias=None: F.linear(x, weight, bias), "relu": lambda case, x: F.relu(x),
    "relu6": lambda case, x: F.relu6(x), "sigmoid": lambda case, x: torch.sigmoid(x),
    "hard_sigmoid": lambda case, x: F.relu6(x + 3) / 6,  # F.hardsigmoid's gradient in float64 has 1 / 6 in float32
    "hard_swish": lambda case, x: F.hardswish(x), "silu": lambda case, x: F.silu(x),
    "softmax": lambda case, x: F.softmax(x, -1), "softmax_cross_entropy": softmax_cross_entropy,
    "concat": lambda case, *x: torch.cat(x, -1), "add": lambda case, x, y: x + y,
    "multiply": lambda case, x, factor: x * factor[:, None, None], "batch_norm": batch_norm,
    "flatten": lambda case, x: x.flatten(1),
}  # fmt: skip
"""All ops but photo and dropout, whose random numbers are ours."""


def answer(case):
    """PyTorch's `wanted` (`tests.helpers.shapes.Problem`) of one case."""
    given = {k: torch.tensor(v if k == "labels" else v.astype(np.float64)) for k, v in arrays(case).items()}
    dy = given.pop("dy")
    for name, tensor in given.items():
        tensor.requires_grad_(name not in ("labels", "targets") and not name.startswith("running"))
    before = TORCH[case.op](case, *given.values())
    out = ACTIVATIONS[case.activation](before)
    if case.op == "softmax_cross_entropy":
        dy = dy[:1]  # the output is the loss itself here, and each photo's share of it there
    (out * torch.tensor(smooth_gradient(case, before.detach().numpy(), dy.numpy()))).sum().backward()
    wanted = {"out": out.detach()}
    for name, tensor in given.items():
        if tensor.requires_grad and not (case.attributes.get("frozen") and name in ("weight", "bias")):
            wanted[f"d{name}"] = tensor.grad
        elif name.startswith("running") and not case.attributes["frozen"]:
            wanted[name] = tensor
    return {name: tensor.numpy() for name, tensor in wanted.items()}


def make_optimizer(ours, groups, rate):
    """PyTorch's optimizer of the same settings; `groups` say what decays."""
    if ours.name == "sgd":
        return torch.optim.SGD(groups, rate, ours.momentum, nesterov=ours.nesterov)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[ours.name]
    return kind(groups, rate, (ours.beta1, ours.beta2), ours.epsilon)


def updated(optimizer, rate):
    """Weights after each step of PyTorch's optimizer, ``(steps, weights)``."""
    start = torch.tensor(update_weights())
    half = len(start) // 2
    parts = [start[:half].clone().requires_grad_(), start[half:].clone().requires_grad_()]
    groups = [{"params": parts[:1], "weight_decay": optimizer.weight_decay}, {"params": parts[1:], "weight_decay": 0.0}]
    theirs = make_optimizer(optimizer, groups, rate)
    weights = []
    for gradient in torch.tensor(update_gradients()):
        for part, own in zip(parts, (gradient[:half], gradient[half:]), strict=True):
            part.grad = own.clone()
        if optimizer.clip_norm:
            torch.nn.utils.clip_grad_norm_(parts, optimizer.clip_norm)
        theirs.step()
        weights.append(torch.cat(parts).detach().numpy().copy())
    return np.array(weights)


def main():
    made = {f"update/{name}": updated(*settings) for name, settings in UPDATES.items()}
    for op in OPS:
        for i, case in enumerate(cases(op) if op in TORCH else ()):
            made[f"{op}/{i}/label"] = np.array(label(case))
            made |= {f"{op}/{i}/{name}": digest(array) for name, array in answer(case).items()}
    np.savez_compressed(FOLDER / "ops.npz", **made)


if __name__ == "__main__":
    main()
