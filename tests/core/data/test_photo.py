"""Every kind of photo file is read, or refused with its reason."""

import os

import cv2
import numpy as np
import pytest

from core.data import photo, photo_format
from core.data.photo import PhotoError, decode, square
from core.data.photo_reader import read_photo
from tests.helpers import photo_files
from tests.helpers.damage import damage
from tests.helpers.hostile_photos import tiff
from tests.helpers.photo_files import BLUE, GREEN, RED, array, corners, encode, jpeg


def quarters(rgb):
    """Mean colours of the four quarters: top left, top right, bottom left, bottom right."""
    h, w = rgb.shape[0] // 2, rgb.shape[1] // 2
    return [rgb[y : y + h, x : x + w].reshape(-1, 3).mean(0) for y in (0, h) for x in (0, w)]


def assert_corners(rgb, wanted, tolerance=12):
    for got, want in zip(quarters(rgb), wanted, strict=True):
        assert np.abs(got - np.asarray(want)).max() < tolerance, f"{got} instead of {want}"


GREY = (128, 128, 128)
UPRIGHT = (RED, GREEN, BLUE, GREY)


@pytest.mark.parametrize("ending", sorted(set(photo_format.EXTENSIONS) - {".jfif"}))  # OpenCV writes it as .jpg
def test_every_format_gives_rgb_in_the_right_order(ending):
    rgb = decode(array(encode(corners(64, 64), ending)))
    assert (rgb.dtype, rgb.shape) == (np.uint8, (64, 64, 3))
    assert_corners(rgb, UPRIGHT)
    if ending != ".gif":
        grey = decode(array(encode(corners(32, 32)[..., 0], ending)))
        assert (grey.shape, np.ptp(grey, axis=2).max()) == ((32, 32, 3), 0)


@pytest.mark.parametrize(("orientation", "wanted"), [
    (1, (RED, GREEN, BLUE, GREY)), (2, (GREEN, RED, GREY, BLUE)), (3, (GREY, BLUE, GREEN, RED)),
    (4, (BLUE, GREY, RED, GREEN)), (5, (RED, BLUE, GREEN, GREY)), (6, (BLUE, RED, GREY, GREEN)),
    (7, (GREY, GREEN, BLUE, RED)), (8, (GREEN, GREY, RED, BLUE)),
])  # fmt: skip
@pytest.mark.parametrize("side", [0, 16])
def test_a_photo_stands_as_the_camera_was_held(orientation, wanted, side):
    data = array(photo_files.jpeg_with_orientation(corners(160, 240), orientation))
    rgb = decode(data, side)
    if not side:
        assert rgb.shape[:2] == ((160, 240) if orientation < 5 else (240, 160))
    assert_corners(rgb, wanted, tolerance=30)


