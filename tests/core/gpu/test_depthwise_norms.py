"""A depthwise convolution between two batch norms: the launches of all three, run as plain Python in turn."""

import numpy as np
import pytest

from core.gpu.ops.norm import pointwise_launches
from core.ops.builder import Builder, with_loss
from core.ops.contract import Call, Mode
from core.ops.op_table import OPS
from tests.helpers.compare import relative_error
from tests.helpers.emulated_network import PHOTOS, REAL, Lowered, exact, references
from tests.helpers.gpu_network import relative

AROUND = ("before", "filter", "after")


def network(height, width, channels, stride, activation):
    b = Builder("small", (height, width, 3), (0.5,) * 3, (0.5,) * 3)
    x = b.add("conv2d", "expand", "photo", filters=channels, bias=False)
    x = b.add("batch_norm", "before", x)
    x = b.add(activation, "first", x) if activation else x
    x = b.add("depthwise_conv2d", "filter", x, kernel=(3, 3), stride=(stride,) * 2, padding=(1,) * 4, bias=False)
    x = b.add("relu6", "second", b.add("batch_norm", "after", x))
    return with_loss(b.graph(b.add("dense", "classes", b.add("global_avg_pool", "pool", x), units=4)), 0.0, ())


def draw_weights(graph, element):
    draw, weights = np.random.default_rng(5), {}
    for name, p in graph.parameters().items():
        around_one = name.endswith("_var") or name in ("before.weight", "after.weight")
        values = draw.uniform(0.5, 1.5, p.shape) if around_one else draw.normal(0, 1, p.shape)
        weights[name] = exact(values, element) if name == "filter.weight" else values.astype(np.float32)
    return weights


