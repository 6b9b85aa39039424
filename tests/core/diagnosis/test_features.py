"""Summaries of feature maps, and how familiar a photo is by them."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.auroc import auroc
from core.diagnosis.familiarity import Familiarity, fit_familiarity
from core.diagnosis.features import NetworkOutputs, PrincipalSubspace, find_nodes, fit_subspace, read_statistics
from core.diagnosis.spreads import fit_spreads, read_spreads
from core.models import build


@pytest.fixture(scope="module")
def learned():
    """Logits and features of three classes in 40 dimensions that vary in 5 of them, and the fitted subspace."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 200)
    directions = np.linalg.qr(rng.normal(size=(40, 5)))[0]
    features = (np.eye(3)[labels] @ rng.normal(0, 4, (3, 5)) + rng.normal(0, 1, (600, 5))) @ directions.T + 2
    features += rng.normal(0, 0.05, features.shape)
    logits = 5 * np.eye(3)[labels] + rng.normal(0, 1, (600, 3))
    return logits, features, fit_subspace(logits, features, 5)


def vim(logits, features, space):
    return Familiarity("vim", subspace=space).measure(NetworkOutputs(logits, features))


def energy(logits, temperature=1.0, features=None):
    return Familiarity("energy", temperature).measure(NetworkOutputs(logits, features))


def test_a_photo_off_the_subspace_is_unfamiliar_and_the_scale_is_that_of_the_largest_logits(learned):
    logits, features, space = learned
    strange = features + np.random.default_rng(1).normal(0, 1, features.shape)
    known, unknown = (vim(logits, x, space) for x in (features, strange))
    assert auroc(known, unknown) > 0.99
    assert auroc(energy(logits, features=features), energy(logits, features=strange)) == 0.5
    known, unknown = (vim(z, features, space) for z in (logits, logits / 10))
    assert auroc(known, unknown) > 0.9
    assert space.scale * space.residual(features).mean() == pytest.approx(logits.max(axis=1).mean(), rel=1e-6)


@pytest.mark.parametrize(("photos", "kept"), [(2, 1), (30, 3), (600, 39)])
def test_few_photos_span_a_small_subspace(learned, photos, kept):
    logits, features, _ = learned
    assert fit_subspace(logits[:photos], features[:photos]).basis.shape == (40, kept)


def test_the_subspace_goes_to_arrays_and_back_and_crafted_ones_are_refused(learned):
    logits, features, space = learned
    arrays = space.to_arrays()
    back = read_statistics(arrays)
    assert isinstance(back, PrincipalSubspace)
    want, got = (vim(logits, features, s) for s in (space, back))
    assert got == pytest.approx(want, rel=1e-4, abs=1e-4)
    assert read_statistics({}) is None
    assert read_statistics({**arrays, "features.basis": np.zeros((3, 5), np.float32)}) is None
    assert read_statistics({"features.center": arrays["features.center"]}) is None
    assert read_statistics({**arrays, "features.center": arrays["features.center"].astype(np.int64)}) is None


