"""Damaged ONNX files: an error of ours or a network, never anything else, and memory stays small."""

import resource
from functools import partial

import numpy as np
import pytest

from core.errors import ModelFileError
from core.models import initial_weights
from core.onnx import Imported, read_onnx, write_onnx
from core.ops.builder import Builder
from tests.helpers.damage import damage, refusals
from tests.helpers.onnx_files import SOUND, model

MAX_GROWTH = 1 << 30
"""Bytes that reading may add to the process."""


def small_graph():
    """Every op that is written, with few weights, so that damage hits the structure."""
    b = Builder("small", (12, 12, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("conv2d", "conv", "photo", filters=4, kernel=(3, 3), padding=(1, 1, 1, 1))
    x = b.add("relu6", "relu6", b.add("batch_norm", "norm", x))
    y = b.add("relu", "relu", b.add("depthwise_conv2d", "depthwise", x, padding=(1, 1, 1, 1)))
    x = b.add("concat", "concat", b.add("add", "add", x, y), y)
    x = b.add("avg_pool", "average", b.add("max_pool", "pool", x, ceil_mode=True))
    x = b.add("dense", "dense1", b.add("flatten", "flatten", x), units=5)
    x = b.add("dropout", "dropout", b.add("sigmoid", "sigmoid", x), rate=0.5)
    return b.graph(b.add("dense", "dense2", x, units=3))


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_with_a_sentence_or_read(count, tmp_path):
    """Our own file, and the small files of other programs."""
    rng, graph, path = np.random.default_rng(0), small_graph(), tmp_path / "damaged.onnx"
    files = [write_onnx(graph, initial_weights(graph, 0), ("a", "b", "c"), 1.5)]
    files += [model(nodes, constants, **more) for nodes, constants, more in SOUND.values()]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def read(number):
        path.write_bytes(damage(files[0] if number % 2 else files[number // 2 % len(files)], rng))
        assert isinstance(read_onnx(path), Imported)

    sentences = refusals(ModelFileError, (partial(read, number) for number in range(count)))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_GROWTH
    assert all("damaged.onnx" in sentence for sentence in sentences)
    assert count // 4 < len(sentences)
