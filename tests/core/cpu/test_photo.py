"""The photo transform of a plan against the reference."""

import numpy as np
import pytest

from core.cpu.plan import CpuPlan
from core.device import PhotoBatch
from core.errors import InputError
from core.graph import PHOTO
from core.models.architectures import build
from core.ops import photo
from tests.helpers.compare import assert_close
from tests.helpers.reference_plan import network_inputs


def _augmentation(kind, count):
    rng = np.random.default_rng(4)
    augmentation = photo.identity_augmentation(count, (41, 37), (32, 32))
    if kind == "plain":
        augmentation[:, photo.AFFINE] = (1, 0, 3, 0, 1, 5)
    elif kind == "edge":
        augmentation[:, photo.AFFINE] = (1, 0, -4, 0, 1, 12)
    elif kind != "scaled":
        augmentation[:, photo.AFFINE] += rng.normal(0, 0.2, (count, 6))
        augmentation[:, photo.COLOUR] += rng.normal(0, 0.2, (count, 12))
        augmentation[:, photo.BACKGROUND_AFFINE] = rng.normal(0, 1, (count, 6)) + (1, 0, 9, 0, 1, 9)
    if kind == "full":
        augmentation[::2, photo.BLUR], augmentation[:, photo.BLUR_RADIUS] = 0.15, 1.3
        augmentation[:, photo.CUTOUT] = (-3, 4, 9, 40)
    if kind == "background":
        augmentation[:, photo.BACKGROUND], augmentation[:, photo.MASK] = (2, 0, 1), (1, 0, 4)
    if kind == "mixed":
        augmentation[:, photo.BACKGROUND], augmentation[:, photo.MASK] = (-2, -3, 0), (1, 0.4, 0)
        augmentation[1, photo.BLUR], augmentation[1, photo.BLUR_RADIUS] = 0.1, 1.1
        augmentation[0, photo.CUTOUT], augmentation[2, photo.CUTOUT] = (-3, 4, 9, 40), (2, 3, 4, 5)
    return augmentation


def _backgrounds():
    rng = np.random.default_rng(8)
    masks = rng.integers(0, 256, (5, 20, 17), dtype=np.uint8)
    return photo.Backgrounds(masks, rng.integers(0, 256, (2, 29, 33, 3), dtype=np.uint8))


@pytest.mark.parametrize("kind", ["scaled", "plain", "edge", "full", "background", "mixed"])
@pytest.mark.parametrize("channels", [1, 3])
def test_photos_enter_the_network_as_in_the_reference(kind, channels):
    graph = build("cnn", 3, 32, channels=channels)
    owner, plan = (CpuPlan(graph, batch=3, training=False, outputs=(PHOTO,)) for _ in range(2))
    photos = np.random.default_rng(0).integers(0, 256, (3, 41, 37, 3), dtype=np.uint8)
    augmentation = _augmentation(kind, 3)
    batch, backgrounds = PhotoBatch(photos, augmentation, np.zeros(3, np.int32)), _backgrounds()
    owner.keep_backgrounds(backgrounds)
    plan.borrow_photos(owner)
    assert_close(plan.predict(batch)[PHOTO], network_inputs(graph, batch, backgrounds=backgrounds), 3e-5)


@pytest.mark.parametrize(("column", "number"), [
    (photo.BACKGROUND, 3), (photo.BACKGROUND, -4), (photo.MASK, 5), (photo.MASK, -1),
])  # fmt: skip
def test_a_missing_background_is_refused_before_any_kernel_reads_it(column, number):
    plan = CpuPlan(build("cnn", 3, 32), batch=3, training=False)
    augmentation = _augmentation("background", 3)
    batch = PhotoBatch(np.zeros((3, 41, 37, 3), np.uint8), augmentation, np.zeros(3, np.int32))
    with pytest.raises(InputError, match="none were given"):
        plan.predict(batch)
    plan.keep_backgrounds(_backgrounds())
    augmentation[0, column] = number
    with pytest.raises(InputError, match="do not exist|but there are 3 photos"):
        plan.predict(batch)
