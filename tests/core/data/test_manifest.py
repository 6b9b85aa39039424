"""CSV manifests: what is honoured, what is refused, and how much memory a large one takes."""

import os
import subprocess
import sys

import numpy as np
import pytest

from core.data.dataset import TEST, TRAIN, UNSPLIT, VALIDATION, Skipped, reasons
from core.data.manifest import VALUES_NAMED, open_manifest, read_paths, write_manifest
from core.errors import EXIT_WRONG_INPUT, DataError

PLAIN = "path,label\na.jpg,rust\nb.jpg,healthy\nc.jpg,rust\n"


def write(folder, text):
    file = folder / "manifest.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_classes_are_sorted_names_labels_follow_them_and_a_photo_that_is_there_twice_counts_once(tmp_path):
    dataset = open_manifest(write(tmp_path, PLAIN))
    assert (dataset.classes, dataset.labels.tolist()) == (("healthy", "rust"), [1, 0, 1])
    assert (dataset.labels.dtype, dataset.counts()) == (np.int32, {"healthy": 1, "rust": 2})
    assert dataset.path(0) == str(tmp_path / "a.jpg")
    assert dataset.groups is None
    assert dataset.splits.tolist() == [UNSPLIT] * 3
    photo = tmp_path / "elsewhere" / "a.jpg"
    (tmp_path / "a.jpg").touch()
    dataset = open_manifest(write(tmp_path, f"{PLAIN}./a.jpg,rust\n{photo.as_posix()},rust\n../x/././a.jpg,rust\n"))
    assert list(dataset.paths) == ["a.jpg", "b.jpg", "c.jpg", photo.as_posix(), "../x/a.jpg"]
    assert dataset.path(3) == str(photo)


def test_a_manifest_that_is_written_again_has_its_groups_splits_and_settings(tmp_path):
    file = write(tmp_path, 'path,label,split,group,setting\n"a\rb",rust,train,1,lab\nb,healthy,val,,field\nc,rust,,,\n')
    dataset = open_manifest(file)
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    for target in (tmp_path / "again.csv", tmp_path / "link" / "own.csv"):
        write_manifest(target, dataset, dataset.classes, dataset.labels, np.arange(3))
        assert os.path.realpath(open_manifest(target).path(0)) == os.path.realpath(dataset.path(0))
    assert (tmp_path / "again.csv").read_bytes() == file.read_bytes()


def test_crop_and_condition_make_the_label_unless_a_column_is_named(tmp_path):
    file = write(tmp_path, "path,crop,condition,kind\na,tomato,rust,x\nb,bean,rust,e\u0301\n")
    assert (open_manifest(file).classes, open_manifest(file).columns) == (("bean/rust", "tomato/rust"), {})
    assert list(open_manifest(file, columns=("kind",)).columns["kind"]) == ["x", "e\u0301"], "kept only when asked for"
    assert open_manifest(file, label="kind").classes == open_manifest(file, label="KIND").classes == ("x", "\u00e9")
    assert list(open_manifest(file, where=("kind=\u00e9",)).paths) == ["b"]
    assert open_manifest(write(tmp_path, "path,crop,label,LABEL,Path\na,c,x,y,b\n")).classes == ("x",)
    with pytest.raises(DataError, match="--label: .* no column 'disease'; its columns are path, crop"):
        open_manifest(file, label="disease")


def test_splits_and_groups_are_honoured_and_a_class_that_one_split_lacks_keeps_its_number(tmp_path):
    text = "group,path,label,split\ng1,a,x,Train\ng2,b,y,valid\n,c,x,TEST\ng1,d,y,\n,e,y,validation\n"
    dataset = open_manifest(write(tmp_path, text))
    assert dataset.splits.tolist() == [TRAIN, VALIDATION, TEST, UNSPLIT, VALIDATION]
    groups = dataset.groups
    assert groups[0] == groups[3]
    assert len(set(groups.tolist())) == 4, "rows without a group are each alone"
    assert [dataset.group_names[g] for g in groups[:2]] == ["g1", "g2"]
    text = "split,path,label\ntrain,a,blight\ntrain,b,healthy\ntrain,c,rust\nval,d,rust\nval,e,healthy\n"
    dataset = open_manifest(write(tmp_path, text))
    validation = dataset.take(dataset.rows(VALIDATION))
    assert validation.classes == ("blight", "healthy", "rust")
    assert [validation.label(i) for i in range(2)] == ["rust", "healthy"]


