"""Folders of photos: how classes and splits are read from them, and what lies in the way."""

import os
import sys

import pytest

from core.config import RunConfig
from core.data.dataset import TEST, TRAIN, UNSPLIT, VALIDATION
from core.data.folder import open_folder
from core.data.source import find_photos, open_dataset
from core.errors import EXIT_WRONG_INPUT, DataError


def plant(root, *paths):
    """Empty files: a scan lists photos and opens none."""
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return root


def refuse_listing(monkeypatch, name):
    """Folders of this name cannot be listed. Root may read everything, so the refusal is pretended."""
    scan = os.scandir

    def refuse(path):
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)


def labels(dataset):
    return {path: dataset.label(row) for row, path in enumerate(dataset.paths)}


def test_sub_folders_are_classes_and_folders_below_a_class_belong_to_it(tmp_path):
    dataset = open_folder(plant(tmp_path, "rust/b.jpg", "healthy/a.JPG", "rust/a.webp", "rust/notes.txt"))
    assert dataset.classes == ("healthy", "rust")
    assert labels(dataset) == {"healthy/a.JPG": "healthy", "rust/a.webp": "rust", "rust/b.jpg": "rust"}
    assert dataset.splits.tolist() == [UNSPLIT] * 3
    dataset = open_folder(plant(tmp_path / "below", "rust/a.png", "rust/monday/b.png", "healthy/c.png"))
    assert labels(dataset) == {"healthy/c.png": "healthy", "rust/a.png": "rust", "rust/monday/b.png": "rust"}
    dataset = open_folder(plant(tmp_path / "deep", "bean/rust/x/a.png", "bean/ok/b.png", "rice/ok/y/z/c.png"))
    assert dataset.classes == ("bean/ok", "bean/rust", "rice/ok")


@pytest.mark.parametrize("names", ["train val test", "Train Valid Test", "training validation testing"])
@pytest.mark.parametrize("crop", ["", "tomato/"])
def test_splits_are_read_from_folders(tmp_path, names, crop):
    train, val, test = splits = names.split()
    paths = [f"{s}/{crop}{c}/{i}.jpg" for s in splits for c in ("a", "b") for i in range(2)]
    dataset = open_folder(plant(tmp_path, *paths))
    assert dataset.classes == (f"{crop}a", f"{crop}b")
    split_of = dict(zip(dataset.paths, dataset.splits.tolist(), strict=True))
    photos = (f"{train}/{crop}a/0.jpg", f"{val}/{crop}b/1.jpg", f"{test}/{crop}a/1.jpg")
    assert [split_of[photo] for photo in photos] == [TRAIN, VALIDATION, TEST]
    each = open_folder(plant(tmp_path / "each", "a.jpg", *(f"{c}/{s}/{crop}1.jpg" for c in "ab" for s in splits)))
    assert (each.classes, sorted(each.splits)) == ((f"a/{crop}"[:-1], f"b/{crop}"[:-1]), [0, 0, 1, 1, 2, 2])


def test_a_class_that_a_split_lacks_is_still_matched_by_name(tmp_path):
    paths = ["train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/c/2.jpg", "val/b/2.jpg"]
    dataset = open_folder(plant(tmp_path, *paths))
    assert (labels(dataset)["val/b/2.jpg"], dataset.classes) == ("b", ("a", "b", "c"))
    no_train = plant(tmp_path / "no_train", "test/a.jpg", "other/b.jpg")
    assert open_folder(no_train).classes == ("other", "test"), "classes named like splits"


def test_an_outer_folder_that_holds_everything_says_nothing_unless_it_has_photos_of_its_own(tmp_path):
    paths = [f"Data/PlantSet/{photo}" for photo in ("train/a/1.jpg", "train/b/1.jpg", "val/a/2.jpg")]
    dataset = open_folder(plant(tmp_path, *paths))
    assert (dataset.classes, set(dataset.splits.tolist())) == (("a", "b"), {TRAIN, VALIDATION})
    one_crop = open_folder(plant(tmp_path / "x", "tomato/rust/a.jpg", "tomato/healthy/b.jpg", "tomato/rust/tree/c.jpg"))
    assert one_crop.classes == ("tomato/healthy", "tomato/rust")
    wrapped = open_folder(plant(tmp_path / "y", "set/tomato/rust/a.jpg", "set/bean/healthy/b.jpg"))
    assert wrapped.classes == ("bean/healthy", "tomato/rust")
    dataset = open_folder(plant(tmp_path / "z", "leaves/a.png", "leaves/bean/rust/b.png", "leaves/rice/ok/c.png"))
    assert labels(dataset)["leaves/a.png"] == "leaves"


def test_photos_without_a_class_and_unread_formats_are_listed(tmp_path):
    dataset = open_folder(plant(tmp_path, "a/1.jpg", "b/2.jpg", "loose.jpg", "a/phone.HEIC", "b/raw.NEF"))
    reasons = {s.path: s.reason for s in dataset.skipped}
    assert set(reasons) == {"loose.jpg", "a/phone.HEIC", "b/raw.NEF"}
    assert "not in a class folder" in reasons["loose.jpg"]
    assert "Save the photo as JPEG" in reasons["a/phone.HEIC"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_loops_of_links_end_and_each_folder_counts_once(tmp_path):
    plant(tmp_path, "a/1.jpg", "b/2.jpg")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "b" / "self").symlink_to(tmp_path / "b")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert list(open_folder(tmp_path).paths) == ["a/1.jpg", "b/2.jpg"]
    root = plant(tmp_path / "root", "x/3.jpg")
    (root / "y").symlink_to(tmp_path / "b")
    assert open_folder(root).classes == ("x", "y"), "photos may be reached by links"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
