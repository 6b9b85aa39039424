"""Findings about a photo set: each kind is found where it is, and nowhere else."""

import cv2
import numpy as np
import pytest

from core.data.cache import open_cache
from core.data.folder import open_folder
from core.data.health import KINDS, examine, photo_faults, sharpness
from core.data.leaf_drawing import CONDITIONS, draw_leaf
from tests.helpers.photo_files import encode

SIDE = 112


def write(folder, name, rgb):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(encode(np.ascontiguousarray(rgb), ".png"))


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    root = tmp_path_factory.mktemp("sick") / "photos"
    number = {condition: 0 for condition in CONDITIONS}

    def put(condition, name, change=lambda rgb: rgb, side=SIDE):
        rgb = draw_leaf(condition, 3, number[condition], side=side).rgb
        rgb = np.clip(rgb * (110 / rgb.mean()), 0, 255).astype(np.uint8)  # some leaves are drawn in deep shade
        number[condition] += 1
        write(root / condition, name, change(rgb))
        return rgb

    for condition in CONDITIONS:
        for i in range(4):
            rgb = put(condition, f"good-{i}.png")
    (root / "mildew" / "copy-marked.png").write_bytes(encode(rgb, ".png") + b"a program's mark")
    write(root / "rust", "copy-of-mildew.png", rgb)
    put("rust", "tiny.png", side=48)
    put("rust", "blurred.png", lambda rgb: cv2.GaussianBlur(rgb, (0, 0), 3))
    put("rust", "dark.png", lambda rgb: (rgb * 0.2).astype(np.uint8))
    put("rust", "glare.png", lambda rgb: np.clip(rgb.astype(int) * 3 + 120, 0, 255).astype(np.uint8))
    (root / "rust" / "broken.png").write_bytes(b"broken")
    dataset = open_folder(root)
    return dataset, open_cache(dataset, SIDE, folder=str(root.parent / "store"))


def paths(found, kind):
    return {path for finding in found if finding.kind == kind for path in finding.paths}


def test_every_kind_is_found_where_it_is_the_worst_first_and_in_sentences(sick):
    found = examine(*sick)
    assert (paths(found, "unreadable"), paths(found, "tiny")) == ({"rust/broken.png"}, {"rust/tiny.png"})
    assert "rust/blurred.png" in paths(found, "blurred")
    assert (paths(found, "dark"), paths(found, "glare")) == ({"rust/dark.png"}, {"rust/glare.png"})
    assert {"mildew/good-3.png", "mildew/copy-marked.png"} <= paths(found, "copies")
    assert {"rust/copy-of-mildew.png", "mildew/good-3.png"} <= paths(found, "two_labels")
    assert all("mildew and rust" in f.message for f in found if f.kind == "two_labels")
    assert [f.paths[0] for f in found if "the same file" in f.message] == ["mildew/good-3.png"], "of the other label"
    good = {p for p in sick[0].paths if "good" in p} - {"mildew/good-3.png"}
    assert not good & {path for finding in found for path in finding.paths}
    order = [list(KINDS).index(f.kind) for f in found]
    assert order == sorted(order)
    assert all(f.message.endswith(".") for f in found)
    assert photo_faults(np.zeros((1, 3, 3), np.uint8))[0].endswith("has 1 of 96 pixels that are needed.")


def test_sharpness_does_not_count_the_rounding_to_whole_greys():
    y, x = np.mgrid[0:160, 0:160] / 160
    smooth = (100 + 12 * np.sin(3 * x) + 9 * np.cos(2 * y)).astype(np.uint8)
    assert sharpness(smooth) < 0.003
    noisy = np.random.default_rng(0).integers(0, 255, (160, 160), np.uint8)
    assert sharpness(noisy) > 5


def test_lopsided_classes_are_named(tmp_path):
    for condition, each in (("rust", 30), ("healthy", 2)):
        for i in range(each):
            write(tmp_path / "p" / condition, f"{i}.png", draw_leaf(condition, 1, i, side=32).rgb)
    dataset = open_folder(tmp_path / "p")
    found = examine(dataset, open_cache(dataset, 32, folder=str(tmp_path / "store")))
    (finding,) = (f for f in found if f.kind == "lopsided")
    assert finding.paths == ("healthy", "rust")
    assert "30 photos of rust and 2 of healthy" in finding.message