CASES = [
    ("float32", 5, 5, 12, 1, "relu6"), ("float32", 6, 9, 8, 2, "relu6"), ("float32", 7, 7, 4, 2, "relu"),
    ("float32", 4, 3, 4, 1, ""), ("mixed", 5, 8, 24, 1, "relu6"), ("mixed", 8, 7, 8, 2, "relu6"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_three_steps_in_one_pass_are_the_references(case):
    precision, height, width, channels, stride, activation = case
    graph = network(height, width, channels, stride, activation)
    lowered = Lowered(graph, precision)
    element = lowered.frame.element
    weights, draw = draw_weights(graph, element), np.random.default_rng(1)
    x = exact(draw.normal(0.3, 2, (PHOTOS, height, width, channels)), element)
    before, after = lowered.steps["before"], lowered.steps["after"]
    lowered.put_weights(weights)
    lowered.put(before.inputs[0], x)
    finish = next(n for n in lowered.frame.launches if n.layer == "before" and n.kernel == "finish")
    sums = np.zeros((finish.values[9], 2, finish.values[11]), np.float32)  # the convolution would have left them
    sums[0, :, : x.shape[-1]] = [(x[:REAL].astype(np.float64) ** power).sum((0, 1, 2)) for power in (1, 2)]
    lowered.memory.put(finish.values[0], sums)
    lowered.run(True, AROUND)
    y = lowered.get(after.output)
    g = np.zeros((PHOTOS, *after.output.shape), np.float32)
    g[:REAL] = exact(draw.normal(0, 1, y.shape), element) * ((y > 0) & (y < 6))
    g[REAL:] = np.nan  # a missing photo's gradient is never looked at
    lowered.put(after.output, g, gradient=True)
    lowered.run(False, AROUND)
    middle, last = lowered.steps["filter"].output, after.output
    values = {before.inputs[0].buffer: x[:REAL].astype(np.float64)}
    gradients = {last.buffer: g[:REAL].astype(np.float64)}
    done, parameters = references(lowered, weights, AROUND, values, gradients)
    limit = 1e-5 if element == 4 else 2e-2
    assert relative_error(lowered.get(middle), values[middle.buffer]) < limit
    assert relative_error(y, values[last.buffer]) < limit
    for name, wanted in parameters.items():
        assert relative_error(lowered.gradient(name), wanted) < limit, name
    for role in ("running_mean", "running_var"):
        assert relative_error(lowered.running(f"after.{role}"), done["after"].updated[role]) < limit
    assert relative_error(lowered.get(before.inputs[0], True), gradients[before.inputs[0].buffer]) < limit


def residual(height, width, narrow, wide, project):
    """Expand, filter, project, as in MobileNetV2, behind a first convolution and its batch norm."""
    b = Builder("small", (height, width, 3), (0.5,) * 3, (0.5,) * 3)
    x = b.add("batch_norm", "stem_norm", b.add("conv2d", "stem", "photo", filters=narrow, bias=False))
    x = b.add("relu6", "first", b.add("batch_norm", "before", b.add("conv2d", "expand", x, filters=wide, bias=False)))
    x = b.add("depthwise_conv2d", "filter", x, kernel=(3, 3), padding=(1,) * 4, bias=False)
    x = b.add("relu6", "second", b.add("batch_norm", "after", x))
    x = b.add("batch_norm", "last", b.add("conv2d", "project", x, filters=project, bias=False))
    return with_loss(b.graph(b.add("dense", "classes", b.add("global_avg_pool", "pool", x), units=4)), 0.0, ())


NAMES = ("expand", "before", "filter", "after", "project", "last")


def test_an_inverted_residual_in_passes_over_its_wide_side_is_the_references(monkeypatch):
    """Each step against the reference on the very arrays that the kernels had; one block computes two tiles."""
    for blocks in pointwise_launches.RESIDENT.values():
        monkeypatch.setitem(blocks, 32, 1)
    graph = residual(5, 7, 16, 32, 16)
    lowered = Lowered(graph, "mixed")
    assert {n.recipe.factory for n in lowered.frame.launches} >= {"make_wide", "make_narrow"}
    weights, draw = draw_weights(graph, 2), np.random.default_rng(1)
    weights |= {n: exact(draw.normal(0, weights[n].shape[-1] ** -0.5, weights[n].shape), 2) for n in
                ("expand.weight", "project.weight")}  # fmt: skip
    first, last = lowered.steps["expand"].inputs[0], lowered.steps["last"].output
    x = exact(draw.normal(0.3, 1, (PHOTOS, *first.shape)), 2)
    g = exact(draw.normal(0, 1, (PHOTOS, *last.shape)), 2)
    lowered.put_weights(weights)
    lowered.put(first, x)
    lowered.run(True, NAMES)
    lowered.put(last, g, gradient=True)
    lowered.run(False, NAMES)
    value, done = x[:REAL].astype(np.float64), {}
    for name in NAMES:
        step = lowered.steps[name]
        owned = {p.role: weights[f"{name}.{p.role}"].astype(np.float64) for p in step.parameters}
        call = Call(step.attributes, [value], owned, Mode(training=True))
        done[name] = step, call, (result := OPS[step.op].forward(call))
        stored = name in ("expand", "filter", "project", "last")
        assert not stored or relative(lowered.get(step.output), result.output) < 1e-2, name
        value = lowered.get(step.output).astype(np.float64) if stored else result.output
        value = np.clip(value, 0, 6) if step.activation else value
    dy = g[:REAL].astype(np.float64)
    for i, name in reversed(list(enumerate(NAMES))):
        step, call, result = done[name]
        back = OPS[step.op].backward(call, result, dy)
        for role, wanted in back.parameters.items():
            assert relative(lowered.gradient(f"{name}.{role}"), wanted) < 1e-2, (name, role)
        dy = back.inputs[0]
        if name not in ("after", "before"):  # the gradients of their inputs are never stored
            y = done[NAMES[i - 1]][-1].output if name in ("project", "filter") else None
            wanted = dy if y is None else dy * ((y > 0) & (y < 6))
            dy = lowered.get(step.inputs[0], True).astype(np.float64)
            assert relative(dy, wanted) < 1e-2, name
