"""Networks of ours to ONNX and back: accepted by the checker, run by onnxruntime, read back to the same bits."""

import json

import numpy as np
import onnx
import pytest

from core.errors import ModelFileError
from core.onnx import read_onnx, write_onnx
from core.onnx.runtime import compute_output
from core.onnx.writer import WRITERS
from core.ops.builder import Builder
from core.ops.network import forward
from core.ops.op_table import LOSSES, OPS
from tests.helpers.compare import assert_close
from tests.helpers.golden import each_network, golden_training, weights_of
from tests.helpers.noise import noise
from tests.helpers.shapes import cases, label

ON_IMAGES = [op for op in OPS if op != "photo" and [*map(len, cases(op)[0].inputs), len(cases(op)[0].output)] == [3, 3]]
CLASSES = ("Rost", "été", "健康", *(f"class {i}" for i in range(7)))


@pytest.fixture
def read_back(tmp_path):
    """Reads the bytes of an ONNX file, with options of `read_onnx`."""

    def read(data, **options):
        (tmp_path / "it.onnx").write_bytes(data)
        return read_onnx(tmp_path / "it.onnx", **options)

    return read


def output(network, photos):
    return forward(network.graph, network.weights, photos)[network.graph.output]


@pytest.mark.parametrize("name", each_network())
def test_a_network_goes_to_onnx_and_comes_back_with_the_same_bits(name, read_back):
    golden = golden_training(name)
    data = write_onnx(golden.graph, golden.weights, CLASSES, temperature=1.25)
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
    assert_close(compute_output(data, golden.inputs()), golden.logits, 1e-4)
    back = read_back(data)
    assert (back.classes, back.temperature, back.preprocessed) == (CLASSES, 1.25, True)
    assert back.weights.keys() == golden.weights.keys()
    assert all(np.array_equal(back.weights[key], golden.weights[key]) for key in golden.weights)
    assert np.array_equal(output(back, golden.inputs()), output(golden, golden.inputs()))
    assert write_onnx(back.graph, back.weights, CLASSES, 1.25) == data
    for ours, theirs in zip(golden.graph.nodes, back.graph.nodes, strict=True):
        assert (ours.name, ours.op, ours.inputs, ours.shape) == (theirs.name, theirs.op, theirs.inputs, theirs.shape)
        assert {**ours.attributes, "init": 0} == {**theirs.attributes, "init": 0}


@pytest.mark.parametrize("op", ON_IMAGES)
def test_every_odd_case_is_written_as_onnxruntime_reads_it_and_comes_back(op, read_back):
    kinds = set()
    for case in (case for case in cases(op) if len(case.output) == 3):
        b = Builder("one", (*case.inputs[0][:2], 3), (0.5,) * 3, (0.25,) * 3)
        x = b.add(op, "odd", b.add("conv2d", "widen", "photo", filters=case.inputs[0][2]), **case.attributes)
        factor = b.add("dense", "factor", b.add("global_avg_pool", "average", x), units=case.output[2])
        graph = b.graph(b.add("global_avg_pool", "pool", b.add("multiply", "scaled", x, factor)))
        data = write_onnx(graph, weights := weights_of(graph))
        onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
        photos = 4 * noise(label(case), (2, *graph.photo_shape)).astype(np.float32)
        ours = forward(graph, weights, photos)[graph.output]
        assert_close(compute_output(data, photos), ours, 1e-5)
        back = read_back(data)
        assert_close(output(back, photos), ours, 1e-6)
        kinds |= {node.op for node in back.graph.nodes}
    assert {op, "multiply"} <= kinds  # of one channel, a depthwise convolution is an ordinary one


@pytest.mark.parametrize("op", ["add", "concat", "softmax"])
def test_features_keep_their_places_between_a_flattened_image_and_a_dense_layer(op):
    b = Builder("one", (6, 7, 3), (0.5,) * 3, (0.25,) * 3)
    image = b.add("conv2d", "conv", "photo", filters=5)
    flat = [b.add("flatten", "flat", image), b.add("flatten", "bent flat", b.add("relu", "bent", image))]
    joined = b.add(op, "joined", *flat[: 1 if op == "softmax" else 2])
    graph = b.graph(b.add("dense", "dense", joined, units=4))
    data, photos = write_onnx(graph, weights := weights_of(graph)), noise(op, (2, 6, 7, 3)).astype(np.float32)
    assert_close(compute_output(data, photos), forward(graph, weights, photos)[graph.output], 1e-5)
    if op == "add":
        more = b.add("add", "uneven", flat[0], b.add("dense", "wide", joined, units=210))
        with pytest.raises(ModelFileError, match="uneven combines features"):
            write_onnx(graph := b.graph(more), weights_of(graph))


def test_every_op_of_a_network_is_written():
    missing = set(OPS) - set(WRITERS) - {"photo", *LOSSES}
    assert not missing, "core/onnx/writer.py and reader.py need an entry for each"


def test_folding_at_the_border_gives_the_same_logits_without_batch_norms(read_back):
    golden = golden_training("mobilenetv2")
    folded = read_back(write_onnx(golden.graph, golden.weights), fold=True)
    assert "batch_norm" not in {n.op for n in folded.graph.nodes}
    assert_close(output(folded, golden.inputs()), golden.logits, 1e-5)


def test_the_preprocessing_is_in_the_file_and_can_be_replaced(read_back):
    golden = golden_training("cnn")
    data = write_onnx(golden.graph, golden.weights, more={"labels": json.dumps((0, 1) * 5)})
    assert (read_back(data).labels, read_back(data).views) == ((0, 1) * 5, 1)
    described = json.loads(next(entry.value for entry in onnx.load_model_from_string(data).metadata_props))
    wanted = {"layout": "NCHW", "colours": "grey", "height": 28, "width": 28, "scale": 1 / 255}
    assert wanted.items() <= described.items()  # other programs read it
    back = read_back(data, mean=(0.25,), std=(0.5,))
    assert (back.graph.nodes[0].attributes["mean"], back.classes, back.temperature) == ((0.25,), (), 1.0)
