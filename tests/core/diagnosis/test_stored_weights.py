"""Weights in half precision and in eight bits: what is read is what was written, and crafted steps are refused."""

import numpy as np
import pytest

from core.diagnosis.model_file import EXTRA, ModelFile, in_bits, read_model, write_model
from core.diagnosis.stored_weights import FEWEST, STEPS, round_to_eight_bits, to_tensors
from core.errors import ModelFileError
from core.models import build
from core.tensor_file import read_tensor_file, write_tensor_file
from tests.helpers.gpu_network import random_weights

NAMES = ("mobilenetv2", "squeezenet1_1_bn", "cnn")


def model(name="mobilenetv2", size=32):
    graph = build(name, 3, size)
    return ModelFile(graph, random_weights(graph), ("a", "b", "c"), size)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_is_within_half_a_step_and_nothing_else_changes(name):
    whole = in_bits(model(name), 8)
    assert not any(node.op == "batch_norm" for node in whole.graph.nodes)
    stored = round_to_eight_bits(random_weights(whole.graph))
    for key, array in random_weights(whole.graph).items():
        got = stored.weights[key]
        assert got.dtype == np.float32
        if array.ndim == 1:
            assert got.tobytes() == array.tobytes()
        elif array[0].size < FEWEST:
            assert key not in stored.steps
            np.testing.assert_array_equal(got, array.astype(np.float16).astype(np.float32))
        else:
            step = stored.steps[key].reshape(-1, *(1,) * (array.ndim - 1))
            assert (np.abs(got - array) <= 0.5001 * step).all()
            assert (np.abs(got).reshape(len(got), -1).max(axis=1) > 126 * stored.steps[key]).all()


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", NAMES)
def test_a_rounded_model_comes_back_with_the_same_bits(name, bits, tmp_path):
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    rounded = in_bits(model(name), bits)
    write_model(first, rounded)
    got = read_model(first)
    assert all(got.weights[n].tobytes() == rounded.weights[n].tobytes() for n in rounded.weights)
    write_model(second, got)  # as a card is written into it
    one, two = (read_tensor_file(path, "model", 1) for path in (first, second))
    assert one.header == two.header
    assert {n: (a.dtype, a.tobytes()) for n, a in one.tensors.items()} == {
        n: (a.dtype, a.tobytes()) for n, a in two.tensors.items()
    }
    again = in_bits(got, bits)  # rounding what is rounded changes nothing by more than float32 does
    assert all(np.allclose(again.weights[n], got.weights[n], rtol=1e-6, atol=0) for n in got.weights)
    for key, array in model(name).weights.items() if bits == 16 else ():  # biases and batch norms are not rounded
        np.testing.assert_array_equal(got.weights[key], array if array.ndim == 1 else array.astype(np.float16))


def test_a_file_in_eight_bits_takes_half_of_one_in_half_precision_and_they_take_turns(tmp_path):
    sizes, one, path = {}, model(), tmp_path / "m.safetensors"
    for bits in (8, 16, 32, 8):
        one = in_bits(one, bits)
        assert (bool(one.steps), one.half) == (bits == 8, bits != 32)
        write_model(path, in_bits(model(), bits))
        sizes[bits] = sum(array.nbytes for array in read_tensor_file(path, "model", 1).tensors.values())
    assert sizes[8] < 0.52 * sizes[16]
    assert sizes[16] < 0.56 * sizes[32]
    assert in_bits(one, 16).steps == {}


def test_each_filter_has_a_step_so_that_a_giant_one_takes_nothing_from_the_others():
    stored = round_to_eight_bits({"x.weight": np.zeros((2, 4, 4, 1), np.float32)})
    assert stored.steps["x.weight"].tolist() == [1, 1]
    assert not stored.weights["x.weight"].any()
    assert not to_tensors(stored)["x.weight"].any()
    array = np.random.default_rng(0).normal(0, 1, (3, 32)).astype(np.float32) * np.float32([[1e-20], [1], [1e20]])
    got = round_to_eight_bits({"x.weight": array}).weights["x.weight"]
    assert (np.abs(got - array).max(axis=1) / np.abs(array).max(axis=1) < 0.5 / 126).all()


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda t, n: t.pop(STEPS + n), "is stored in 8 bits, but its scales are missing"),
    (lambda t, n: t.update({STEPS + n: t[STEPS + n][:-1]}), "one float32 for each output channel"),
    (lambda t, n: t.update({STEPS + n: t[STEPS + n].astype(np.float64)}), "one float32 for each output channel"),
    (lambda t, n: t.update({STEPS + n: np.full_like(t[STEPS + n], np.inf)}), "not all positive numbers"),
    (lambda t, n: t.update({STEPS + n: 0 * t[STEPS + n]}), "not all positive numbers"),
    (lambda t, n: t.update({STEPS + n: np.full_like(t[STEPS + n], 3e38)}), "holds values that are not numbers"),
    (lambda t, n: t.update({n: t[n].astype(np.float32)}), "has 8-bit scales for .*, but no such"),
    (lambda t, n: t.pop(n), "has 8-bit scales for .*, but no such weights"),
    (lambda t, n: t.update({n: t[n].ravel()}), "one float32 for each output channel"),
    (lambda t, n: t.update({n: t[n][..., :1]}), "is float32 .* instead of float32"),
    (lambda t, n: t.update({EXTRA + "spread": np.full(2, np.nan, np.float16)}), "not finite: spread"),
])  # fmt: skip
def test_crafted_steps_are_refused_with_a_sentence(tmp_path, change, sentence):
    path = tmp_path / "x.safetensors"
    write_model(path, in_bits(model("cnn", 16), 8))
    file = read_tensor_file(path, "model", 1)
    tensors = dict(file.tensors)
    change(tensors, next(name for name, array in tensors.items() if array.dtype == np.int8))
    write_tensor_file(path, "model", 1, file.header, tensors)
    with pytest.raises(ModelFileError, match=sentence):
        read_model(path)
