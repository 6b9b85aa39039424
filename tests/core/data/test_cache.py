"""The cache of decoded photos: sound after any kill, never in the user's folder, honest about what it skips."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from unittest.mock import Mock

import numpy as np
import pytest

from core.config import RunConfig
from core.data import cache as cache_module
from core.data import cache_index, cache_store
from core.data.cache import open_cache
from core.data.dataset import Cancelled, describe_skipped
from core.data.folder import open_folder
from core.data.photo_reader import PhotoReader, read_photo
from core.data.source import open_dataset, open_unlabelled
from core.errors import DataError, StorageError
from tests.helpers.photo_files import corners, encode, jpeg, leaf_folder, png_header_only

SIDE = 24
PIPE = getattr(os, "mkfifo", None)


@pytest.fixture
def photos(tmp_path):
    return leaf_folder(tmp_path / "photos")


def fill(photos, store, **more):
    dataset = open_folder(photos)
    return dataset, open_cache(dataset, SIDE, folder=str(store), **more)


def count_decoded(monkeypatch):
    """A list that grows by the content of each photo that is decoded from now on."""
    decoded, read = [], PhotoReader.read

    def count(reader, paths, *rest, **more):
        found = read(reader, paths, *rest, **more)
        decoded.extend(photo.content for photo in found if photo.pixels is not None)
        return found

    monkeypatch.setattr(PhotoReader, "read", count)
    return decoded


def assert_sound(dataset, cache):
    """Every photo lies in the cache just as it is decoded afresh."""
    assert len(cache.kept) == len(dataset)
    for row in cache.kept:
        assert np.array_equal(cache.photos[cache.slots[row]], read_photo(dataset.path(row), SIDE))


def test_photos_are_decoded_once_equal_files_share_a_place_and_sides_and_roots_are_apart(photos, tmp_path, monkeypatch):
    shutil.copy(photos / "rust" / "000.png", photos / "healthy" / "copy.png")
    dataset, first = fill(photos, tmp_path / "store")
    assert len(first.photos) == len(dataset) - 1
    assert_sound(dataset, first)
    assert (first.photos.dtype, first.side) == (np.uint8, SIDE)
    assert not first.photos.flags.writeable
    for photo, row in zip(first.gather(np.array([5, 0, 5])), (5, 0, 5), strict=True):
        assert np.array_equal(photo, read_photo(dataset.path(row), SIDE))
    assert open_cache(dataset, 16, folder=str(tmp_path / "store")).photos.shape[1:] == (16, 16, 3)
    assert_sound(*fill(leaf_folder(tmp_path / "other", seed=9), tmp_path / "store"))
    monkeypatch.setattr(cache_store, "decode_all", lambda *a: pytest.fail("decoded again"))
    assert_sound(*fill(photos, tmp_path / "store"))


def test_only_new_and_changed_photos_are_decoded_and_not_renamed_or_touched_ones(photos, tmp_path, monkeypatch):
    fill(photos, tmp_path / "store")
    (photos / "rust" / "000.png").rename(photos / "rust" / "other.png")
    os.utime(photos / "rust" / "001.png", (1, 1))
    decoded = count_decoded(monkeypatch)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Mock(free=cache_store.SPARE_BYTES + 3 * SIDE**2))  # for one
    dataset, cache = fill(photos, tmp_path / "store")
    assert decoded == []
    assert_sound(dataset, cache)
    decoded.clear()  # `assert_sound` decodes too
    (photos / "rust" / "new.png").write_bytes(encode(corners(), ".png"))
    (photos / "rust" / "002.png").write_bytes(encode(corners()[::-1], ".png"))
    dataset, cache = fill(photos, tmp_path / "store")
    assert len(decoded) == 2
    assert_sound(dataset, cache)


@pytest.mark.parametrize("sampled", [False, pytest.param(True, id="as on Windows")])
def test_a_photo_that_changed_with_equal_size_and_time_is_noticed(photos, tmp_path, monkeypatch, sampled):
    """A bitmap of the same size, written over the old one, with its time set back."""
    monkeypatch.setattr(cache_index, "KEEPS_CHANGE_TIME", not sampled)
    file = photos / "rust" / "flat.bmp"
    file.write_bytes(encode(corners(), ".bmp"))
    before = file.stat()
    fill(photos, tmp_path / "store")
    file.write_bytes(encode(corners()[::-1], ".bmp"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert_sound(*fill(photos, tmp_path / "store"))


def test_a_sample_of_a_file_sees_its_beginning_middle_and_end(tmp_path):
    data = bytearray(100_000)
    (tmp_path / "a").write_bytes(data)
    samples = {cache_index.read_sample(str(tmp_path / "a"), len(data))}
    for at in (0, 50_000, 99_999):
        changed = data.copy()
        changed[at] = 1
        (tmp_path / "a").write_bytes(changed)
        samples.add(cache_index.read_sample(str(tmp_path / "a"), len(data)))
    assert len(samples) == 4


def test_broken_photos_are_skipped_with_their_reasons(photos, tmp_path):
    good = jpeg(corners())
    broken = {"empty.jpg": (b"", "The file is empty"), "text.jpg": (b"no photo", "not a photo"),
              "cut.jpg": (good[: len(good) // 2], "cut off"),
              "huge.png": (png_header_only(20_000, 15_000), "300 megapixels"),
              "hollow.png": (png_header_only(10, 10), "damaged")}  # fmt: skip
    for name, (data, _) in broken.items():
        (photos / "rust" / name).write_bytes(data)
    dataset = open_folder(photos)
    (photos / "healthy" / "005.png").unlink()
    for _ in range(2):  # the second time from the index
        cache = open_cache(dataset, SIDE, folder=str(tmp_path / "store"))
        reasons = {os.path.basename(s.path): s.reason for s in cache.skipped}
        assert set(reasons) == {*broken, "005.png"}
        for name, (_, said) in broken.items():
            assert said in reasons[name]
        assert "does not exist" in reasons["005.png"]
        assert len(cache.kept) == 11
        assert (cache.slots[[list(dataset.paths).index("rust/cut.jpg")]] == -1).all()
        assert describe_skipped(cache.skipped).startswith("6 photos are excluded: 1 x "), "every photo is counted"
        assert describe_skipped(cache.skipped).endswith("; 3 more for other reasons.")


def test_a_reason_that_may_pass_is_not_remembered(photos, tmp_path, monkeypatch):
    """The files go away after they were found, and come back."""

    read = PhotoReader.read

    def read_late(*asked, **more):
        with suppress(FileNotFoundError):  # another thread was first
            photos.rename(tmp_path / "away")
        return read(*asked, **more)

    with monkeypatch.context() as patch:
        patch.setattr(PhotoReader, "read", read_late)
        assert len(fill(photos, tmp_path / "store")[1].skipped) == 12
    (tmp_path / "away").rename(photos)
    assert_sound(*fill(photos, tmp_path / "store"))


def test_nothing_is_written_among_the_photos(photos, tmp_path):
    before = {p: p.stat().st_mtime_ns for p in photos.rglob("*")}
    fill(photos, tmp_path / "store")
    assert {p: p.stat().st_mtime_ns for p in photos.rglob("*")} == before
    (tmp_path / "link").symlink_to(photos)
    for home in (photos / "store", tmp_path / "link" / "store"):
        with pytest.raises(DataError, match="is inside the photo folder .* --cache"):
            fill(photos, home)
    assert {p: p.stat().st_mtime_ns for p in photos.rglob("*")} == before


def test_the_cache_lies_where_the_user_or_the_system_says(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "user_cache_folder", lambda: tmp_path / "system")
    open_cache(open_folder(photos), SIDE)
    assert any((tmp_path / "system").rglob("*.photos"))
    assert os.name == "nt" or not (tmp_path / "system").stat().st_mode & 0o077, "kernels are saved there"


def test_progress_ends_at_the_total_and_stopping_keeps_what_is_done(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_store, "CHUNK", 1)
    stop = Mock(side_effect=[None] * 5 + [Cancelled])
    with pytest.raises(Cancelled):
        fill(photos, tmp_path / "store", threads=1, progress=stop)
    assert 3 <= stop.call_args.args[0] < 12
    told = []
    dataset, cache = fill(photos, tmp_path / "store", progress=lambda *a: told.append(a))
    assert told[1][0] >= 3
    assert told[-1] == (12, 12)
    assert_sound(dataset, cache)


def test_a_disk_that_is_too_small_or_fills_up_on_the_way_gives_a_sentence_and_a_sound_cache(
    photos, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(cache_store.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
        with pytest.raises(StorageError, match=r"need .* MB, but only .* Free disk space or choose another .* --cache"):
            fill(photos, tmp_path / "store")
    append = cache_store.CacheStore._append

    def full(store, file, row, item):
        if store.index.used == 5:
            raise OSError(28, "No space left on device")
        append(store, file, row, item)

    with monkeypatch.context() as patch:
        patch.setattr(cache_store.CacheStore, "_append", full)
        with pytest.raises(StorageError, match="left on device. Free disk space or choose another folder with --cache"):
            fill(photos, tmp_path / "store")
    assert_sound(*fill(photos, tmp_path / "store"))


@pytest.mark.parametrize(("ending", "harm"), [
    ("index", lambda data: b""), ("index", lambda data: data[: len(data) // 2]), ("index", None),
    ("index", lambda data: b"PK\3\4" + os.urandom(200)), ("photos", lambda data: b"123"), ("photos", None),
    ("photos", lambda data: data + b"half a photo that was written when the power went"),
    ("index", lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:]), ("index", PIPE), ("photos", PIPE),
])  # fmt: skip
def test_a_harmed_cache_is_repaired_also_where_a_photo_is_new(photos, tmp_path, ending, harm):
    fill(photos, tmp_path / "store")
    (file,) = (tmp_path / "store").rglob(f"*.{ending}")
    content = file.read_bytes()
    file.unlink()
    if harm is not None:
        harm(file) if harm is PIPE else file.write_bytes(harm(content))
    (photos / "rust" / "new.png").write_bytes(encode(corners(), ".png"))
    assert_sound(*fill(photos, tmp_path / "store"))
    assert len(list((tmp_path / "store").rglob("*.photos"))) == 1


def test_the_fingerprint_follows_path_class_and_content(photos, tmp_path):
    def mark():
        dataset, cache = fill(photos, tmp_path / "store")
        return cache.fingerprint(dataset)

    marks = {mark(), mark()}
    (photos / "rust" / "000.png").rename(photos / "rust" / "zzz.png")
    marks.add(mark())
    (photos / "rust" / "zzz.png").write_bytes(encode(corners(), ".png"))
    marks.add(mark())
    (photos / "rust").rename(photos / "blight")
    marks.add(mark())
    assert len(marks) == 4


FILL = """
import sys
from pathlib import Path
from core.data import cache, cache_store
from core.data.folder import open_folder
cache_store.SAVE_SECONDS = 0.0
cache_store.CHUNK = 1
cache.open_cache(open_folder(Path(sys.argv[1])), 24, folder=sys.argv[2], threads=2,
                 progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.thorough
def test_a_kill_at_any_moment_leaves_a_cache_that_is_sound(tmp_path):
    photos = leaf_folder(tmp_path / "photos", each=60)
    store = tmp_path / "store"
    generator, killed = random.Random(1), 0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", FILL, str(photos), str(store)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(generator.uniform(0, 0.06))
        process.send_signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        process.communicate()
        killed += process.returncode != 0
    assert killed, "the process was always done before the kill"
    assert_sound(*fill(photos, store))


@pytest.mark.thorough
def test_two_processes_may_fill_one_cache_at_once(tmp_path):
    photos = leaf_folder(tmp_path / "photos", each=30)
    command = [sys.executable, "-c", FILL, str(photos), str(tmp_path / "store")]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert_sound(*fill(photos, tmp_path / "store"))


def test_waiting_for_another_process_can_be_stopped(photos, tmp_path):
    store = tmp_path / "store"
    dataset, _ = fill(photos, store)
    (lock,) = store.rglob("*.lock")
    with cache_module.locked(lock, lambda: None), pytest.raises(Cancelled):
        open_cache(dataset, SIDE, folder=str(store), progress=Mock(side_effect=Cancelled))


def test_the_photos_of_a_manifest_in_a_folder_above_the_cache_are_found(photos, tmp_path):
    manifest = tmp_path / "list.csv"
    manifest.write_text("path,label\nphotos/rust/000.png,rust\nphotos/healthy/000.png,healthy\n")
    dataset = open_dataset(RunConfig(data=str(manifest)))
    for name in ("store", ".store"):
        cache = open_cache(dataset, SIDE, folder=str(tmp_path / name))
        assert_sound(dataset, cache)
        assert cache.facts.tolist() == [[32, 32, 0], [32, 32, 0]]
    with pytest.raises(DataError, match="is inside the photo folder"):
        open_cache(dataset, SIDE, folder=str(photos / "rust" / "store"))
    manifest.write_text("path\nphotos/rust/000.png\nelsewhere/000.png\n")
    assert cache_module.check_home(open_unlabelled(str(manifest)), str(tmp_path / "store")).parent.name == "store"