def test_filters_hold_all_at_once(tmp_path):
    file = write(tmp_path, "crop,path,condition,Setting\ntomato,a,rust,lab\ntomato,b,healthy,field\nbean,c,rust,field")
    assert open_manifest(file, where=("crop=tomato",)).classes == ("tomato/healthy", "tomato/rust")
    both = open_manifest(file, where=("crop=tomato", "setting=field"))
    assert (list(both.paths), list(both.columns["setting"])) == (["b"], ["field"])
    with pytest.raises(DataError, match="No row of .* has crop=potato. There, crop is one of bean, tomato."):
        open_manifest(file, where=("crop=potato",))
    with pytest.raises(DataError, match="--where: .* no column 'farm'; its columns are crop, path"):
        open_manifest(file, where=("farm=one",))
    for count, end in ((VALUES_NAMED, ""), (VALUES_NAMED + 1, ", \\.\\.\\.")):
        many = write(tmp_path, "path,label\n" + "".join(f"{at},{at:02d}\n" for at in range(count)))
        with pytest.raises(DataError, match=f"label is one of 00, .*, {VALUES_NAMED - 1}{end}\\.$"):
            open_manifest(many, where=("label=x",))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("first", ["", "sep={}{}"])
def test_spreadsheets_ways_of_writing_are_read(tmp_path, separator, encoding, newline, first):
    rust, written, there = "rust" if separator == "," else "rust, or so", " d\\e.jpg", "d/e.jpg"
    lines = [("path", "label"), ("ä ö/1.jpg", rust), (f'"with{separator}two"', '"bệnh\r\nsương"'), ("b\\c.jpg", rust),
             (written, rust)]  # fmt: skip
    text = first.format(separator, newline) + newline.join(map(separator.join, lines)) + 2 * newline + separator
    mark = "\ufeff" if encoding == "utf-16-be" else ""  # others write their own, or none
    file = write(tmp_path, (mark + text).encode(encoding))
    if os.sep == "/":
        (tmp_path / (there := written)).touch()
    dataset = open_manifest(file)
    assert list(dataset.paths) == ["ä ö/1.jpg", f"with{separator}two", "b/c.jpg", there]
    assert (dataset.classes, list(read_paths(file))[3]) == (("bệnh\r\nsương", rust), str(tmp_path / there))
    with pytest.raises(DataError, match="No row of .* has label=x. There, label is one of bệnh"):
        open_manifest(file, where=("label=x",))


