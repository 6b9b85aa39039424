"""The pretrained networks of the data pack: their logits as onnxruntime computed them."""

import os
from pathlib import Path

import numpy as np
import pytest

from core.onnx import read_onnx
from core.ops.network import forward
from core.ops.photo import identity_augmentation, transform

FOLDER = Path(os.environ.get("LEAFCLINIC_DATA", "")) / "weights"
pytestmark = pytest.mark.skipif(not os.environ.get("LEAFCLINIC_DATA") or not FOLDER.is_dir(),
                                reason="LEAFCLINIC_DATA does not lead to the weights")  # fmt: skip

CASES = {
    "squeezenet": ("squeezenet_v1.0.onnx",
                   {"mean": (123 / 255, 117 / 255, 104 / 255), "std": (1 / 255,) * 3, "bgr": True}, 1_248_424),
    "mobilenetv2": ("mobilenetv2_1.0_224.onnx", {"mean": (0.5,) * 3, "std": (0.5,) * 3}, 3_487_816),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_of_the_pretrained_networks_are_onnxruntimes(name):
    file, options, parameters = CASES[name]
    imported = read_onnx(FOLDER / file, **options)
    assert sum(p.size for p in imported.graph.parameters().values()) == parameters
    with np.load(FOLDER / "expected_outputs.npz") as expected:
        photos, wanted = expected[f"{name}_input_rgb_u8"][:2], expected[f"{name}_logits"][:2]
    size, photo = photos.shape[1:3], imported.graph.nodes[0].attributes
    inputs = transform(photos, identity_augmentation(len(photos), size, size), size, photo["mean"], photo["std"])
    logits = forward(imported.graph, imported.weights, inputs)[imported.graph.output]
    assert np.abs(logits - wanted).max() < 1e-3
