"""Means of weights and which of them is taken, on models and scores made for the test."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.soup import choose, made_of, mean_weights, options_of, read_alike
from benchmarks.validation import Score
from core.diagnosis.model_file import ModelFile, write_model
from core.errors import ModelFileError
from core.models import build, initial_weights
from core.program import fold_weights

CLASSES = ("bean/rust", "bean/healthy", "background/none")


def model(seed=0, name="squeezenet1_1_bn", size=64, classes=CLASSES):
    graph = build(name, len(classes), size)
    return ModelFile(graph, initial_weights(graph, seed), classes, size)


def write(path, made):
    write_model(path, made)
    return path


def test_the_mean_is_of_weights_with_batch_norm_folded(tmp_path):
    made = [model(0), model(1)]
    read = read_alike([write(tmp_path / f"{i}.safetensors", m) for i, m in enumerate(made)])
    mean = mean_weights(read)
    assert set(mean) == set(read[0].graph.parameters())
    assert not any("running" in name for name in mean)
    for name, array in mean.items():
        want = sum(fold_weights(m.graph, m.weights)[name] for m in made) / 2
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (model(name="squeezenet1_1"), "another network or photo size"),
        (model(size=96), "another network or photo size"),
        (model(classes=(*CLASSES[:2], "chilli/healthy")), "other classes"),
    ],
)
def test_models_that_have_no_mean_are_refused_with_a_sentence(tmp_path, other, sentence):
    paths = [write(tmp_path / "a.safetensors", model()), write(tmp_path / "b.safetensors", other)]
    with pytest.raises(ModelFileError, match=sentence):
        read_alike(paths)


def test_networks_that_learned_with_another_dropout_have_a_mean(tmp_path):
    paths = [tmp_path / f"{rate}.safetensors" for rate in (0.2, 0.4)]
    for path, rate in zip(paths, (0.2, 0.4), strict=True):
        graph = build("squeezenet1_1", 3, 64, rate)
        write(path, ModelFile(graph, initial_weights(graph, 0), CLASSES, 64))
    assert len(read_alike(paths)) == 2


def judged_by(table):
    """A judge that knows scores by members, and those of all others as 0.5."""
    return lambda members: Score(table.get(members, 0.5), table.get(members, 0.5), 0.9, 0.9)


def test_the_greedy_soup_takes_what_does_not_hurt():
    table = {(0,): 0.8, (1,): 0.9, (2,): 0.85, (1, 2): 0.9, (0, 1, 2): 0.89}
    tried, taken = choose(3, judged_by(table))
    assert [t.members for t in tried] == [(0,), (1,), (2,), (0, 1, 2), (1, 2)]
    assert taken.score.mean == pytest.approx(0.9)
    assert taken.members == (1,)  # no better: then the fewer


def test_a_better_soup_is_taken():
    _, taken = choose(3, judged_by({(0,): 0.8, (1,): 0.9, (2,): 0.85, (1, 2): 0.92}))
    assert taken.members == (1, 2)


@pytest.mark.parametrize(("uniform", "taken"), [(0.9196, (0, 1, 2)), (0.9194, (1, 2)), (0.95, (0, 1, 2))])
def test_the_uniform_soup_is_taken_where_it_is_near_the_best(uniform, taken):
    table = {(0,): 0.8, (1,): 0.9, (2,): 0.85, (1, 2): 0.92, (0, 1, 2): uniform}
    assert choose(3, judged_by(table))[1].members == taken


def test_the_card_says_what_each_network_was_given(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    values = {"preset": "demo", "seed": 3, "epochs": 12, "minutes": 0.7123, "learning_rate": 1e-4}
    from core.training.presets import PRESETS

    (run / "config.json").write_text(json.dumps({**PRESETS["demo"].values, **values}), encoding="utf-8")
    assert options_of(run) == "--preset demo --seed 3 --epochs 12 --minutes 0.71 --learning-rate 0.0001"
    start = write(tmp_path / "leaves.safetensors", replace(model(), half=False))
    assert made_of([start, run], (0, 1)) == (
        f"Mean of the weights of 2 networks: leaves, which they started from; {options_of(run)}."
    )
