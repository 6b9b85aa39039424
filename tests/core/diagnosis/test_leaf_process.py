"""Leaf masks from other processes: the same bits, an end when told, and a sentence where one dies."""

import os
import subprocess
import sys
from importlib import import_module
from unittest.mock import Mock

import numpy as np
import pytest

from core import child_process
from core.config import RunConfig
from core.data.dataset import TRAIN, Cancelled
from core.data.preparation import prepare_photos
from core.data.synthetic import write_demo
from core.diagnosis import backgrounds, leaf_process
from core.diagnosis.segmentation import segment
from core.errors import LeafClinicError
from tests.core.diagnosis.test_backgrounds import make as swap
from tests.helpers.noise import integers


@pytest.fixture
def leaves(tmp_path):
    write_demo(tmp_path / "photos", 12, 48)
    return prepare_photos(
        RunConfig(data=str(tmp_path / "photos"), cache=str(tmp_path / "cache"), image_size=33, test=0.0)
    )


@pytest.mark.thorough
def test_masks_have_the_same_bits_whoever_finds_them(leaves, tmp_path, monkeypatch):
    here, told = swap(leaves), []
    (kept,) = tmp_path.glob("cache/*/*-leaves-*.npz")
    kept.unlink()
    monkeypatch.setattr(backgrounds, "choose_processes", lambda photos, cores: 2)
    monkeypatch.setattr(leaf_process, "segment", lambda photo: pytest.fail("found in this process"))
    there = swap(leaves, lambda *said: told.append(said))
    assert here.backgrounds.masks.tobytes() == there.backgrounds.masks.tobytes()
    assert here.backgrounds.images.tobytes() == there.backgrounds.images.tobytes()
    count = len(leaves.rows(TRAIN))
    assert told[-1] == ("leaves", count, count)


def test_photos_of_any_shape_come_back_as_packed_masks():
    with leaf_process.packing(1) as pack:
        for shape in ((1, 1), (40, 17), (288, 288)):
            photo = integers("photo", (*shape, 3), 0, 256).astype(np.uint8)
            got = pack(photo)
            assert got.tobytes() == leaf_process.pack_leaf(photo).tobytes()
            assert np.unpackbits(got, axis=-1, count=shape[1]).astype(bool).tobytes() == segment(photo).leaf.tobytes()


def watch(monkeypatch, last=0):
    """The processes of two that are asked, in order; each is killed at photo number `last`, whichever thread asks."""
    asked, answer = [], leaf_process.LeafProcess.pack

    def pack(self, photo):
        asked.append(self._process)
        if asked.count(self._process) == last:
            self._process.kill()
        return answer(self, photo)

    monkeypatch.setattr(leaf_process.LeafProcess, "pack", pack)
    monkeypatch.setattr(backgrounds, "choose_processes", lambda photos, cores: 2)
    return asked


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_a_process_that_dies_ends_in_a_sentence(leaves, monkeypatch):
    asked = watch(monkeypatch, 3)
    with pytest.raises(LeafClinicError, match="ended unexpectedly .* try again"):
        swap(leaves)
    assert all(process.poll() is not None for process in asked)


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_it_stops_within_a_second_and_leaves_no_process(leaves, monkeypatch):
    asked = watch(monkeypatch)
    with pytest.raises(Cancelled):
        swap(leaves, Mock(side_effect=Cancelled))
    assert len(asked) <= 4, "photos were looked at after the stop"
    assert all(process.poll() is not None for process in asked)


@pytest.mark.timeout(60)
def test_a_process_ends_with_its_input():
    with subprocess.Popen(
        [sys.executable, "-m", "core.diagnosis.leaf_process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        answer, _ = process.communicate(b"\x10\0\0\0\x10\0\0\0too few bytes")
    assert (process.returncode, answer) == (0, b"")


def test_where_no_process_can_start_it_says_so(monkeypatch):
    monkeypatch.setattr(child_process, "command", lambda *names: [os.path.join(os.sep, "no", "such", "program")])
    with pytest.raises(LeafClinicError, match="could be started"), leaf_process.packing(2):
        pass


def test_few_photos_and_few_cores_stay_here():
    choose, each = leaf_process.choose_processes, leaf_process.PER_PROCESS
    assert choose(10_000, 1) == choose(10_000, leaf_process.FEWEST_CORES - 1) == 0
    assert choose(2 * each - 1, 64) == 0
    assert choose(2 * each, 64) == 2
    assert choose(10_000, 8) == 8
    assert choose(100_000, 256) == leaf_process.MOST


def test_a_bundled_program_starts_itself(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    for name, module in child_process.MODULES.items():
        assert child_process.command(name) == [sys.executable, "--process", name]
        assert callable(import_module(module).main)
