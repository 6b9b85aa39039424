"""Hostile photos cost little and end nothing; good ones come out as they are decoded in this process."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from errno import ENOSPC
from unittest.mock import Mock

import cv2
import numpy as np
import pytest

from core import child_process
from core.data import photo_reader
from core.data.cache import open_cache
from core.data.folder import open_folder
from core.data.photo import MARGINS, WHOLE, decode
from core.data.photo import square as take_square
from core.data.photo_process import MOST_BYTES, MOST_SECONDS, TOO_LARGE, TOO_LONG
from core.data.photo_reader import READERS, PhotoReader, PhotoReaders, read_photo
from core.errors import LeafClinicError, StorageError
from tests.helpers.hostile_photos import BOMBS, ODD_TIFFS
from tests.helpers.photo_files import array, corners, encode, jpeg, leaf_folder

START_SECONDS = 1.0
"""Computing time that a process may take until it is ready."""

COSTS = """
import json, resource, sys
from core.data.photo_reader import READERS, read_file

for path in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    reason = read_file(path, 224).reason
    READERS.release()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([path, reason, seconds, after.ru_maxrss * 1024]))
print(json.dumps(1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])))
"""


def test_a_full_disk_under_the_shared_file_is_told(monkeypatch):
    with closing(PhotoReader()) as reader:
        monkeypatch.setattr(reader, "_room", Mock(wraps=reader._room, write=Mock(side_effect=OSError(ENOSPC, "full"))))
        with pytest.raises(StorageError, match="full. Free disk space"):
            reader.read(["a.jpg"], 8)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process")
@pytest.mark.parametrize("size", [8, 100])
def test_pixels_that_cannot_be_written_are_no_fault_of_the_photo(size, tmp_path):
    import resource  # not on Windows

    (tmp_path / "a.png").write_bytes(encode(corners(), ".png"))
    with closing(PhotoReader()) as reader:
        resource.prlimit(reader._process.pid, resource.RLIMIT_FSIZE, (size, size))
        with pytest.raises(LeafClinicError, match="no space for decoded photos"):
            reader.read([str(tmp_path / "a.png")], 8)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="kilobytes of ru_maxrss, and limits in the kernel")
def test_a_hostile_photo_costs_little_memory_and_time_and_is_reported(tmp_path):
    for name, make in BOMBS.items():
        (tmp_path / name).write_bytes(make())
    paths = [str(tmp_path / name) for name in BOMBS]
    done = subprocess.run([sys.executable, "-c", COSTS, *paths], capture_output=True, text=True, check=True)
    *found, own = map(json.loads, done.stdout.splitlines())
    assert own < 200e6, "the program itself decoded"
    for path, reason, seconds, memory in found:
        assert reason.endswith("."), path
        assert seconds < MOST_SECONDS + START_SECONDS, path
        assert memory <= MOST_BYTES, path


@pytest.mark.parametrize("name", ODD_TIFFS)
def test_pixels_that_no_camera_writes_are_a_reason_or_a_photo(tmp_path, name):
    (tmp_path / name).write_bytes(ODD_TIFFS[name]())
    with READERS.borrow() as reader:
        (found,) = reader.read([str(tmp_path / name)], 24, known=())
    assert found.reason.endswith(".") or found.pixels.shape == (24, 24, 3)
    assert found.content, "its process went on"


@pytest.mark.thorough
def test_a_cache_is_filled_in_spite_of_hostile_photos(tmp_path):
    folder = leaf_folder(tmp_path / "photos")
    good = len(open_folder(folder))
    hostile = {name: ODD_TIFFS[name] for name in ("f8-4.tiff", "i2-4.tiff")} | {"scans.jpg": BOMBS["scans.jpg"]}
    for name, make in hostile.items():
        (folder / "rust" / name).write_bytes(make())
    cache = open_cache(open_folder(folder), 24, folder=str(tmp_path / "store"))
    assert len(cache.kept) == good
    reasons = {os.path.basename(skipped.path): skipped.reason for skipped in cache.skipped}
    assert set(reasons) == set(hostile)
    assert "2 s of computing time" in reasons["scans.jpg"]
    assert "SampleFormat 2" in reasons["i2-4.tiff"]


def test_a_photo_comes_as_it_is_decoded_here(tmp_path):
    random = np.random.default_rng(0)
    files = {"a.png": encode(random.integers(0, 255, (50, 70, 3), np.uint8), ".png"), "b.jpg": jpeg(corners(90, 60)),
             "c.jpg": jpeg(corners(400, 300))}  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    paths = [str(tmp_path / name) for name in files]
    with PhotoReaders(1).borrow() as reader:
        squares = reader.read(paths, 32, known=())
        natives = reader.read(paths, 32, least=80)
        wholes = reader.read(paths, 0)
        fitted = reader.read(paths, 100, part=WHOLE)
        wide = reader.read(paths, 32, part=MARGINS)
        reader.close()
    for data, square, whole in zip(files.values(), squares, wholes, strict=True):
        rgb = decode(array(data))
        assert np.array_equal(square.pixels, decode(array(data), 32))
        assert np.array_equal(whole.pixels, rgb)
        assert square.facts == (rgb.shape[1], rgb.shape[0], 0)
    assert squares[0].content != squares[1].content
    assert [photo.pixels.shape for photo in fitted] == [(50, 70, 3), (90, 60, 3), (100, 75, 3)]
    assert np.array_equal(fitted[0].pixels, wholes[0].pixels)
    assert [photo.pixels.shape for photo in wide] == [(32, 44, 3), (48, 32, 3), (42, 32, 3)]
    for square, photo in zip(squares, wide, strict=True):
        assert np.array_equal(take_square(photo.pixels, 32), square.pixels)
    quarter = cv2.imdecode(array(files["c.jpg"]), cv2.IMREAD_REDUCED_COLOR_4)[..., ::-1]
    assert np.array_equal(fitted[2].pixels, quarter), "JPEG is scaled while it is decoded"
    for native, photo in zip(natives, (wholes[0].pixels, wholes[1].pixels, quarter), strict=True):
        assert np.array_equal(native.pixels, take_square(photo, min(photo.shape[:2]))), "its own size, or what is left"


def test_what_is_known_is_not_decoded(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(corners(), ".png"))
    (tmp_path / "b.png").write_bytes(encode(corners()[::-1], ".png"))
    paths = [str(tmp_path / name) for name in ("a.png", "none.png", "b.png")]
    with PhotoReaders(1).borrow() as reader:
        known = {reader.read(paths, 8, known=())[0].content}
        again = reader.read(paths, 8, known=known)
        reader.close()
    assert [photo.pixels is None for photo in again] == [True, True, False]
    assert [photo.reason for photo in again] == ["", "The file does not exist.", ""]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_process_that_is_killed_is_replaced(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(corners(), ".png"))
    with PhotoReaders(1).borrow() as reader:
        reader.read([str(tmp_path / "a.png")], 8)
        os.kill(reader._process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, reader._process.pid, os.WEXITED | os.WNOWAIT)
        assert reader.read([str(tmp_path / "a.png")], 8)[0].pixels is not None
        os.kill(reader._process.pid, signal.SIGSTOP)
        killer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -KILL {reader._process.pid}"])
        assert reader.read([str(tmp_path / "a.png")], 8)[0].reason == photo_reader.ENDED
        killer.wait()
        reader.close()


def test_a_process_that_cannot_start_is_no_fault_of_the_photo(tmp_path, monkeypatch):
    monkeypatch.setattr(child_process, "command", lambda *names: [sys.executable, "-c", "raise SystemExit(3)"])
    readers = PhotoReaders(1)
    with pytest.raises(LeafClinicError, match="could not start"), readers.borrow() as reader:
        reader.read([str(tmp_path / "a.png")], 8)


def test_processes_that_are_released_end(tmp_path):
    readers = PhotoReaders(2)
    with readers.borrow() as one, readers.borrow() as two:
        processes = [one._process, two._process]
    readers.release()
    assert all(process.returncode is not None for process in processes)
    with readers.borrow() as again:
        assert again._process not in processes
    readers.release()


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="a process there stays until its input ends")
def test_a_process_that_is_not_asked_ends_and_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(encode(corners(), ".png"))
    script = "from core.data import photo_process as p; p.IDLE_SECONDS = 0.1; p.main()"
    monkeypatch.setattr(child_process, "command", lambda *names: [sys.executable, "-c", script])
    with PhotoReaders(1).borrow() as reader:
        for _ in range(2):
            assert reader.read([str(tmp_path / "a.png")], 8)[0].pixels is not None
            assert reader._process.wait(20) == 0
        monkeypatch.setattr(reader._process, "poll", lambda: None)  # as if it ended while it was asked
        assert reader.read([str(tmp_path / "a.png")], 8)[0].pixels is not None
        reader.close()


def test_relative_paths_follow_the_working_directory(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.jpg").write_bytes(jpeg(corners(8, 8)))
        monkeypatch.chdir(tmp_path / name)
        assert read_photo(f"{name}.jpg").shape == (8, 8, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="stands for Windows and macOS where those are not at hand")
@pytest.mark.parametrize(("work", "seconds", "code"), [
    ("while True: pass", 0.3, TOO_LONG), ("data = np.ones(40_000_000); time.sleep(9)", 30, TOO_LARGE),
])  # fmt: skip
def test_where_the_kernel_has_no_limits_a_thread_keeps_them(work, seconds, code):
    script = f"""
