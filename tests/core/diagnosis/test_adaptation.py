"""A model is adapted to a place: better there, the same elsewhere; what few photos cannot show is not claimed."""

from dataclasses import replace

import numpy as np
import pytest

from core.config import RunConfig
from core.data.augment import draw_augmentation
from core.diagnosis import adaptation, place_branch
from core.diagnosis.adaptation import Adaptation, PlacePhotos, _with_temperatures, adapt_model, read_head, sign_test
from core.diagnosis.completion import with_thresholds
from core.diagnosis.familiarity import read_familiarity
from core.diagnosis.features import NetworkOutputs, feature_node, head_node, read_statistics
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head, make_folds
from core.diagnosis.metrics import softmax
from core.diagnosis.model_file import ModelFile, in_bits, read_model, write_model
from core.diagnosis.replay import fit_replay, read_replay
from core.errors import DataError, InputError, ModelFileError
from core.models import build, initial_weights
from core.models.options import Options, start
from core.training.transfer import first_network, read_start
from tests.helpers.models import predict

CLASSES = ("apple/healthy", "apple/scab", "bean/healthy", "bean/rust")
FEATURES, PHOTOS = 48, 60
SHIFT = np.eye(FEATURES)[40] * 15 - np.eye(FEATURES)[0] * 6 + np.eye(FEATURES)[1] * 6
"""How the features of apple leaves move in the place: from healthy to scab, and in a new direction."""
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 1, 0, 1, 0, 1, 1])
SHORT = place_branch.Schedule(2, 1, 1e-3)


def network(classes=4, stride=2):
    b = start("tiny", Options(classes, 32))
    x = b.add("conv2d", "conv", "photo", filters=FEATURES, kernel=(3, 3), stride=(stride, stride))
    x = b.add("max_pool", "pool", b.add("relu", "relu", x)) if stride > 2 else b.add("relu", "relu", x)
    x = b.add("global_avg_pool", "average", x)
    return b.graph(b.add("dense", "head", x, units=classes))


