"""Counts of the networks are torchvision's; sizes that do not fit are refused."""

import pytest

import core.config
from core.errors import ConfigError, InputError
from core.models import MODELS, build
from core.ops.op_table import OPS


def trained(graph):
    return sum(p.size for p in graph.parameters().values() if p.trained)


@pytest.mark.parametrize(("name", "count"), [
    ("squeezenet1_0", 1_248_424), ("squeezenet1_1", 1_235_496), ("mobilenetv2", 3_504_872),
    ("mobilenetv3_small", 2_542_856), ("mobilenetv3_large", 5_483_032), ("alexnet", 61_100_840),
])  # fmt: skip
def test_parameter_counts_at_1000_classes_are_torchvisions(name, count):
    assert trained(build(name, 1000)) == count


def test_the_table_has_the_names_that_the_configuration_offers():
    assert tuple(MODELS) == core.config.MODELS, "core/config.py and core/models/architectures.py list other networks"


def test_mobilenetv2_has_torchvisions_channels_when_wide():
    wide, plain = build("mobilenetv2_wide", 38, 96), build("mobilenetv2", 38, 96)
    blocks = [wide.node(f"features.{i}").shape[-1] if f"features.{i}" in {n.name for n in wide.nodes}
              else wide.parameters()[f"features.{i}.conv.{1 if i == 1 else 2}.weight"].shape[0] for i in range(1, 18)]
    assert wide.parameters()["features.0.0.weight"].shape == (48, 3, 3, 3)
    assert blocks == [24, *[32] * 2, *[48] * 3, *[88] * 4, *[136] * 3, *[224] * 3, 448]
    assert wide.parameters()["features.18.0.weight"].shape == (1280, 1, 1, 448)
    assert list(wide.parameters()) == list(plain.parameters())


@pytest.mark.parametrize(("name", "simple", "convolutions"), [
    ("squeezenet1_0_bypass", [3, 5, 7, 9], []), ("squeezenet1_1_complex_bypass", [3, 5, 7, 9], [2, 4, 6, 8]),
])  # fmt: skip
def test_bypasses_are_where_the_paper_has_them(name, simple, convolutions):
    graph = build(name, 10, 64)
    fires = [node.name for node in graph.nodes if node.op == "concat"]
    ways = {fires.index(node.inputs[1]) + 2: node.inputs[0] for node in graph.nodes if node.op == "add"}
    assert sorted(ways) == sorted(simple + convolutions)
    assert [fire for fire, way in ways.items() if graph.node(way).op == "conv2d"] == convolutions


def test_squeezenet_needs_the_work_that_is_published_and_the_wide_one_adds_inputs_of_fires():
    # 2 operations a multiply-add: 819 and 349 million multiply-adds in the convolutions.
    for name, macs in (("squeezenet1_0", 819e6), ("squeezenet1_1", 349e6)):
        graph = build(name, 1000)
        flops = sum(OPS["conv2d"].cost(n.attributes, [graph.node(i).shape for i in n.inputs], n.shape).flops
                    for n in graph.nodes if n.op == "conv2d")  # fmt: skip
        assert abs(flops / 2 / macs - 1) < 0.01
    graph = build("squeezenet1_1_wide_bn", 34)
    assert trained(graph) == 1_283_170
    around = [(f"features.{fire}", f"features.{fire + 1}") for fire in (3, 6, 9, 11)]
    assert [node.inputs for node in graph.nodes if node.op == "add"] == around


def test_the_small_networks_have_the_weights_of_the_report_and_take_grey_digits():
    graph = build("cnn", 10, image_size=28, channels=1, padding="valid")
    assert [graph.node(name).shape for name in ("conv1", "conv2", "pool")] == [(24, 24, 8), (20, 20, 8), (10, 10, 8)]
    assert graph.node("dense1").parameters[0].shape in ((128, 800), (800, 128))
    biases = sum(p.size for name in ("dense1", "dense2") for p in graph.node(name).parameters if p.role == "bias")
    assert trained(graph) - biases == 105_496  # the report counts no biases of dense layers
    graph = build("cnn", 10, image_size=28, channels=1, padding="full")
    assert (graph.photo_shape, graph.node("conv2").shape) == ((28, 28, 1), (36, 36, 8))
    assert graph.node("pool").shape == (18, 18, 8)
    assert build("cnn", 10, image_size=28, channels=1).node("conv2").shape == (28, 28, 8)
    assert trained(build("mlp", 10, image_size=28, channels=1)) == 784 * 500 + 500 + 500 * 10 + 10
    assert build("mlp", 10, image_size=28, activation="sigmoid").node("activation").op == "sigmoid"


@pytest.mark.parametrize(("model", "option", "value", "choices"), [
    ("cnn", "padding", "none", "same or full or valid"), ("mobilenetv2", "padding", "valid", "same"),
    ("squeezenet1_1", "padding", "valid", "same"), ("mobilenetv3_small", "padding", "full", "same"),
    ("mlp", "activation", "tanh", "relu or sigmoid"), ("squeezenet1_1", "activation", "sigmoid", "relu"),
])  # fmt: skip
def test_an_option_that_the_network_lacks_is_refused(model, option, value, choices):
    with pytest.raises(InputError, match=f"The {option} of {model} is {choices}, not '{value}'."):
        build(model, 10, **{option: value})


@pytest.mark.parametrize(("name", "classes", "side", "said"), [
    ("squeezenet1_0", 10, 16, "image-size: squeezenet1_0 cannot be built for photos of 16 pixels"),
    ("squeezenet1_1", 0, 64, r"^--classes: must be at least 1 \(it is 0\)\.$"),
    ("vgg16", 10, 64, "'vgg16' is not one of squeezenet1_0"),
])  # fmt: skip
def test_what_cannot_be_built_is_a_problem_of_the_configuration(name, classes, side, said):
    with pytest.raises(ConfigError, match=said):
        build(name, classes, side)
