"""What is left out of training, and batch norm statistics of photos that are only looked at."""

import cv2
import numpy as np

from benchmarks import leave_crop_out
from benchmarks.left_out import find_parts
from core.diagnosis.model_file import ModelFile
from core.models import initial_weights
from core.models.options import Options, start


def rows(**conditions):
    return [{"crop": crop, "condition": name, "split": "train"} for crop, names in conditions.items() for name in names]


def test_each_crop_is_left_out_and_one_disease_of_crops_that_keep_two_classes():
    parts = find_parts(rows(tomato=("healthy", "late_blight", "early_blight"), bean=("healthy", "rust"),
                            background=("none",)))  # fmt: skip
    assert parts["tomato"] == ("tomato/early_blight", "tomato/healthy", "tomato/late_blight")
    assert parts["bean"] == ("bean/healthy", "bean/rust")
    diseases = [left for name, left in parts.items() if name.startswith("diseases")]
    assert set(parts) == {"tomato", "bean", "diseases 0", "diseases 1"}
    assert all(len(left) == 1 and left[0].startswith("tomato/") and "healthy" not in left[0] for left in diseases)


def test_batch_norm_gets_the_statistics_of_the_photos_and_other_weights_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(leave_crop_out, "BATCH", 8)
    b = start("tiny", Options(2, 16))
    x = b.add("batch_norm", "norm", b.add("conv2d", "conv", "photo", filters=3, kernel=(1, 1)))
    graph = b.graph(b.add("dense", "head", b.add("global_avg_pool", "average", x), units=2))
    weights = initial_weights(graph, 0) | {"conv.weight": np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3)}
    pixels = np.random.default_rng(0).integers(0, 100, (8, 16, 16, 3), np.uint8)
    for number, photo in enumerate(pixels):
        cv2.imwrite(str(tmp_path / f"{number}.png"), photo[..., ::-1])
    model = ModelFile(graph, weights, ("bean/healthy", "bean/rust"), 16)
    after = leave_crop_out.with_own_statistics(model, [str(tmp_path / f"{number}.png") for number in range(8)]).weights
    attributes = graph.nodes[0].attributes
    seen = (pixels / 255 - np.array(attributes["mean"])) / np.array(attributes["std"])
    assert np.allclose(after["norm.running_mean"], seen.mean(axis=(0, 1, 2)), atol=1e-3)
    assert all(np.array_equal(after[name], weights[name]) for name in ("conv.weight", "head.weight", "norm.weight"))
