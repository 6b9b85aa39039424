"""The builder's sentences, and crafted graphs that `check` must refuse without taking memory."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from core.errors import ModelFileError
from core.graph import LABEL, PHOTO, Graph, Node, Parameter
from core.models import build
from core.ops.builder import MAX_NODES, Builder, check, with_loss
from core.ops.photo import MAX_SIDE


def started(shape=(32, 32, 3)):
    return Builder("small", shape, (0.5,) * shape[-1], (0.25,) * shape[-1])


@pytest.mark.parametrize(("op", "inputs", "attributes", "sentence"), [
    ("convolve", ("photo",), {}, "There is no op 'convolve'"),
    ("relu", ("nowhere",), {}, "which are not defined before it"),
    ("relu", ("photo",), {"slope": 1}, "has no attribute"), ("relu", ("photo", "photo"), {}, "exactly one input"),
    ("relu", (LABEL,), {}, "exactly one input"), ("conv2d", ("photo",), {}, "filters must be a whole number from 1"),
    ("conv2d", ("photo",), {"filters": True}, "filters must be a whole number"),
    ("conv2d", ("photo",), {"filters": 4, "kernel": (0, 3)}, "kernel must be 2 whole numbers from 1"),
    ("conv2d", ("photo",), {"filters": 4, "kernel": (3,)}, "kernel must be 2 whole numbers"),
    ("conv2d", ("photo",), {"filters": 4, "kernel": (1.0, 1.0)}, "kernel must be 2 whole numbers"),
    ("conv2d", ("photo",), {"filters": 4, "stride": (0, 1)}, "stride must be"),
    ("conv2d", ("photo",), {"filters": 4, "padding": (-1, 0, 0, 0)}, "padding must be 4 whole numbers"),
    ("max_pool", ("photo",), {"kernel": (2, 2), "padding": (0, 0, 2, 0)}, "smaller than the kernel"),
    ("conv2d", ("photo",), {"filters": 4, "kernel": (40, 1)}, "larger than the padded height"),
    ("conv2d", ("photo",), {"filters": 4, "groups": 2}, "must divide the 3 channels"),
    ("conv2d", ("photo",), {"filters": 4, "bias": 1}, "bias must be true or false"),
    ("conv2d", ("photo",), {"filters": 1 << 30, "kernel": (32, 32)}, "too many"),
    ("conv2d", ("photo",), {"filters": 4, "init": 3}, "init must be a text"),
    ("max_pool", ("photo",), {"ceil_mode": "yes"}, "ceil_mode must be true or false"),
    ("avg_pool", ("photo",), {"count_include_pad": 0}, "count_include_pad must be true or false"),
    ("dense", ("photo",), {"units": 3}, "put a flatten before it"),
    ("batch_norm", ("photo",), {"epsilon": float("nan")}, "epsilon must be a number"),
    ("batch_norm", ("photo",), {"epsilon": 0.0}, "epsilon must be a number"),
    ("dropout", ("photo",), {"rate": 1.0}, "rate must be a number from 0 to 0.99"),
    ("dropout", ("photo",), {"rate": float("inf")}, "rate must be a number"),
    ("dropout", ("photo",), {"key": -1}, "key must be a whole number"),
    ("add", ("photo",), {}, "two inputs of one shape"), ("add", ("photo", LABEL), {}, "two inputs of one shape"),
    ("concat", (), {}, "differ only in their channels"),
    ("concat", ("photo", LABEL), {}, "differ only in their channels"),
    ("softmax_cross_entropy", ("photo", LABEL), {}, "takes logits"),
    ("photo", (), {}, "first node of a graph and no other"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_sentence(op, inputs, attributes, sentence):
    with pytest.raises(ValueError, match=sentence):
        started().add(op, "node", *inputs, **attributes)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, -1.0), (1.0, 2.0, float("nan"))])
def test_class_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ValueError, match="class_weights must be"):
        with_loss(build("mlp", 3, image_size=16), 0.0, weights)


@pytest.mark.parametrize(("shape", "mean", "std"), [
    ((32, 32), (0.5,) * 3, (0.5,) * 3), ((32, 32, 4), (0.5,) * 4, (0.5,) * 4), ((0, 32, 3), (0.5,) * 3, (0.5,) * 3),
    ((MAX_SIDE + 1, 32, 3), (0.5,) * 3, (0.5,) * 3), ((32, 32, 3), (0.5,), (0.5,) * 3),
    ((32, 32, 3), (0.5,) * 3, (0.5, 0.0, 0.5)), ((32, 32, 3), (float("nan"),) * 3, (0.5,) * 3),
])  # fmt: skip
def test_photos_that_make_no_sense_are_refused(shape, mean, std):
    with pytest.raises(ValueError, match=r"[Aa] photo|list of numbers"):
        Builder("small", shape, mean, std)


def with_node(index, **changes):
    graph = build("cnn", 3, image_size=16)
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)
    return replace(graph, nodes=tuple(nodes))


def with_last(name):
    return replace(with_node(-1, name=name), output=name)


HUGE = Parameter("weight", (1 << 40, 1 << 40))
CRAFTED = {
    "no nodes": lambda: Graph("empty", (), "photo"), "no photo": lambda: with_node(0, op="relu"),
    "photo of another name": lambda: with_node(0, name="image"),
    "photo with strange attributes": lambda: with_node(0, attributes={key: (1.0,) * 3 for key in ("mean", "std", "x")}),
    "huge photo": lambda: with_node(0, shape=(1 << 30, 1 << 30, 3)),
    "promised shape": lambda: with_node(1, shape=(16, 16, 9)),
    "huge promised parameter": lambda: with_node(1, parameters=(HUGE,)),
    "missing parameter": lambda: with_node(1, parameters=()), "unknown op": lambda: with_node(2, op="execute"),
    "loop": lambda: with_node(1, inputs=("relu1",)), "twice the same name": lambda: with_last("conv1"),
    "node named label": lambda: with_last(LABEL),
    "attribute of another kind": lambda: with_node(1, attributes=MappingProxyType({"filters": "8"})),
    "a second photo": lambda: with_node(1, op="photo"),
    "no output": lambda: replace(build("cnn", 3, image_size=16), output="nowhere"),
    "too many nodes": lambda: replace(graph := build("mlp", 3, image_size=16), nodes=(
        graph.nodes[0], *(Node(f"r{i}", "relu", (PHOTO,), graph.photo_shape) for i in range(MAX_NODES))), output=PHOTO),
}  # fmt: skip


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_graphs_are_refused(name):
    with pytest.raises(ModelFileError, match="network in this file"):
        check(CRAFTED[name]())


def test_check_completes_attributes_that_a_file_leaves_out():
    graph = build("cnn", 3, image_size=16)
    short = MappingProxyType({k: v for k, v in graph.nodes[1].attributes.items() if k not in ("stride", "groups")})
    nodes = (graph.nodes[0], replace(graph.nodes[1], attributes=short), *graph.nodes[2:])
    assert check(replace(graph, nodes=nodes)) == graph
