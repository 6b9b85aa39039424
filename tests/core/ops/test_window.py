"""Window sizes by hand, and the padding rules."""

import pytest

from core.ops.window import Window, read_pool_window, read_window


@pytest.mark.parametrize(("size", "kernel", "stride", "before", "after", "ceil_mode", "wanted"), [
    (224, 7, 2, 0, 0, False, 109), (109, 3, 2, 0, 0, True, 54), (54, 3, 2, 0, 0, True, 27), (54, 3, 2, 0, 0, False, 26),
    (224, 3, 2, 1, 1, False, 112), (224, 3, 2, 0, 1, False, 112),
    (5, 2, 3, 1, 1, True, 2),  # a third window would start in the padding after the photo
    (28, 5, 1, 4, 4, False, 32), (1, 1, 7, 0, 0, True, 1), (4, 3, 2, 1, 1, True, 3),
])  # fmt: skip
def test_output_sizes_follow_pytorchs_rule(size, kernel, stride, before, after, ceil_mode, wanted):
    window = Window((kernel, 1), (stride, 1), (before, 0, after, 0), ceil_mode)
    assert window.output(size, 4) == (wanted, 4)


def test_a_window_larger_than_the_padded_photo_is_refused_and_large_padding_is_for_convolutions():
    with pytest.raises(ValueError, match="larger than the padded height of 4"):
        Window((5, 1), (1, 1), (0, 0, 0, 0)).output(4, 9)
    attributes = {"kernel": (1, 1), "stride": (1, 1), "padding": (1, 1, 1, 1)}
    assert read_window(attributes).output(5, 5) == (7, 7)
    for side in range(4):
        with pytest.raises(ValueError, match="smaller than the kernel"):
            read_pool_window(attributes | {"padding": tuple(int(side == other) for other in range(4))})
