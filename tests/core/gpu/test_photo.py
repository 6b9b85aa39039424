"""The photo's kernel, run as plain Python, against the reference of the augmentation."""

from dataclasses import replace

import numpy as np
import pytest

from core.gpu import control
from core.gpu.driver.memory import BEHIND
from core.gpu.frame import Frame
from core.gpu.ops.image.image import image_launch
from core.graph import PHOTO
from core.ops import photo
from core.ops.builder import Builder
from core.program import Value, lower
from tests.helpers.compare import relative_error
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.gpu_network import AMPERE

PHOTOS, COUNT = 3, 2


def write_photos(frame, memory, photos, augmentation, index):
    """Run the kernel; the tensor it wrote."""
    offsets = control.find_offsets(PHOTOS)
    block, source = memory.reserve(offsets.end), memory.reserve(photos.nbytes + BEHIND)
    memory.put(source, photos)
    settings = np.frombuffer(control.Settings(photos=COUNT, source=(source, *photos.shape[1:3])), np.uint8)
    for at, values in ((0, settings), (offsets.indices, index), (offsets.augmentation, augmentation)):
        memory.put(block + at, values)
    image_launch(frame)
    (name, life), = frame.lifetimes().items()
    frame.restart({"control": block}, {name: memory.reserve(life.bytes)})
    Machine(memory).run(image_launch(frame))
    return frame._photo()


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("side", [(9, 7), (8, 1)], ids=str)
def test_every_pixel_is_the_references(side, mixed):
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    b = Builder("small", (34, 33, 3), mean, std)
    graph = b.graph(b.add("global_avg_pool", "pool", b.add("conv2d", "c", "photo", filters=4)))
    frame = Frame(lower(graph, False), PHOTOS, "float32", replace(AMPERE, processors=1))
    draw, memory = np.random.default_rng(3), Memory(1 << 17)
    photos = draw.integers(0, 256, (5, *side, 3), dtype=np.uint8)
    augmentation = photo.identity_augmentation(COUNT, side, (34, 33))
    augmentation[0, 18:20], augmentation[1, 20:24] = (0.1, 1.2), (3, 4, 12, 15)
    augmentation[1, 6:9], augmentation[1, 1] = (0.8, 0.1, 0.2), 0.05
    index = np.array([4, 1], np.int32)
    if mixed:
        augmentation[:, photo.BACKGROUND], augmentation[:, photo.MASK] = (-4, -1), (0.3, 1.0)
        augmentation[:, photo.BACKGROUND_AFFINE] = (0.2, 0.05, -1, -0.05, 0.3, 1)
    t = write_photos(frame, memory, photos, augmentation, index)
    got = memory.get(t.address, PHOTOS * t.height * t.width * 4, np.float32).reshape(PHOTOS, t.height, t.width, 4)
    wanted = photo.transform(photos, augmentation, (34, 33), mean, std, index=index)
    assert relative_error(got[:COUNT, :34, :33, :3], wanted) < 1e-5
    assert not got[COUNT:, :34, :33].any()


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_grey_photos_of_dense_layers_are_vectors_without_gaps(precision):
    b, memory = Builder("small", (4, 6, 1), (0.5,), (0.25,)), Memory(1 << 15)
    graph = b.graph(b.add("dense", "d", b.add("flatten", "f", "photo"), units=3))
    frame = Frame(lower(graph, False), PHOTOS, precision, replace(AMPERE, processors=1))
    photos = np.random.default_rng(3).integers(0, 256, (2, 4, 6, 3), dtype=np.uint8)
    identity, index = photo.identity_augmentation(COUNT, 4, 6), np.arange(COUNT, dtype=np.int32)
    t = write_photos(frame, memory, photos, identity, index)
    assert (t.pitch, frame.flat(Value(PHOTO, (24,)))[1].tolist()) == (1, list(range(24)))
    got = memory.get(t.address, COUNT * 24, np.float32 if precision == "float32" else np.uint16)
    if precision == "mixed":
        got = (got.astype(np.uint32) << 16).view(np.float32)
    wanted = photo.transform(photos, identity, (4, 6), (0.5,), (0.25,), index=index)
    assert relative_error(got.reshape(wanted.shape), wanted) < (1e-5 if precision == "float32" else 1e-2)
