"""Networks side by side under one head: the mean of their logits, and an ordinary network to everything else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from core.arena import lay_out
from core.cpu.plan import CpuPlan
from core.device import PhotoBatch
from core.diagnosis.class_map import class_map
from core.diagnosis.features import feature_node, head_node, pool
from core.errors import ModelFileError
from core.gpu.compilation.compiler import compile_kernel
from core.graph import PHOTO, from_json, to_json
from core.models import build
from core.models.joined import MAPS, count_joined, first_joined, join_graphs, join_weights
from core.onnx import read_onnx, write_onnx, write_quantised_onnx
from core.onnx.quantisation import quantise, simulate
from core.ops.builder import Builder, check
from core.ops.network import forward
from core.ops.photo import identity_rows, transform
from core.program import fold_batch_norm, fold_weights
from tests.core.gpu.test_lowering import lowered
from tests.core.onnx.test_quantisation import alike, network, seen_ranges, session
from tests.helpers.compare import assert_close
from tests.helpers.gpu_network import random_weights

SIZE, CLASSES = 64, 5


def photos(count=2, size=SIZE):
    return np.random.default_rng(3).normal(0, 1, (count, size, size, 3)).astype(np.float32)


def members(count=2, **options):
    graphs = [build("mobilenetv2", CLASSES, SIZE, **options) for _ in range(count)]
    return graphs, [random_weights(graph, seed) for seed, graph in enumerate(graphs)]


@pytest.fixture(scope="module")
def pair():
    """(the joined graph, its weights, the networks it is of, their weights), batch norm folded."""
    graphs, weights = members(dropout=0.2)
    joined = join_graphs(graphs)
    own = join_weights(graphs, weights)
    return fold_batch_norm(joined), fold_weights(joined, own), graphs, weights


@pytest.mark.parametrize("count", [2, 3])
def test_its_logits_are_the_mean_of_theirs(count):
    graphs, weights = members(count, dropout=0.2)
    joined, own = join_graphs(graphs), join_weights(graphs, weights)
    assert set(own) == set(joined.parameters())
    assert all(own[name].dtype == np.float32 for name in own)
    exact = photos().astype(np.float64)
    theirs = [forward(g, {n: a.astype(np.float64) for n, a in w.items()}, exact)[g.output]
              for g, w in zip(graphs, weights, strict=True)]
    ours = forward(joined, {n: a.astype(np.float64) for n, a in own.items()}, exact)[joined.output]
    assert_close(ours, np.mean(theirs, axis=0), 1e-6)  # the head's weights are rounded once
    assert np.abs(theirs[0] - theirs[1]).max() > 0.1 * np.abs(ours).max()
    assert not any(node.op == "dropout" for node in joined.nodes)


def test_it_is_an_ordinary_graph(pair):
    joined, _, graphs, _ = pair
    assert check(joined) == joined
    assert from_json(to_json(joined)) == joined
    assert joined.name == "mobilenetv2+mobilenetv2"
    assert (joined.classes, joined.photo_shape) == (CLASSES, graphs[0].photo_shape)
    assert count_joined(joined) == 2
    assert count_joined(graphs[0]) == 1


def test_class_maps_and_features_are_of_all_maps_and_exact(pair):
    joined, weights, _, _ = pair
    values = forward(joined, weights, photos(1))
    assert feature_node(joined) == MAPS
    features, logits = values[MAPS][0], values[joined.output][0]
    head = head_node(joined).name
    assert pool(features[None]).shape == (1, 2560)
    for index in range(CLASSES):
        evidence = features @ weights[f"{head}.weight"][index]
        assert evidence.mean() + weights[f"{head}.bias"][index] == pytest.approx(float(logits[index]), abs=1e-4)
        assert class_map(joined, weights, features, index) == pytest.approx(np.maximum(evidence, 0))


@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (3, 2), (3, 1)])
def test_the_cpu_plan_agrees_with_the_reference_in_float64(pair, batch, threads):
    joined, weights, _, _ = pair
    plan = CpuPlan(joined, batch=batch, training=False, threads=threads, outputs=(MAPS,))
    plan.load(weights)
    squares = np.random.default_rng(5).integers(0, 256, (batch, 70, 70, 3), dtype=np.uint8)
    rows = identity_rows(batch, (70, 70), (SIZE, SIZE))
    got = plan.predict(PhotoBatch(squares, rows, np.full(batch, -1, np.int32)))
    plan.close()
    photo = joined.node(PHOTO).attributes
    inputs = transform(squares, rows, (SIZE, SIZE), photo["mean"], photo["std"]).astype(np.float64)
    want = forward(joined, {n: a.astype(np.float64) for n, a in weights.items()}, inputs)
    assert_close(got["logits"], want[joined.output], 1e-4)
    assert_close(got[MAPS], want[MAPS], 1e-4)


def test_onnx_gives_the_same_bits_back_and_onnxruntime_the_same_logits(pair, tmp_path):
    joined, weights, _, _ = pair
    data = write_onnx(joined, weights)
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {session.get_inputs()[0].name: photos().transpose(0, 3, 1, 2)})[0]
    ours = forward(joined, weights, photos())[joined.output]
    assert_close(theirs, ours, 1e-4)
    (tmp_path / "pair.onnx").write_bytes(data)
    back = read_onnx(tmp_path / "pair.onnx")
    assert back.weights.keys() == weights.keys()
    assert all(np.array_equal(back.weights[name], weights[name]) for name in weights)
    assert count_joined(back.graph) == 2
    assert write_onnx(back.graph, back.weights) == data


def test_in_eight_bits_it_answers_as_onnxruntime_does():
    alone, weights, seen = network("mobilenetv2")
    rng = np.random.default_rng(0)
    noisy = {name: array * rng.normal(1, 0.05, array.shape).astype(np.float32) for name, array in weights.items()}
    joined, own = join_graphs([alone] * 2), join_weights([alone] * 2, [weights, noisy])
    quantised = quantise(joined, own, seen_ranges(joined, own, seen))
    scales = {quantised.scales[name] for name in (*joined.node(MAPS).inputs, MAPS)}
    assert len(scales) == 1  # what stands side by side is not rounded twice
    theirs = session(write_quantised_onnx(quantised)).run(None, {PHOTO: seen.transpose(0, 3, 1, 2)})[0]
    assert alike(simulate(quantised, seen), theirs) > 0.9  # as of one network there


@pytest.mark.parametrize("precision", ["mixed", "float32"])
@pytest.mark.parametrize("training", [True, False])
def test_the_gpu_has_launches_and_memory_for_it(precision, training):
    joined = join_graphs(members()[0])
    for hopper in (True, False):
        frame = lowered(joined, precision, training, batch=4, hopper=hopper)
        assert lay_out(frame.lifetimes()).bytes > 0
        assert all(len(launch.values) == len(launch.recipe.kinds) for launch in frame.launches)


def test_its_kernels_compile_for_the_gpu():
    alone, joined = (lowered(graph, training=False, batch=1) for graph in (members()[0][0], join_graphs(members()[0])))
    known = {launch.recipe for launch in alone.launches}
    new = {launch.recipe for launch in joined.launches} - known
    assert len(joined.launches) > 1.8 * len(alone.launches)
    for recipe in new:
        assert ".entry" in compile_kernel(recipe, (9, 0))[0]


def test_the_first_network_comes_out_of_it_again(pair):
    joined, weights, graphs, own = pair
    alone, first = first_joined(joined, weights)
    assert alone.name == "mobilenetv2"
    assert set(first) == set(alone.parameters())
    bias = np.mean([w["classifier.1.bias"] for w in own], axis=0) - own[0]["classifier.1.bias"]
    want = forward(graphs[0], own[0], photos())[graphs[0].output]
    assert_close(forward(alone, first, photos())[alone.output], want + bias, 1e-4)
    same, kept = first_joined(graphs[0], own[0])
    assert same is graphs[0]
    assert kept == own[0]


def other(**changes):
    values = {"classes": CLASSES, "size": SIZE, "mean": (0.5, 0.5, 0.5), **changes}
    b = Builder("other", (values["size"], values["size"], 3), values["mean"], (0.25, 0.25, 0.25))
    x = b.add("conv2d", "a", PHOTO, filters=8, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    x = b.add("global_avg_pool", "p", b.add("relu", "r", x))
    return b.graph(b.add("dense", "d", x, units=values["classes"]))


@pytest.mark.parametrize(
    ("graphs", "sentence"),
    [
        ([build("squeezenet1_1", 3, 64)] * 2, "squeezenet1_1 cannot be joined with others: only networks that end"),
        ([build("cnn", 3, 32)] * 2, "cnn cannot be joined"),
        ([build("mlp", 3, 32)] * 2, "mlp cannot be joined"),
        ([other(), other(classes=6)], "6 classes apart and other 5"),
        ([other(), other(size=32)], "sees other photos than other"),
        ([other(), other(mean=(0.5, 0.5, 0.4))], "sees other photos than other"),
        ([build("mobilenetv2", CLASSES, SIZE), other()], "sees other photos"),
    ],
)
def test_what_has_no_mean_of_logits_in_one_layer_is_refused(graphs, sentence):
    with pytest.raises(ModelFileError, match=sentence):
        join_graphs(graphs)


def test_maps_of_different_sizes_are_refused():
    graph, small = build("mobilenetv2", CLASSES, SIZE), other()
    seen_alike = replace(small, nodes=(replace(small.nodes[0], attributes=graph.nodes[0].attributes), *small.nodes[1:]))
    with pytest.raises(ModelFileError, match="cannot stand side by side"):
        join_graphs([graph, seen_alike])
