"""The batch that fits into free memory."""

import pytest

from core.errors import OutOfMemory
from core.gpu.sizes import RESERVE, fitting_batch, require_room


@pytest.mark.parametrize(("room", "wanted"), [(0, 0), (99, 0), (110, 1), (111, 1), (199, 9), (200, 10), (10**6, 10)])
def test_the_largest_batch_that_fits_is_found(room, wanted):
    assert fitting_batch(10, RESERVE + room, lambda batch: 100 + 10 * batch) == wanted


def test_a_plan_that_fits_is_not_counted_again():
    require_room(8, 1 << 20, RESERVE + (1 << 20), lambda _: pytest.fail("counted"))


@pytest.mark.parametrize(("of_one", "advice"), [(1 << 30, "A batch of 3 fits"), (4 << 30, "Not even one photo fits")])
def test_one_that_does_not_is_told_what_does(of_one, advice):
    with pytest.raises(OutOfMemory, match=r"A batch of 8 photos needs .* GiB on the GPU") as caught:
        require_room(8, 8 * of_one, RESERVE + (3 << 30), lambda batch: of_one * batch)
    assert advice in str(caught.value)