@pytest.mark.parametrize("ending", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sixteen_bits_become_eight(ending, channels):
    deep = corners(32, 32).astype(np.uint16) * 256 + 99
    if channels == 1:
        deep = deep[..., 0]
    elif channels == 4:
        deep = np.dstack((deep, np.full((32, 32), 65535, np.uint16)))
    rgb = decode(array(encode(deep, ending)))
    assert rgb.dtype == np.uint8
    want = [(c[0],) * 3 for c in UPRIGHT] if channels == 1 else UPRIGHT
    assert_corners(rgb, want, tolerance=2)


@pytest.mark.parametrize(("inks", "wanted"), [
    ((0, 0, 0, 0), (255, 255, 255)), ((0, 255, 255, 0), (255, 0, 0)), ((0, 0, 0, 255), (0, 0, 0)),
    ((255, 0, 255, 0), (0, 255, 0)),
])  # fmt: skip
def test_printers_inks_become_light(inks, wanted):
    rgb = decode(array(photo_files.cmyk_jpeg(*inks)))
    assert rgb.shape == (16, 16, 3)
    assert np.abs(rgb.reshape(-1, 3).mean(0) - wanted).max() < 6


@pytest.mark.parametrize("ending", [".png", ".webp"])
def test_white_paper_lies_under_transparent_pixels(ending):
    rgba = np.dstack((corners(32, 32), np.full((32, 32), 255, np.uint8)))
    rgba[16:, :16, 3] = 0
    rgba[16:, 16:, 3] = 128
    data = encode(rgba, ending, *((cv2.IMWRITE_WEBP_QUALITY, 101) if ending == ".webp" else ()))
    assert_corners(decode(array(data)), (RED, GREEN, (255, 255, 255), (191, 191, 191)), tolerance=3)
    infrared = array(tiff("u1", 4, more={338: 0}))  # its fourth value is not opacity
    assert np.array_equal(decode(infrared), infrared[-1024:].reshape(16, 16, 4)[..., :3])


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png"])
def test_of_an_animation_the_first_frame_is_taken(ending):
    first, second = corners(32, 32), np.zeros((32, 32, 3), np.uint8)
    rgb = decode(array(photo_files.animation(ending, [first, second, second])))
    assert_corners(rgb, UPRIGHT, tolerance=20)


@pytest.mark.parametrize("make", [photo_files.png_header_only, photo_files.jpeg_header_only])
def test_a_photo_of_more_than_250_megapixels_is_refused_before_it_is_decoded(make, monkeypatch):
    monkeypatch.setattr(photo.cv2, "imdecode", lambda *a: pytest.fail("it was decoded"))
    with pytest.raises(PhotoError, match="251 megapixels; at most 250"):
        decode(array(make(20_000, 12_501)), 32)


def test_a_phone_of_200_megapixels_is_read_because_its_jpeg_scales_while_it_is_decoded(monkeypatch):
    asked = []
    monkeypatch.setattr(photo.cv2, "imdecode", lambda data, flags: asked.append(flags))
    with pytest.raises(PhotoError, match="damaged"):
        decode(array(photo_files.jpeg_header_only(16_320, 12_240)), 224)
    assert asked == [cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_8]
    for whole in (photo_files.png_header_only(16_320, 12_240), photo_files.jpeg_header_only(16_320, 12_240)):
        with pytest.raises(PhotoError, match="200 megapixels; at most 100"):
            decode(array(whole))
    assert len(asked) == 1


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".bmp", ".tiff", ".gif"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_a_cut_file_is_refused_and_not_filled_up_with_grey(ending, share):
    noisy = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    whole = encode(noisy, ending)
    with pytest.raises(PhotoError):
        decode(array(whole[: int(len(whole) * share)]))


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".gif", ".tiff", ".bmp"])
def test_damaged_bytes_never_do_more_than_raise_a_reason(ending):
    whole, random, refused = encode(corners(40, 40), ending), np.random.default_rng(1), []
    for _ in range(60):
        try:
            assert decode(array(damage(whole, random)), 24).shape == (24, 24, 3)
        except PhotoError as error:
            refused.append(str(error))
    assert refused
    assert all(reason.endswith(".") for reason in refused)


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "empty"), (b"hello, this is no photo at all", "not a photo"), (b"\0" * 4096, "not a photo"),
    (b"\0\0\0\x18ftypheic" + b"\0" * 64, "HEIC files are not supported. Save"),
    (b"\0\0\0\x18ftypavif" + b"\0" * 64, "AVIF files are not supported. Save"),
    (b"%PDF-1.7" + b"\0" * 100, "not a photo"), (b"\0\0\0\x18ftypcrx " + b"\0" * 64, "^camera raw files are not"),
    (b"II+\0" + b"\0" * 64, "^BigTIFF"), (jpeg(corners()).replace(b"\0\x11\x08", b"\0\x11\x0c"), "12 bits. files"),
    *((tiff("u1", 3, more={tag: value}), rf"^TIFF \({name} {value}\) files are not supported") for tag, name, value in (
        (259, "Compression", 34933), (262, "PhotometricInterpretation", 8), (254, "camera raw, NewSubfileType", 1))),
])  # fmt: skip
def test_what_is_no_photo_is_refused_with_its_reason(tmp_path, data, reason):
    file = tmp_path / "leaf.jpg"
    file.write_bytes(data)
    with pytest.raises(PhotoError, match=reason):
        read_photo(str(file), 32)


@pytest.mark.timeout(20)
def test_missing_files_folders_and_pipes_are_refused_and_not_waited_for(tmp_path):
    with pytest.raises(PhotoError, match="does not exist"):
        read_photo(str(tmp_path / "none.jpg"), 32)
    with pytest.raises(PhotoError, match=r"folder|cannot be read|no right"):
        read_photo(str(tmp_path), 32)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.jpg")
        with pytest.raises(PhotoError, match="a pipe or a device"):
            read_photo(str(tmp_path / "pipe.jpg"), 8)


def test_the_square_is_cut_from_the_middle_and_nothing_is_squashed():
    wide = np.zeros((40, 100, 3), np.uint8)
    wide[:, 30:70] = 255
    assert (square(wide, 40) == 255).all()
    assert (square(wide.transpose(1, 0, 2), 20) == 255).all()
    assert square(wide, 64).shape == (64, 64, 3)


def test_trailing_bytes_are_allowed_and_a_thumbnail_within_does_not_hide_that_the_photo_is_cut():
    assert decode(array(jpeg(corners()) + b"camera maker's own data" * 10)).shape == (48, 64, 3)
    noisy = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    with_thumbnail = photo_files.jpeg_with_exif(noisy, jpeg(corners(16, 16)))
    assert decode(array(with_thumbnail)).shape == (64, 64, 3)
    with pytest.raises(PhotoError, match="cut off"):
        decode(array(with_thumbnail[:-500]))
