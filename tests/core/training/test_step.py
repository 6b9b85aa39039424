"""One step in parts is the step of the whole batch, and tells which photos come next."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np

from core.device import Optimizer, PhotoBatch
from core.models.architectures import build
from core.ops.builder import with_loss
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, identity_augmentation, transform
from core.training.step import (
    diverged,
    find_broken_layer,
    pair_with_next,
    share_out,
    split_batch,
    start_step,
    with_photos,
)
from tests.helpers.gpu_network import batch_for, random_weights
from tests.helpers.reference_plan import ReferencePlan


def test_a_part_counts_as_much_as_the_weights_of_its_labels():
    labels = [np.array([0, 0, 1]), np.array([1, -1, 1])]
    assert share_out((1.0, 3.0), labels) == [2 * 5 / 11, 2 * 6 / 11]
    assert share_out((), labels) == [2 * 3 / 5, 2 * 2 / 5]
    assert share_out((), [np.array([-1]), np.array([-1])]) == [1.0, 1.0]
    assert share_out((0.1, 7.0), labels[:1]) == [1.0]


def plan_of(batch, size):
    graph = with_loss(build("cnn", 5, 28, dropout=0.4), 0.1, ())
    plan = ReferencePlan(graph, batch=size, training=True, optimizer=Optimizer("sgd"), seed=3)
    plan.load(random_weights(graph))
    return plan, batch_for(graph, batch, seed=2)


def test_the_photos_of_the_next_part_and_of_the_next_step_are_announced(monkeypatch):
    plan, batch = plan_of(5, 3)
    following, seen = batch_for(plan.graph, 4, seed=8), []
    gradient = plan.gradient

    def watched(part, **how):
        seen.append((part.photos, plan.announced))
        return gradient(part, **how)

    monkeypatch.setattr(plan, "gradient", watched)
    start_step(plan, batch, 0.1, following)()
    start_step(plan, following, 0.1)()
    photos = [part for part, _ in seen]
    assert [len(p) for p in photos] == [3, 2, 3, 1]
    for (_, announced), used in zip(seen, [*photos[1:], None], strict=True):
        assert (announced is None) == (used is None)
        assert used is None or announced.photos.__array_interface__["data"] == used.__array_interface__["data"]


def test_parts_of_a_ranks_share_keep_their_places_in_the_batch():
    """Dropout draws by place."""
    _, batch = plan_of(5, 3)
    assert [part.first for part in split_batch(replace(batch, first=6), 2)] == [6, 8, 10]


def test_batches_come_with_the_one_after():
    batches = [PhotoBatch(None, np.zeros(0), np.array([i])) for i in range(3)]
    numbers = [(int(a.labels[0]), b and int(b.labels[0])) for a, b in pair_with_next(iter(batches))]
    assert numbers == [(0, 1), (1, 2), (2, None)]
    assert list(pair_with_next([])) == []


def test_a_batch_of_one_part_is_a_step_of_the_plans_own(monkeypatch):
    plan, batch = plan_of(5, 5)
    rates, step = [], plan.start_step
    monkeypatch.setattr(plan, "start_step", lambda part, rate, share: rates.append(rate) or step(part, rate, share))
    start_step(plan, batch, 0.1, batch_for(plan.graph, 7, seed=8))()
    assert rates == [0.1]
    assert len(plan.announced.labels) == 5
    monkeypatch.setattr(plan, "gradients", lambda: {"conv1.weight": np.ones(1), "dense1.weight": np.full(1, 1e30, "f")})
    probed = (plan, build("cnn", 5, 28, dropout=0.4), batch, "cpu", None)
    others = [Mock(gather_values=lambda own, other=other: [own, other]) for other in ("loss", "conv2")]
    assert [find_broken_layer(*probed, ranks) for ranks in others] == ["dense1", "conv2"]
    plan.load({name: array * np.float32(np.nan) for name, array in plan.weights().items()})
    assert not start_step(plan, batch, 0.1)().is_finite
    assert find_broken_layer(*probed, Mock(gather_values=lambda own: [own])) == "conv1"
    assert ["The last checkpoint" in str(diverged(3, 1.0, "conv", name)) for name in ("x", "")] == [True, False]
    assert int(plan.state()["step"]) == 1


def test_mixed_photos_are_looked_at_anew_by_their_place_in_the_batch():
    photos = np.random.default_rng(2).integers(0, 256, (9, 8, 8, 3), np.uint8)
    augmentation = identity_augmentation(3, 8, 8)
    augmentation[0, BACKGROUND], augmentation[2, BACKGROUND] = -1 - 7, -1 - 4
    augmentation[:, BACKGROUND_AFFINE] = (1, 0, 0, 0, 1, 0)
    batch = PhotoBatch(None, augmentation, np.zeros(3, np.int32), np.array([4, 2, 7], np.int32))
    plain = ((0.0,) * 3, (1.0,) * 3)
    carried = with_photos(batch, photos)
    want = transform(photos, augmentation, (8, 8), *plain, index=batch.index)
    np.testing.assert_array_equal(transform(carried.photos, carried.augmentation, (8, 8), *plain), want)
    assert with_photos(carried, photos) is carried