def draw(seed, place=False, per_class=PHOTOS):
    """Features around one mean for each class; in the place those of apple are shifted, and `scab` more."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(2 if place else 4), per_class)
    features = 5 * np.eye(FEATURES)[labels] + rng.normal(0, 1, (len(labels), FEATURES))
    if place:
        features += SHIFT * (0.4 + 0.6 * (labels == 1))[:, None]
    return Samples(features, labels, np.arange(len(labels)))


@pytest.fixture(scope="module")
def model():
    graph = network()
    train, validation = draw(0), draw(1)
    head = fit_head(LinearHead(np.zeros((4, FEATURES)), np.zeros(4)), train, train, 1e-3)
    weights = initial_weights(graph, 0) | {"head.weight": head.weight.astype(np.float32),
                                           "head.bias": head.bias.astype(np.float32)}  # fmt: skip
    bare = ModelFile(graph, weights, CLASSES, 32, name="tiny")
    parts = [NetworkOutputs(head.logits(part.features), part.features) for part in (train, validation)]
    return with_thresholds(bare, parts[0], train.labels, parts[1], validation.labels)


def accuracy(model, samples):
    return (read_head(model).logits(samples.features).argmax(axis=1) == samples.labels).mean()


def rejected(model, samples):
    """Share of the photos that are unfamiliar to the model."""
    seen = NetworkOutputs(read_head(model).logits(samples.features), samples.features)
    return (read_familiarity(model).measure(seen) < model.thresholds.least_familiar).mean()


@pytest.fixture(autouse=True, scope="module")
def _short_training():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST", "LAST"):
            patch.setattr(adaptation, name, SHORT)
        yield


def adapt(model, photos):
    """Adapt to these features; the pixels, which only a branch reads, show nothing."""
    pixels = np.random.default_rng(0).integers(0, 256, (len(photos.labels), 32, 32, 3), dtype=np.uint8)
    return adapt_model(model, PlacePhotos(pixels, photos, read_head(model).logits(photos.features)), threads=1)


@pytest.fixture(scope="module")
def adapted(model):
    """The model, stored in eight bits, adapted to 40 photos of each class of the place."""
    return adapt(in_bits(model, 8), draw(2, place=True, per_class=40))


def test_the_place_gets_better_and_the_rest_is_not_forgotten(model, adapted):
    result, held_out, others = adapted, draw(3, place=True), draw(4)
    assert accuracy(result.model, held_out) > accuracy(model, held_out) + 0.1
    assert accuracy(result.model, others) > accuracy(model, others) - 0.01
    assert result.after.sum() > result.before.sum()
    assert "better here" in result.describe()[3]
    before, after = (read_statistics(m.extra).residual(held_out.features).mean() for m in (model, result.model))
    assert after < 0.7 * before, "the place's photos are familiar"
    unknown = replace(held_out, features=held_out.features - 5 * np.eye(FEATURES)[held_out.labels])
    assert rejected(model, held_out) > 0.5
    assert rejected(result.model, held_out) == pytest.approx(0.1, abs=0.03), "by the directions of other photos"
    assert rejected(result.model, unknown) > 0.7, "unknown leaves (0.24 by the old threshold)"


def test_where_the_model_stays_as_it_is_its_photos_are_the_same_after_as_before(model, monkeypatch):
    photos = draw(2, place=True, per_class=10)
    monkeypatch.setattr(adaptation, "_fit_head", lambda head, *_: (head, read_head(model).logits(photos.features)))
    monkeypatch.setattr(adaptation, "_train_branch", lambda *_: (None, np.eye(4)[photos.labels]))
    monkeypatch.setattr(adaptation, "_choose", lambda _, labels: int(len(labels) < len(photos.labels)))
    result = adapt(model, photos)
    assert (result.model, result.after.sum()) == (None, result.before.sum())


@pytest.mark.thorough
def test_an_adapted_model_is_read_back_and_adapted_again(model, adapted, tmp_path):
    first = adapted.model
    assert first.steps, "the weights stay in eight bits"
    write_model(tmp_path / "first.safetensors", first)
    read = read_model(tmp_path / "first.safetensors")
    assert np.array_equal(read.weights["head.weight"], first.weights["head.weight"])
    assert read.extra["features.basis"].shape[1] > read.extra["replay.means"].shape[1]
    again = adapt(read, draw(5, place=True, per_class=10))
    assert accuracy(again.model or read, draw(3, place=True)) >= accuracy(model, draw(3, place=True))


def test_few_photos_that_are_all_correct_do_not_raise_probabilities():
    labels = np.repeat((0, 1), 10)
    model = ModelFile(network(), {}, CLASSES, 32, temperature=2.0)
    right, wrong = (_with_temperatures(model, 8.0 * np.eye(4)[found], labels).class_temperatures
                    for found in (labels, np.where(np.arange(20) % 4, labels, 1 - labels)))  # fmt: skip
    assert right in ((), (2.0,) * 4)
    assert wrong[:2] == pytest.approx((8 / np.log(9),) * 2, rel=1e-3), "3 of 4 correct, of two classes and two others"
    assert wrong[2:] == (2.0, 2.0)
    crops = replace(model, class_temperatures=(1.0,) * 4)
    found = 8.0 * np.eye(4)[np.where(np.arange(20) % 4, labels, 1 - labels)]
    assert _with_temperatures(crops, found, labels).class_temperatures[:2] == pytest.approx(wrong[:2], rel=1e-3)
    assert adaptation._log_mean(np.log([[1, 1], [3, 3]])) == pytest.approx(np.log(3) / 2)
    assert _with_temperatures(replace(model, classes=tuple("abcd")), 8.0 * np.eye(4)[1 - labels], labels) != model
    branched = replace(model, graph=replace(model.graph, output="place.sum"))
    assert _with_temperatures(branched, 8.0 * np.eye(4)[labels], labels).class_temperatures == (1.5, 1.5, 2.0, 2.0)


def test_the_sign_test_is_exact():
    assert sign_test(0, 0) == 1
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(1, 8) == pytest.approx(2 * 10 / 512)
    assert sign_test(2000, 0) == 0
    few = Adaptation(None, np.zeros(20, bool), np.ones(20, bool), np.arange(20))
    assert few.describe()[4] == "Sign test over groups: p < 0.001."


def test_photos_of_a_group_are_not_counted_as_independent():
    model, right = ModelFile(network(), {}, CLASSES, 32), np.arange(40) < np.array([[12], [36]])
    alone, grouped = (Adaptation(model, *right, np.arange(40) // size).describe() for size in (1, 10))
    assert alone[1:] == ("After: 36 of 40 held-out photos correct (90.0 %, 95 % interval 76.9 to 96.0 %).",
                         "24 became correct, 0 became wrong.", "The adapted model is better here.",
                         "Sign test over groups: p < 0.001.")  # fmt: skip
    assert grouped[1].endswith("(90.0 %, 95 % interval 51.1 to 98.7 %).")
    assert grouped[2].endswith("groups into account: 40 held-out photos (groups: 4) count as 4 before and 6 after.")
    assert grouped[4:] == ("So few photos cannot show that the adapted model is better here.",
                           "Sign test over groups: p = 0.250.")  # fmt: skip
    gained = np.arange(20) < 12
    worse = Adaptation(model, ~gained, gained, np.maximum(np.arange(20), 11)).describe()
    assert (worse[-2], worse[-1]) == (grouped[-2], "Sign test over groups: p = 0.039."), "1 group better, 8 worse"


def test_too_few_photos_and_models_without_replay_or_with_another_head_are_refused(model):
    photos = draw(2, place=True, per_class=10)
    with pytest.raises(DataError, match=r"apple/scab \(3\)"):
        adapt(model, photos.take(np.arange(13)))
    with pytest.raises(DataError, match=r"different leaves.*apple/healthy \(1\), apple/scab \(1\)"):
        adapt(model, replace(photos, groups=photos.labels))
    bare = {name: array for name, array in model.extra.items() if not name.startswith("replay.")}
    with pytest.raises(InputError, match="no feature replay"):
        adapt(replace(model, extra=bare), photos)
    place = PlacePhotos(np.zeros(0), photos, np.maximum(read_head(model).logits(photos.features), 0))
    with pytest.raises(InputError, match="not a linear layer"):
        adapt_model(model, place)
    nodes = tuple(replace(node, op="conv2d") if node.name == "head" else node for node in model.graph.nodes)
    with pytest.raises(InputError, match="not a linear layer"):
        adapt(replace(model, graph=replace(model.graph, nodes=nodes)), photos)
    with pytest.raises(InputError, match="adapted already"):
        adapt_model(replace(model, graph=replace(model.graph, output="place.sum")), place)


def test_replay_has_the_means_and_the_covariance_of_the_classes_and_is_refused_where_it_is_cut(model, tmp_path):
    train, space = draw(0), read_statistics(model.extra)
    known = read_replay(fit_replay(train.features, train.labels, 4, space), space, 4)
    features, labels = known.draw(4000, 0)
    inside = (train.features - space.center) @ space.basis
    for index in range(4):
        drawn = (features[labels == index] - space.center) @ space.basis
        assert drawn.mean(axis=0) == pytest.approx(inside[train.labels == index].mean(axis=0), abs=0.1)
    spread = inside - np.stack([inside[train.labels == i].mean(axis=0) for i in range(4)])[train.labels]
    assert np.cov(drawn.T) == pytest.approx(spread.T @ spread / len(spread), abs=0.15)
    assert not fit_replay(train.features[:10], train.labels[:10], 4, space), "classes without photos"
    path = tmp_path / "cut.safetensors"
    for cut in ({"replay.means": model.extra["replay.means"][:3]}, {"replay.factor": model.extra["replay.factor"][:1]}):
        write_model(path, replace(model, extra={**model.extra, **cut}))
        with pytest.raises(ModelFileError, match="replay"):
            read_model(path)


def test_folds_keep_groups_together_and_spread_classes():
    labels = np.repeat([0, 1], 12)
    groups = np.repeat(np.arange(12), 2)
    folds = make_folds(labels, groups, 3)
    assert all(len(set(folds[groups == group])) == 1 for group in range(12))
    assert [sorted(np.bincount(folds[labels == c])) for c in (0, 1)] == [[4, 4, 4]] * 2


def test_joined_logits_are_the_networks_and_the_gated_branchs(tmp_path):
    graph = network()
    model = ModelFile(graph, initial_weights(graph, 0), CLASSES, 32)
    place = place_branch.keep_classes(graph, initial_weights(graph, 1), np.array([0, 3]))
    branch = place_branch.Branch(place[1], place_branch.Gate(np.full(FEATURES, 0.02), 0.1), np.array([0, 3]), 0.3)
    joined = place_branch.join_branch(graph, model.weights, branch)
    write_model(tmp_path / "joined.safetensors", replace(model, graph=joined[0], weights=joined[1]))
    read = read_model(tmp_path / "joined.safetensors")
    assert (feature_node(read.graph), head_node(read.graph).name) == ("relu", "head"), "those of the network"
    before = predict(model, PIXELS, outputs=("relu",))
    own = predict(replace(model, graph=place[0], weights=place[1], classes=CLASSES[::3]), PIXELS)["logits"]
    every = predict(replace(model, weights=initial_weights(graph, 1)), PIXELS)["logits"]
    assert own == pytest.approx(every[:, ::3], abs=1e-5)
    opened = np.clip(before["relu"].mean(axis=(1, 2)) @ branch.gate.weight + 0.1, 0, 1)
    expected = before["logits"].copy()
    head, branches = (z - z.mean(axis=1, keepdims=True) for z in (expected[:, ::3], own))
    expected[:, ::3] += opened[:, None] * (branches - head + 0.3)
    assert 0 < opened.min() < opened.max() < 1
    assert predict(read, PIXELS)["logits"] == pytest.approx(expected, abs=1e-4)
    config, origin = read_start(RunConfig(start=str(tmp_path / "joined.safetensors")))
    learned = first_network(config, origin, CLASSES[::-1])
    turned = predict(replace(read, graph=learned.graph, weights=learned.weights), PIXELS)["logits"]
    assert turned == pytest.approx(expected[:, ::-1], abs=1e-4), "the rows of the branch are reordered too"


def test_only_the_layers_of_the_branch_are_trained(monkeypatch):
    graph = build("mobilenetv2", 4, 64)
    weights = initial_weights(graph, 0)
    trained = place_branch.train_branch(graph, weights, PIXELS, LABELS, SHORT, 0, "cpu", 1)
    moved = {name for name in weights if name.endswith("weight") and (trained[name] != weights[name]).any()}
    assert not any(name.startswith(tuple(f"features.{i}." for i in range(7))) for name in moved)
    assert "features.7.conv.1.0.weight" not in moved
    assert {"features.7.conv.2.weight", "features.18.0.weight", "classifier.1.weight"} <= moved
    teachers = [{**weights, "classifier.1.bias": np.eye(4, dtype=np.float32)[2] * bias} for bias in (0, 20)]
    taught = place_branch.train_branch(graph, weights, PIXELS, LABELS, SHORT, 0, "cpu", 1, teachers=teachers)
    assert np.sign(taught["classifier.1.bias"]).tolist() == [-1, -1, 1, -1], "towards what the teachers predict"
    batches, targets = [], []
    monkeypatch.setattr(place_branch, "draw_augmentation", lambda *a: batches.append(a[2]) or draw_augmentation(*a))
    monkeypatch.setattr(place_branch, "softmax", lambda mean: targets.append(mean) or softmax(mean))
    twice = replace(SHORT, steps=5, views=2)
    place_branch.train_branch(graph, weights, PIXELS, LABELS, twice, 0, "cpu", 1, teachers=teachers)
    assert (batches, len(targets)) == ([0, 1, 0, 1, 0], 2), "the teachers see each batch once"


def test_a_branch_copies_the_last_layers_and_its_photos_are_smaller_and_of_all_classes_in_turn():
    for other in (network(), network(stride=8)):
        assert place_branch.branch_nodes(other) == other.nodes[1:], "no map is small enough, or only the features"
    (first, *_) = place_branch.branch_nodes(build("mobilenetv2", 4, 64))
    assert first.inputs == ("features.7.conv.1.0",), "the first map of 4 x 4"
    assert [place_branch.training_side(used) for used in (320, 288, 100)] == [256, 224, 77], "multiples of 32"
    order = place_branch.draw_order(np.array([0] * 3 + [1] * 6), 12, 0)
    assert (sorted(order[1::2]), sorted(order[0:6:2])) == (list(range(3, 9)), [0, 1, 2]), "classes alternate"


def test_the_mean_of_the_branches_without_a_fold_is_trained_on_all_photos_if_it_is_written(model, monkeypatch):
    calls, compared = [], []
    place, known = draw(2, place=True, per_class=10), draw(6, per_class=10)

    def train(graph, weights, photos, labels, schedule, seed, device, threads, report, teachers):
        calls.append((len(photos), set(labels), graph.nodes[-1].shape, weights["conv.weight"], teachers))
        return {name: array + len(calls) for name, array in weights.items()}

    monkeypatch.setattr(adaptation, "train_branch", train)
    monkeypatch.setattr(adaptation, "fit_gate", lambda photos, _: place_branch.Gate(np.zeros(photos.shape[1]), 1e-6))
    for chosen, photos in ((1, place), (0, place), (1, known.take(np.flatnonzero(known.labels < 2)))):
        monkeypatch.setattr(adaptation, "_choose", lambda z, _, chosen=chosen: compared.append(z[1] - z[0]) or chosen)
        result = adapt(model, photos)
    assert result.model is None, "of a place that the model knows as many held-out photos are correct as before"
    assert result.after.sum() == result.before.sum()
    assert compared[0].any(axis=0).tolist() == [True] * 2 + [False] * 2, "logits of other classes stay"
    first, all_photos = (15, {0, 1}, (2,)), (20, {0, 1}, (2,))
    assert [call[:3] for call in calls] == [first] * 4 + [all_photos] + [first] * 8
    branches = np.stack([teacher["conv.weight"] for teacher in calls[4][4]])
    assert branches == pytest.approx(model.weights["conv.weight"] + np.arange(1, 5).reshape(4, 1, 1, 1, 1), abs=1e-5)
    assert calls[4][3] == pytest.approx(branches.mean(axis=0), abs=1e-5)


def test_the_gate_is_open_for_the_place_and_closed_elsewhere():
    rng = np.random.default_rng(1)
    place, others = rng.normal(0, 1, (2, 80, 20)) + 4 * np.eye(20)[:2, None]
    gate = place_branch.fit_gate(place[:40], others[:40])
    assert gate.open(place[40:]).mean() > 0.95
    assert gate.open(others[40:]).mean() < 0.05
