"""The photo's reference, by hand and against OpenCV's: every device's kernel is held against it."""

import cv2
import numpy as np
import pytest

from core.ops import photo
from tests.helpers.compare import assert_close
from tests.helpers.noise import integers

PLAIN = ((0.0,) * 3, (1.0,) * 3)


def photos(count, height, width):
    return integers("photo op", (count, height, width, 3), 0, 256).astype(np.uint8)


def test_a_photo_of_the_right_size_is_only_normalised_and_a_grey_network_sees_the_brightness():
    seen = photos(2, 9, 7)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    out = photo.transform(seen, photo.identity_augmentation(2, (9, 7), (9, 7)), (9, 7), mean, std)
    assert out.dtype == np.float32
    assert_close(out, (seen / 255 - mean) / std, 1e-6)
    seen = photos(2, 5, 5)
    out = photo.transform(seen, photo.identity_augmentation(2, 5, 5), (5, 5), (0.1307,), (0.3081,))
    assert out.shape == (2, 5, 5, 1)
    assert_close(out, ((seen / 255) @ np.array(photo.GREY)[:, None] - 0.1307) / 0.3081, 1e-5)


SIZES = [((10, 14), (20, 28)), ((31, 17), (8, 8)), ((5, 5), (12, 7)), ((1, 1), (3, 3))]


@pytest.mark.parametrize(("source", "size"), SIZES)
def test_resizing_is_opencvs_bilinear(source, size):
    seen = photos(1, *source)
    out = photo.transform(seen, photo.identity_augmentation(1, source, size), size, *PLAIN)[0]
    wanted = cv2.resize(seen[0].astype(np.float32) / 255, size[::-1], interpolation=cv2.INTER_LINEAR)
    assert_close(out, wanted, 1e-5)


def test_a_turn_is_opencvs_warp_with_edges_repeated():
    seen, augmentation = photos(1, 21, 25), photo.identity_augmentation(1, (21, 25), (21, 25))
    turn = np.array([[0.8, -0.5, 4.0], [0.45, 0.9, -3.0]], np.float32)
    augmentation[0, photo.AFFINE] = turn.ravel()
    out = photo.transform(seen, augmentation, (21, 25), *PLAIN)[0]
    x, y = np.meshgrid(np.arange(25), np.arange(21))
    sx, sy = (np.clip(t[0] * x + t[1] * y + t[2], 0, end) for t, end in zip(turn, (24, 20), strict=True))
    wanted = cv2.remap(seen[0].astype(np.float64) / 255, sx.astype(np.float32), sy.astype(np.float32), cv2.INTER_LINEAR,
                       borderMode=cv2.BORDER_REPLICATE)  # fmt: skip
    # OpenCV rounds the place in the photo to 1/32 pixel.
    assert np.abs(out - wanted).max() < 1 / 16
    assert np.abs(out - wanted).mean() < 1 / 100


def test_colours_go_through_the_matrix_and_are_clipped_and_a_cut_out_box_is_the_mean():
    seen, augmentation = photos(1, 4, 4), photo.identity_augmentation(1, 4, 4)
    matrix = np.array([[0, 1, 0, 0.5], [0, 0, 2, -1], [1, 0, 0, 0]], np.float32)
    augmentation[0, photo.COLOUR] = matrix.ravel()
    rgb = np.clip((seen / 255) @ matrix[:, :3].T + matrix[:, 3], 0, 1)
    assert_close(photo.transform(seen, augmentation, (4, 4), (0.5,) * 3, (0.25,) * 3), (rgb - 0.5) / 0.25, 1e-5)
    seen, augmentation = photos(1, 6, 8), photo.identity_augmentation(1, (6, 8), (6, 8))
    augmentation[0, photo.CUTOUT] = (-2, 3, 4, 99)
    out = photo.transform(seen, augmentation, (6, 8), (0.1,) * 3, (0.5,) * 3)[0]
    assert not out[:4, 3:].any()
    assert out[4:].any(-1).all()
    assert out[:, :3].any(-1).all()


def test_a_blur_mixes_the_four_neighbours_at_its_radius():
    seen, augmentation = np.zeros((1, 9, 9, 3), np.uint8), photo.identity_augmentation(1, 9, 9)
    seen[0, 4, 4] = 255
    augmentation[0, photo.BLUR], augmentation[0, photo.BLUR_RADIUS] = 0.15, 2
    out = photo.transform(seen, augmentation, (9, 9), *PLAIN)[0, :, :, 0]
    wanted = np.zeros((9, 9))
    wanted[4, 4] = 0.4
    wanted[[2, 6, 4, 4], [4, 4, 2, 6]] = 0.15
    assert_close(out, wanted, 1e-6)


def test_a_new_background_replaces_the_photo_outside_the_mask():
    seen, background = photos(1, 24, 24), photos(3, 12, 12)
    mask = np.zeros((2, 12, 12), np.uint8)
    mask[1, :, :6], mask[1, :, 6] = 255, 51
    augmentation = photo.identity_augmentation(1, 24, 24)
    augmentation[0, photo.BACKGROUND], augmentation[0, photo.MASK] = 3, 1
    augmentation[0, photo.BACKGROUND_AFFINE] = (0.5, 0, -0.25, 0, 0.5, -0.25)
    out = photo.transform(seen, augmentation, (24, 24), *PLAIN, photo.Backgrounds(mask, background))[0]
    leaf, behind = seen[0] / 255, cv2.resize(background[2] / 255, (24, 24), interpolation=cv2.INTER_LINEAR)
    assert_close(out[:, :11], leaf[:, :11], 1e-5)
    assert_close(out[:, 15:], behind[:, 15:], 1e-5)
    share = 0.75 * 0.2 + 0.25 * 1.0  # column 12 lies at 5.75 of the mask: a quarter from the leaf's last column
    assert_close(out[:, 12], share * leaf[:, 12] + (1 - share) * behind[:, 12], 1e-5)


def test_a_mixed_photo_is_its_share_of_itself_and_the_rest_another_photo_which_alone_is_in_the_box():
    seen = photos(3, 24, 24)
    augmentation = photo.identity_augmentation(1, 24, 24)
    augmentation[0, [photo.BACKGROUND, photo.MASK]] = -3, 0.75
    augmentation[0, photo.BACKGROUND_AFFINE] = (-1, 0, 23, 0, 1, 0)
    augmentation[0, photo.CUTOUT] = (5, 8, 11, 30)
    out = photo.transform(seen, augmentation, (24, 24), *PLAIN)[0]
    itself, other = seen[0] / 255, seen[2, :, ::-1] / 255
    want = 0.75 * itself + 0.25 * other
    want[5:11, 8:] = other[5:11, 8:]
    assert_close(out, want, 1e-5)


def test_mixing_with_a_missing_photo_is_refused():
    augmentation = photo.identity_augmentation(2, 4, 4)
    augmentation[1, photo.BACKGROUND] = -2
    assert photo.background_problem(augmentation, None, 2) == ""
    augmentation[1, photo.BACKGROUND] = -3
    assert photo.background_problem(augmentation, None, 2) == "mixing refers to photo 2, but there are 2 photos"