def test_energy_auroc_with_ties_and_pooling_by_hand_and_a_network_without_a_map():
    z = np.log(np.array([[0.7, 0.2, 0.1]]))
    assert energy(z + 3)[0] == pytest.approx(3.0)
    assert energy(z + 3, temperature=0.5)[0] == pytest.approx(6 + np.log(0.54))
    assert auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1.0
    assert auroc(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    assert auroc(np.array([1.0, 2.0]), np.array([1.0, 3.0])) == pytest.approx(0.375)
    plain, nodes = (find_nodes(build(name, 3, 16)) for name in ("mlp", "cnn"))
    seen = nodes.summarize({nodes.last: np.arange(8.0).reshape(1, 2, 2, 2), "logits": z})
    assert (plain.names, seen.features.tolist()) == ((), [[3.0, 4.0]])


def relative_distance(x, labels, asked, kept):
    """By inverse covariances in the principal subspace of three classes and one variance outside it."""
    center, means = x.mean(axis=0), np.stack([x[labels == c].mean(axis=0) for c in range(3)])
    basis = np.linalg.eigh(np.cov(x.T))[1][:, ::-1][:, :kept]

    def distance(rows, difference):
        added, inside, z = 0.005 * (rows**2).sum() / x.size, rows @ basis, difference @ basis
        rest = ((rows**2).sum() - (inside**2).sum()) / len(x) / (x.shape[1] - kept) + added
        inverse = np.linalg.inv(inside.T @ inside / len(x) + added * np.eye(kept))
        return np.einsum("ij,jk,ik->i", z, inverse, z) + ((asked - center) ** 2 @ np.ones(x.shape[1])
                                                          - ((asked - center) @ basis) ** 2 @ np.ones(kept)) / rest

    return distance(x - center, asked - center) - np.min(
        [distance(x - means[labels], asked - mean) for mean in means], axis=0)


def test_the_score_of_spreads_is_the_relative_mahalanobis_distance_and_new_classes_become_familiar(learned):
    x = learned[1] + np.random.default_rng(2).normal(0, 0.3, learned[1].shape)  # 8 bits lose more of less noise
    labels, moved = np.repeat(np.arange(3), 200), x[:50] + np.linspace(0, 4, 40)
    found = fit_spreads(x, labels)
    assert all(np.corrcoef(found.score(y), relative_distance(x, labels, y, 39))[0, 1] > 0.999 for y in (x, moved))
    assert auroc(found.score(x), found.score(moved)) > 0.99
    added = found.with_classes(moved[:25], np.zeros(25))
    assert auroc(added.score(x), added.score(moved[25:])) < auroc(found.score(x), found.score(moved[25:]))
    arrays = found.to_arrays()
    assert arrays["spreads.directions"].dtype == np.int8
    assert read_spreads(arrays).score(moved) == pytest.approx(found.score(moved))
    for name in ("spreads.center", "spreads.means", "spreads.variances"):
        assert read_spreads({**arrays, name: arrays[name][..., :1]}) is None


def test_the_familiarity_weighs_spreads_by_half_and_is_without_them_where_there_are_none(learned):
    logits, features, _ = learned
    known = NetworkOutputs(logits, features, features[:, ::2])
    found = fit_familiarity(known, np.repeat(np.arange(3), 200), known, 1.0)
    scores, own = found.spreads.score(known.spreads), vim(logits, features, found.subspace)
    widths = [np.median(one) - np.quantile(one, 0.03) for one in (own, scores)]
    both = found.measure(known)
    assert both == pytest.approx(own + scores * widths[0] / widths[1] / 2)
    at_threshold = np.quantile(both, 0.03) - np.quantile(own, 0.03)  # of leaves that are cut from a photo of several
    assert found.measure(known, cut=True) == pytest.approx(own + at_threshold)
    labels = np.repeat(np.arange(3), 200)
    bare, vim_alone = (fit_familiarity(NetworkOutputs(logits, *more), labels, known, 2.0) for more in ((), (features,)))
    assert (bare.score, bare.temperature, vim_alone.score) == ("energy", 2.0, "vim")
    assert vim_alone.subspace.scale == fit_subspace(logits / 2, features).scale
    same = replace(known, spreads=known.spreads[:1].repeat(600, axis=0))
    assert fit_familiarity(known, labels, same, 1.0).spreads.factors[1] == 0, "spreads that tell no photo from another"
    nodes = find_nodes(build("mobilenetv2", 3, 64))
    needed = [Familiarity(score).needed(nodes) for score in ("energy", "vim", "vim_spreads")]
    assert needed == [(), nodes.names[:1], nodes.names]


def test_bottlenecks_are_the_last_maps_of_each_width_but_for_the_last():
    nodes = find_nodes(build("mobilenetv2", 3, 64)).bottlenecks
    assert nodes == ("features.6", "features.10", "features.13", "features.16")
    nodes = find_nodes(build("squeezenet1_1_bn", 3, 64))
    assert nodes.bottlenecks == ("features.7.squeeze_activation", "features.10.squeeze_activation")
    maps = {name: np.random.default_rng(0).random((2, 3, 3, 4)) for name in ("logits", *nodes.names)}
    seen = nodes.summarize(maps)
    assert seen.features.shape == (2, 4)
    assert seen.spreads == pytest.approx(np.concatenate([m.std(axis=(1, 2)) for m in list(maps.values())[2:]], axis=1))