@pytest.mark.parametrize("name", ["itself", "itself.jpg", "itself.heic", "nowhere"])
def test_a_link_that_leads_nowhere_is_told_and_the_photos_beside_it_are_read(tmp_path, name):
    plant(tmp_path, "a/1.jpg", "b/2.jpg")
    (tmp_path / "a" / name).symlink_to(name.replace("nowhere", "none"))
    dataset = open_folder(tmp_path)
    assert set(dataset.paths) == {"a/1.jpg", "b/2.jpg"}
    assert [(s.path, s.reason) for s in dataset.skipped] == [
        (f"a/{name}", "The symbolic link leads to nothing that can be read.")]


def test_a_tree_deeper_than_the_system_opens_by_name_is_refused_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        for _ in range(25):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        open("leaf.jpg", "w").close()
    except OSError:
        pytest.skip("the system does not make such paths at all")
    with pytest.raises(DataError, match="cannot be read"):
        open_folder(tmp_path)


def test_filters_look_at_crop_condition_label_and_split(tmp_path):
    root = plant(tmp_path, "train/tomato/rust/1.jpg", "train/bean/rust/1.jpg", "val/tomato/ok/1.jpg")
    assert len(open_folder(root, where=("crop=tomato",))) == 2
    assert len(open_folder(root, where=("crop=tomato", "split=val"))) == 1
    assert len(open_folder(root, where=("label=bean/rust",))) == 1
    with pytest.raises(DataError, match="no 'farm'"):
        open_folder(root, where=("farm=1",))
    with pytest.raises(DataError, match="No photo below .* has crop=rice"):
        open_folder(root, where=("crop=rice",))


@pytest.mark.parametrize(("paths", "said"), [
    ([], "There are no photos in .* into a subfolder"), (["a/readme.txt", "b/x.pdf"], "There are no photos in"),
    (["1.jpg", "2.jpg"], "are not in class folders"), (["train/1.jpg", "val/2.jpg"], "are not in class folders"),
    (["a/1.jpg", "a/2.jpg"], "have the class 'a'. Two classes or more"),
])  # fmt: skip
def test_folders_that_are_no_classification_are_refused(tmp_path, paths, said):
    plant(tmp_path, *paths)
    with pytest.raises(DataError, match=said) as raised:
        open_dataset(RunConfig(data=str(tmp_path)))
    assert raised.value.exit_code == EXIT_WRONG_INPUT


def test_a_folder_that_cannot_be_read_is_named_and_not_skipped(tmp_path, monkeypatch):
    plant(tmp_path, "a/1.jpg", "b/2.jpg", "secret/3.jpg")
    refuse_listing(monkeypatch, "secret")
    with pytest.raises(DataError, match=r"secret cannot be read: Permission denied. Change its permissions"):
        open_folder(tmp_path)
    with pytest.raises(DataError, match="cannot be read: Permission denied. Change its permissions"):
        list(find_photos([str(tmp_path)]))


@pytest.mark.parametrize("data", ["", "no/such/place", "bad\0name"])
def test_a_place_that_is_none_is_refused(data):
    with pytest.raises(DataError, match=r"--data|does not exist|no name"):
        open_dataset(RunConfig(data=data))


def test_listing_passes_over_leftovers_reports_and_takes_no_label_column(tmp_path):
    plant(tmp_path, "a/1.jpg", "b/2.jpg", "a/.3.jpg", ".cache/c/4.jpg", "__MACOSX/a/5.jpg", "a/._1.jpg", "b/Thumbs.db")
    assert list(open_folder(tmp_path).paths) == ["a/1.jpg", "b/2.jpg"]
    with pytest.raises(DataError, match="--label is the column"):
        open_dataset(RunConfig(data=str(tmp_path), label="x"))
    told = []
    open_folder(tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has file names that are no text")
def test_names_that_are_no_text_are_read_but_make_no_class_and_equal_names_make_one(tmp_path):
    plant(tmp_path, "a/1.jpg", "b/2.jpg", "a/\udcff.jpg", "a/\udcfe.heic", " /3.jpg", "a /4.jpg", "e\u0301/5.jpg")
    dataset = open_folder(tmp_path)
    assert (dataset.classes, len(open_folder(tmp_path, where=("label=e\u0301",)))) == (("a", "b", "\u00e9"), 1)
    assert {"a/\udcff.jpg", "a /4.jpg", "e\u0301/5.jpg"} < set(dataset.paths)
    assert [s.path for s in dataset.skipped] == ["a/\ufffd.heic", " /3.jpg"]
    plant(tmp_path, "c\udcff/1.jpg")
    with pytest.raises(DataError, match="is not valid UTF-8"):
        open_folder(tmp_path)
