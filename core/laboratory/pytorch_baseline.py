"""PyTorch as the baseline of the laboratory: the same networks, weights, images and steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from core.data.dataset import ReportStage, ignore
from core.errors import DeviceError
from core.graph import Attributes, Graph
from core.laboratory.digits import Lesson, Outcome, lesson_network, normalised, time_training
from core.models.init import initial_weights
from core.ops.contract import Array
from core.ops.flatten import to_torch
from core.ops.window import read_window

NAME: Final = "PyTorch"
NO_GPU: Final = "The installed PyTorch, the baseline, cannot use the GPU. Install its build for CUDA."
MISSING: Final = "PyTorch, the baseline, is not installed. Install it with: pip install '.[compare]'"


def problem(device: str) -> str | None:
    """Return why PyTorch cannot run on the device, as a sentence, or None."""
    if find_spec("torch") is None:
        return MISSING
    torch: Any = import_module("torch")
    return NO_GPU if device == "cuda" and not torch.cuda.is_available() else None


def run_torch(
    lesson: Lesson, device: str, train: tuple[Array, Array], test: tuple[Array, Array] | None,
    report: ReportStage = ignore,
) -> Outcome:  # fmt: skip
    """Run the lesson in PyTorch: float32, plain SGD, all cores or the GPU. Check `problem` first."""
    torch: Any = import_module("torch")
    graph = lesson_network(lesson)
    weights = parameters_of(graph, initial_weights(graph, 0), device)
    net, optimizer = partial(run_graph, graph, weights), torch.optim.SGD(weights.values(), lesson.learning_rate)

    def step(x: Any, y: Any) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())  # waits for the device

    def prepare(photos: Array, labels: Array) -> Callable[[], float]:
        return partial(step, _photos(torch, photos, device), torch.from_numpy(labels).long().to(device))

    seconds, loss = time_training(lesson, train, prepare, report)
    return Outcome(NAME, seconds, loss, None if test is None else _accuracy(torch, net, device, *test))


def _photos(torch: Any, photos: Array, device: str) -> Any:
    return torch.from_numpy(normalised(photos)).permute(0, 3, 1, 2).to(device)


def _accuracy(torch: Any, net: Any, device: str, photos: Array, labels: Array) -> float:
    with torch.no_grad():
        parts = [net(_photos(torch, photos[i : i + 1000], device)).argmax(-1) for i in range(0, len(photos), 1000)]
    return float((torch.cat(parts).cpu().numpy() == labels).mean())


def parameters_of(graph: Graph, weights: Mapping[str, Array], device: str) -> dict[str, Any]:
    """Weights of a graph as PyTorch's, on the device, with gradients."""
    torch: Any = import_module("torch")
    named = to_torch(graph, weights)
    return {name: torch.tensor(np.array(array), device=device, requires_grad=True) for name, array in named.items()}


def run_graph(graph: Graph, weights: Mapping[str, Any], photos: Any) -> Any:
    """Logits of a graph of convolutions in PyTorch, without dropout. Raises DeviceError for an op it does not know."""
    values = {graph.nodes[0].name: photos}
    for node in graph.nodes[1:]:
        known = _OPS.get(node.op)
        if known is None:
            raise DeviceError(f"The baseline in PyTorch has no {node.op} ({node.name}).")
        owned = [weights.get(f"{node.name}.{role}") for role in ("weight", "bias", "running_mean", "running_var")]
        functional: Any = import_module("torch.nn.functional")
        values[node.name] = known(functional, node.attributes, [values[name] for name in node.inputs], *owned)
    return values[graph.output]


def _conv(f: Any, attributes: Attributes, x: list[Any], weight: Any, bias: Any, *_: Any) -> Any:
    window = read_window(attributes)
    top, left, bottom, right = window.padding
    even = (top, left) == (bottom, right)
    padded = x[0] if even else f.pad(x[0], (left, right, top, bottom))
    groups = int(str(attributes.get("groups", x[0].shape[1])))  # a depthwise convolution has no such attribute
    return f.conv2d(padded, weight, bias, window.stride, (top, left) if even else 0, 1, groups)


def _max_pool(f: Any, attributes: Attributes, x: list[Any], *_: Any) -> Any:
    window = read_window(attributes)
    return f.max_pool2d(x[0], window.kernel, window.stride, window.padding[:2], 1, bool(attributes["ceil_mode"]))


def _batch_norm(f: Any, attributes: Attributes, x: list[Any], weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
    moving = mean.detach(), variance.detach()
    return f.batch_norm(x[0], *moving, weight, bias, True, attributes["momentum"], attributes["epsilon"])


_OPS: Final[Mapping[str, Callable[..., Any]]] = {
    "conv2d": _conv, "depthwise_conv2d": _conv, "max_pool": _max_pool, "batch_norm": _batch_norm,
    "relu": lambda f, attributes, x, *_: f.relu(x[0]),
    "relu6": lambda f, attributes, x, *_: f.relu6(x[0]),
    "add": lambda f, attributes, x, *_: x[0] + x[1],
    "concat": lambda f, attributes, x, *_: import_module("torch").cat(x, 1),
    "dropout": lambda f, attributes, x, *_: x[0],
    "flatten": lambda f, attributes, x, *_: x[0].flatten(1),
    "dense": lambda f, attributes, x, weight, bias, *_: f.linear(x[0], weight, bias),
    "global_avg_pool": lambda f, attributes, x, *_: x[0].mean((2, 3)),
}  # fmt: skip
