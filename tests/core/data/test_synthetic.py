"""The demo set: deterministic, honest about being drawn, with true areas, and not told by colour alone."""

import csv

import numpy as np
import pytest

from core.config import RunConfig
from core.data.dataset import SPLITS
from core.data.leaf_drawing import CONDITIONS, LEAST_SEVERITY, MOST_SEVERITY, draw_leaf
from core.data.source import open_dataset
from core.data.split import measure_leak
from core.data.synthetic import write_demo
from core.errors import DataError


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo") / "set", photos_per_class=20, side=32)


@pytest.fixture(scope="module")
def leaves():
    return {c: [draw_leaf(c, 0, i, side=48) for i in range(24)] for c in CONDITIONS}


def severity(photo):
    """Share of the leaf's area that is lesion."""
    return photo.lesion.sum() / photo.leaf.sum()


def test_the_true_areas_make_sense_and_severity_varies_from_slight_to_heavy(leaves):
    for condition, photos in leaves.items():
        for photo in photos:
            assert (photo.rgb.dtype, photo.rgb.shape) == (np.uint8, (48, 48, 3))
            assert 0.08 < photo.leaf.mean() < 0.75
            assert not (photo.lesion & ~photo.leaf).any()
            if condition == "healthy":
                assert severity(photo) == 0
            else:
                assert 0.4 * LEAST_SEVERITY < severity(photo) < 1.6 * MOST_SEVERITY
    for condition in ("rust", "blight", "mildew"):
        found = [severity(photo) for photo in leaves[condition]]
        assert min(found) < 0.08
        assert max(found) > 0.25


def test_lesions_look_as_their_disease_does(leaves):
    def colour(condition, inside):
        pixels = [p.rgb[(p.lesion if inside else p.leaf & ~p.lesion)] for p in leaves[condition]]
        return np.concatenate(pixels).mean(0)

    blade = colour("healthy", False)
    assert blade[1] > 1.2 * blade[0]
    assert blade[1] > 1.5 * blade[2]
    rust, blight, mildew = (colour(c, True) for c in ("rust", "blight", "mildew"))
    assert rust[0] > 1.15 * rust[1] > 1.3 * rust[2], "orange"
    assert blight[0] > blight[1] > blight[2], "brown"
    assert blight.sum() < 0.9 * mildew.sum()
    assert mildew.max() - mildew.min() < 40, "grey"


def test_the_mean_colour_of_a_photo_does_not_tell_its_class(leaves):
    means = np.array([[p.rgb.reshape(-1, 3).mean(0) for p in leaves[c]] for c in CONDITIONS], float)
    train, test = means[:, ::2], means[:, 1::2].reshape(-1, 3)
    spread = train.reshape(-1, 3).std(0)
    distance = np.linalg.norm((test[:, None] - train.reshape(-1, 3)) / spread, axis=2)
    nearest = distance.argsort(1)[:, :5] // 12
    said = np.array([np.bincount(row, minlength=4).argmax() for row in nearest])
    assert (said == np.arange(48) // 12).mean() < 0.5


def test_two_views_of_a_leaf_have_the_same_disease_to_about_the_same_extent():
    pairs = [[severity(draw_leaf("blight", 0, i, view, 48)) for view in (0, 1)] for i in range(20)]
    assert np.corrcoef(np.array(pairs).T)[0, 1] > 0.8


def test_the_set_says_that_it_is_a_demo_and_is_read_with_groups_splits_and_areas(demo):
    text = (demo.parent / "README.md").read_text()
    assert "DRAWN BY A PROGRAM" in text
    assert "Never use it on a crop" in text
    assert "80 photos" in text
    dataset = open_dataset(RunConfig(data=str(demo)))
    assert dataset.counts() == {condition: 20 for condition in sorted(CONDITIONS)}
    assert (len(dataset.group_names), measure_leak(dataset.splits, dataset.groups).leaked) == (40, 0)
    for split, share in enumerate((0.7, 0.15, 0.15)):
        assert abs(len(dataset.rows(split)) / 80 - share) < 0.06, SPLITS[split]
    with demo.open() as file:
        rows = list(csv.DictReader(file))
    photo = draw_leaf("mildew", 0, 3, 1, 32)
    (row,) = [r for r in rows if r["path"] == "mildew/00007.jpg"]
    assert (int(row["leaf_pixels"]), int(row["lesion_pixels"])) == (photo.leaf.sum(), photo.lesion.sum())


def test_the_same_set_is_written_once_and_always_the_same(demo, tmp_path):
    stamp = (demo.parent / "rust" / "00000.jpg").stat().st_mtime_ns
    assert write_demo(demo.parent, photos_per_class=20, side=32) == demo
    assert (demo.parent / "rust" / "00000.jpg").stat().st_mtime_ns == stamp
    again = write_demo(tmp_path / "again", photos_per_class=20, side=32)
    files = sorted(p.relative_to(demo.parent) for p in demo.parent.rglob("*") if p.is_file())
    assert len(files) == 82
    assert all((again.parent / p).read_bytes() == (demo.parent / p).read_bytes() for p in files)


def test_an_unfinished_set_is_finished_and_another_one_replaced(tmp_path):
    manifest = write_demo(tmp_path / "set", photos_per_class=2, side=32)
    manifest.unlink()
    (tmp_path / "set" / "rust" / "00001.jpg").rename(tmp_path / "set" / "rust" / "mine.jpg")
    assert len(write_demo(tmp_path / "set", photos_per_class=2, side=32).read_text().splitlines()) == 9
    assert len(write_demo(tmp_path / "set", photos_per_class=1, side=32).read_text().splitlines()) == 5
    assert len(list((tmp_path / "set").rglob("*.jpg"))) == 4 + 1, "a photo of the user stays"


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(DataError, match="contains other files"):
        write_demo(tmp_path, photos_per_class=1, side=32)
    write_demo(tmp_path / "set", photos_per_class=1, side=32)
    (tmp_path / "set" / "mine.txt").write_text("precious")
    with pytest.raises(DataError, match="contains other files"):
        write_demo(tmp_path / "set", photos_per_class=2, side=32)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["mine.txt"]
    assert (tmp_path / "set" / "mine.txt").read_text() == "precious"
