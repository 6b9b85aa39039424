"""A CPU plan whose loss has targets of its own for each photo: verification, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from core.cpu.plan import CpuPlan
from core.device import Optimizer, PhotoBatch
from core.errors import InputError
from core.models import build, initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from tests.helpers.distillation import CLASSES, SIDE, WEIGHTS, taught_batch


def graph_of(weights=(), taught=True, name="squeezenet1_1"):
    return with_loss(build(name, CLASSES, SIDE, dropout=0.3), 0.0 if taught else 0.1, weights, taught)


def plan_of(graph, batch, **more):
    plan = CpuPlan(graph, batch=batch, training=True, seed=5, optimizer=Optimizer("sgd"), **more)
    plan.load(initial_weights(graph, 3))
    return plan


def test_verification_sees_targets_and_a_batch_that_does_not_fit_the_loss_is_refused():
    batch = taught_batch(3)
    taught, plain = plan_of(graph_of(WEIGHTS), 3, verify=True), plan_of(graph_of(taught=False), 3)
    assert np.isfinite(taught.gradient(batch).loss)
    wrong = replace(batch, targets=batch.targets[:, :-1])
    for plan, given, sentence in (
        (taught, replace(batch, targets=None), r"learns from targets of \(3, 5\) numbers, not from labels alone"),
        (taught, wrong, r"learns from targets of \(3, 5\) numbers, not from \(3, 4\)"),
        (plain, batch, "learns from labels alone"),
    ):
        with pytest.raises(InputError, match=sentence):
            plan.gradient(given)


def test_photos_are_borrowed_or_kept_and_taken_by_index():
    photos = np.random.default_rng(0).integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8)
    graph = build("squeezenet1_1", CLASSES, SIDE)
    owner, other = plan_of(graph_of(), 3), CpuPlan(graph, batch=3, training=False)
    other.load(initial_weights(graph, 3))
    owner.keep_photos(photos)
    other.borrow_photos(owner)
    augmentation, labels = identity_augmentation(2, SIDE, SIDE), np.full(2, -1, np.int32)
    said = other.predict(PhotoBatch(None, augmentation, labels, np.array([4, 1], np.int32)))["logits"]
    assert said.tobytes() == other.predict(PhotoBatch(photos[[4, 1]], augmentation, labels))["logits"].tobytes()
    assert other.keep_photos(photos[::-1])
    kept = other.predict(PhotoBatch(None, augmentation, labels, np.array([1, 4], np.int32)))["logits"]
    assert said.tobytes() == kept.tobytes()
