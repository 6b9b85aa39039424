"""The photo transform of a plan against the reference."""

import numpy as np
import pytest

from core.cpu.plan import CpuPlan
from core.device import PhotoBatch
from core.graph import PHOTO
from core.models.table import build
from core.ops.photo import AFFINE, BLUR, BLUR_RADIUS, COLOUR, CUTOUT, identity_rows, transform
from tests.helpers.compare import assert_close


def _rows(kind, count):
    rng = np.random.default_rng(4)
    rows = identity_rows(count, (41, 37), (32, 32))
    if kind == "plain":
        rows[:, AFFINE] = (1, 0, 3, 0, 1, 5)
    elif kind == "edge":
        rows[:, AFFINE] = (1, 0, -4, 0, 1, 12)
    elif kind == "full":
        rows[:, AFFINE] += rng.normal(0, 0.2, (count, 6))
        rows[:, COLOUR] += rng.normal(0, 0.2, (count, 12))
        rows[::2, BLUR], rows[:, BLUR_RADIUS] = 0.15, 1.3
        rows[:, CUTOUT] = (-3, 4, 9, 40)
    return rows


@pytest.mark.parametrize("kind", ["scaled", "plain", "edge", "full"])
@pytest.mark.parametrize("channels", [1, 3])
def test_photos_enter_the_network_as_in_the_reference(kind, channels):
    graph = build("cnn", 3, 32, channels=channels)
    plan = CpuPlan(graph, batch=3, training=False, outputs=(PHOTO,))
    photos = np.random.default_rng(0).integers(0, 256, (3, 41, 37, 3), dtype=np.uint8)
    rows = _rows(kind, 3)
    node = graph.nodes[0]
    want = transform(photos, rows, (32, 32), node.attributes["mean"], node.attributes["std"])
    got = plan.predict(PhotoBatch(photos, rows, np.zeros(3, np.int32)))[PHOTO]
    assert_close(got, want, 3e-5)