@pytest.mark.parametrize(("text", "said"), [
    (b"", "is empty"), (b"\n\n", "is empty"), (b"path,label\n", "no rows below its header"),
    (b"name,label\na,b\n", "no column path; its columns are name, label. Rename the column"),
    (b"path,size\na,3\n", "no class column.*--label COLUMN"),
    (b"path,label\na.jpg,rust\nb.jpg,\n", "Line 3 .* no class"), (b"path,label\n,rust\n", "Line 2 .* no path"),
    (b"path,label,split\na,rust,maybe\n", "Line 2 .* 'maybe' is not train, val or test"),
    (b'path,label\n"a,rust\n', "not a valid CSV"), (b"path,label,split\na,x,train\na,x,test\n", "labels or splits"),
    (b"path,label\na.jpg,rust\na.jpg,healthy\n", "gives 1 of its photos two different labels or splits, such as a.jpg"),
    (b"\xff\xfep\0a\0t\0h\0,\0l\0a\0b\0e\0l\0\n", "starts like UTF-16.*Save it again"),
    ("path,label\na,x\n".encode("utf-16-le"), r"not a text file. .*\(UTF-8\)"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\x0d\n", "column path|not a text file"),
    (b"path,label\na\0b,rust\n", "not a valid CSV|contains a zero byte"), (b"sep=;\n", "no column path"),
    (b"path,label\na,r\0b\n", "not a valid CSV|contains a zero byte"), (b"," * 9999 + b"\n", "^.{,1500}$"),
    (b"path,label,label\na,x,y\n", "more than one column label. Rename"),
    (b"PATH,label,Path\na,x,b\n", "more than one column path. Rename"),
])  # fmt: skip
def test_what_is_no_manifest_is_refused_with_what_to_do(tmp_path, text, said):
    with pytest.raises(DataError, match=said) as raised:
        open_manifest(write(tmp_path, text))
    assert raised.value.exit_code == EXIT_WRONG_INPUT
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.csv"], "nothing is written"


@pytest.mark.parametrize("read", [open_manifest, lambda path: list(read_paths(path))])
@pytest.mark.parametrize(("text", "line"), [
    ("path,label\na.jpg,rust,b.jpg\n", 2), ("sep=;\npath;label\n\nb.jpg\n", 4), ('path,label\na,"x\ny"\n"b\n"\n', 4),
])  # fmt: skip
def test_a_row_of_another_width_is_refused_by_its_first_line(tmp_path, read, text, line):
    with pytest.raises(DataError, match=f"Line {line} .* has [13] fields, but the header has 2"):
        read(write(tmp_path, text))


def test_a_path_that_fills_a_screen_is_cut_in_a_sentence():
    said = reasons((Skipped("9" * 100_000 + ".jpg", "There is no file."),))
    assert said.endswith("9.jpg)")
    assert len(said) < 400


def test_a_column_of_all_different_values_is_no_class(tmp_path, monkeypatch):
    monkeypatch.setattr("core.data.dataset.MOST_CLASSES", 5)
    text = "path,label\n" + "".join(f"p{i},{i}\n" for i in range(6))
    with pytest.raises(DataError, match="more than 5 different labels .*--label COLUMN"):
        open_manifest(write(tmp_path, text))


def test_reading_reports_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("core.data.manifest.REPORT_EVERY", 2)
    file = write(tmp_path, "path,label\n" + "".join(f"p{i},x\n" for i in range(9)))
    told = []
    open_manifest(file, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (9, 9)
    assert len(told) > 2


MEASURE = """
import resource, sys
from pathlib import Path
from core.data.manifest import open_manifest, write_manifest
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
dataset = open_manifest(Path(sys.argv[1]))
texts = [dataset.paths, dataset.group_names, *dataset.columns.values()]
held = sum(len(text._block) + text._ends.nbytes for text in texts) + 9 * len(dataset)  # and labels, splits, groups
print(len(dataset), len(dataset.classes), peak() - before, held)
"""


def large_manifest(folder, rows):
    splits = ("train", "train", "val", "test")
    return write(folder, "path,crop,condition,group,split,source\n" + "".join(
        f"photos/crop{i % 8}/condition{i % 37}/0090d05d-d797-4c99-abd4-{i:012x}___RS_{i}.jpg,crop{i % 8},"
        f"condition{i % 37},plant-{i // 3},{splits[i // 3 % 4]},somewhere or other {i}\n" for i in range(rows)))


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="resource is missing on Windows")
@pytest.mark.parametrize(("count", "megabytes"), [(50_000, 45), pytest.param(1_000_000, 400, marks=pytest.mark.slow)])
def test_many_rows_take_little_memory(tmp_path, count, megabytes):
    command = [sys.executable, "-c", MEASURE, str(large_manifest(tmp_path, count))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, classes, grown, held = map(float, done.stdout.split())
    assert (rows, classes) == (count, 296)
    assert grown < megabytes
    assert held < count * 150