import sys, time
import numpy as np
sys.platform = "darwin"
from core.data import photo_process
photo_process.MOST_SECONDS, photo_process.MOST_BYTES = {seconds}, 250_000_000
photo_process.memory_in_use = lambda: 4096 * int(open("/proc/self/statm").read().split()[1])
with photo_process.Limits():
    {work}
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == code


def test_the_process_imports_little():
    script = "import sys, core.data.photo_process; print(*(m for m in sys.modules if m.startswith(('core.', 'numba'))))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "core.data", *(f"core.data.{name}" for name in ("photo", "photo_format", "photo_process"))}


@pytest.mark.parametrize("bits", [8, 16])
def test_transparent_photos_are_put_on_white_before_they_are_scaled(bits):
    random = np.random.default_rng(0)
    deep = random.integers(0, 1 << bits, (700, 900, 4)).astype(f"u{bits // 8}")
    rgb, alpha = deep[..., :3], deep[..., 3:].astype(np.float32) / ((1 << bits) - 1)
    white = (rgb * alpha + ((1 << bits) - 1) * (1 - alpha) + 0.5).astype(deep.dtype)
    white = (white >> (bits - 8)).astype(np.uint8)[:, 100:800]
    wanted = cv2.resize(np.ascontiguousarray(white), (64, 64), interpolation=cv2.INTER_AREA)
    assert np.array_equal(decode(array(encode(deep, ".png")), 64), wanted)
