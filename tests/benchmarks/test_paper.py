"""Ours and PyTorch begin with the same weights in `benchmarks.paper`."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper import initial_arrays, our_command
from core import command_line, train
from core.device import PhotoBatch
from core.ops.photo import identity_augmentation
from core.training.transfer import first_network
from core.training.validation import compile_inference
from tests.helpers.golden import photos_of


@pytest.fixture(scope="module")
def ours():
    argv = our_command(Namespace(manifest=Path("photos.csv"), where="", epochs=1), "adam", 0, Path("run"))[3:]
    return first_network(train.configure(*command_line.read_arguments(train.make_parser(), argv)), None, "abcde")


def test_the_weights_that_pytorch_gets_are_those_our_run_begins_with(ours):
    for (name, weights), array in zip(ours.weights.items(), initial_arrays(5, seed=0), strict=True):
        np.testing.assert_array_equal(np.moveaxis(array, min(1, array.ndim - 1), -1), weights, err_msg=name)


def test_pytorchs_network_predicts_what_ours_does(ours):
    torch = pytest.importorskip("torch")
    from benchmarks.torch_paper import make_network

    plan = compile_inference(ours.graph, "cpu", 2)
    plan.load(ours.weights)
    batch = PhotoBatch(photos_of(2, 224), identity_augmentation(2, 224, 224), np.full(2, -1, np.int32))
    photos = torch.from_numpy(batch.photos / np.float32(127.5) - 1).permute(0, 3, 1, 2)
    with torch.no_grad():
        theirs = make_network(5, seed=0).eval()(photos).numpy()
    np.testing.assert_allclose(plan.predict(batch)["logits"], theirs, rtol=1e-3, atol=1e-5)
