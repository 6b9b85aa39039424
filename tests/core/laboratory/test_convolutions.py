"""Every convolution algorithm gives the reference's result on the shared odd cases, or refuses with a sentence."""

from dataclasses import replace

import pytest

from core.laboratory.convolutions import NUMPY_KERNELS
from tests.core.cpu.test_kernel_entries import assert_right
from tests.helpers.shapes import case, cases, label

CASES = [replace(c, activation="") for c in cases("conv2d")] + [
    case("conv2d", (17, 21, 3), filters=4, kernel=(3, 3), padding=(1, 1, 1, 1)),
    case("conv2d", (33, 18, 2), filters=3, kernel=(5, 5), padding=(4, 4, 4, 4)),
]


@pytest.mark.parametrize("kernel", NUMPY_KERNELS, ids=lambda kernel: f"{kernel.algorithm}-{kernel.direction}")
def test_every_way_agrees_with_the_reference(kernel):
    refusals = [kernel.refuses(one) for one in CASES]
    assert all(refusal.endswith(".") for refusal in refusals if refusal)
    assert refusals.count("") >= 3, [label(c) for c in CASES]
    for one in (one for one, refusal in zip(CASES, refusals, strict=True) if not refusal):
        assert_right(kernel, one)
