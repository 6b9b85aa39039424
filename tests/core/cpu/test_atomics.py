"""Threads of a plan flush denormal floats, and NumPy in the same process does not."""

import numpy as np
import pytest

from core.cpu.atomics import X86
from core.cpu.plan import CpuPlan
from core.device import Optimizer, PhotoBatch
from core.models.architectures import build
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from tests.helpers.golden import weights_of

TINY = np.float32(1e-40)
"""Denormal: the smallest normal float32 is 1.2e-38."""


@pytest.mark.skipif(not X86, reason="only x86 processors have MXCSR; elsewhere denormals are kept")
def test_denormals_are_flushed_in_kernels_and_kept_outside():
    graph = with_loss(build("cnn", 3, 20), 0.0, ())
    plan = CpuPlan(graph, batch=2, training=True, optimizer=Optimizer("adam"), threads=2)
    plan.load(weights_of(graph))
    first = {name: np.full_like(array, TINY) for name, array in plan.state().items() if name != "step"}
    plan.load_state({**first, "step": np.array(3)})
    photos, rows = np.zeros((2, 20, 20, 3), np.uint8), identity_augmentation(2, (20, 20), (20, 20))
    batch = PhotoBatch(photos, rows, np.full(2, -1, np.int32))
    plan.train_step(batch, 1e-3)  # photos without labels have no gradient: moments only shrink
    start, shape = plan.layout.offsets["conv1.weight"]
    for name in first:
        assert not plan.state()[name][start : start + np.prod(shape)].any(), name
    small = np.full(4, 1e-30, np.float32)
    assert (small * np.float32(1e-10) > 0).all()
