"""Cyclic garbage is collected in the window's thread, and what has lived long does not stop it."""

import gc
import weakref

import pytest

from app import collector

pytestmark = pytest.mark.gui


@pytest.fixture
def quiet():
    gc.disable()
    gc.collect()
    gc.freeze()
    yield gc.get_freeze_count()
    gc.unfreeze()
    gc.enable()


def due(monkeypatch, generation):
    counts = [0, 0, 0]
    counts[generation] = 10_000
    monkeypatch.setattr(gc, "get_count", lambda: tuple(counts))


def test_many_objects_are_traversed_once(quiet, monkeypatch):
    results = [[n, [n]] for n in range(collector.MAX_TRAVERSED)]
    due(monkeypatch, 2)
    collector.collect()
    assert gc.get_freeze_count() >= quiet + 2 * len(results)
    assert len(gc.get_objects(2)) < collector.MAX_TRAVERSED


def test_few_objects_stay_collectable(quiet, monkeypatch):
    def ring():
        """Holds itself."""

    ring.ring = ring
    seen = weakref.ref(ring)
    due(monkeypatch, 2)
    collector.collect()
    assert gc.get_freeze_count() <= quiet
    del ring
    assert seen() is not None
    collector.collect()
    assert seen() is None
