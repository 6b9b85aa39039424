"""The commands that a report prints lead to the run that it tells of."""

import shlex
from dataclasses import replace

import pytest

from core.command_line import merge_settings, read_arguments, read_settings
from core.config import RunConfig
from core.train import make_parser
from core.training.conditions import Conditions
from core.training.presets import PRESETS
from core.training.report import describe_reproducibility, evaluation_command, training_command

CPU = Conditions("1.2", "0.60", "cpu", "avx2", 3)
GPU = Conditions("1.2", "0.60", "cuda", "NVIDIA H200", 0)
ODD = RunConfig(
    data="/my photos/it's", where=("crop=rice", "crop=bean"), start="/w/leaves.safetensors", leaf_tests=False, seed=7,
    learning_rate=2e-4, cache="/tmp/c", out="/runs/a b", epochs=3, model="cnn", nesterov=False,
)  # fmt: skip


def read_back(command):
    words = shlex.split(command)
    assert words[:2] == ["leafclinic", "train"]
    found = []
    arguments, unknown = read_arguments(make_parser(), words[2:])
    return merge_settings(read_settings(arguments, found), {}, [*found, *unknown])


@pytest.mark.parametrize("preset", ["", *PRESETS])
def test_the_training_command_is_read_as_the_run_that_was(preset):
    config = replace(ODD, preset=preset)
    wanted = replace(config, cache="", out="/runs/a b-again", split="/runs/a b/split.csv", device="cpu", threads=3)
    assert read_back(training_command(config, CPU)) == wanted
    recipe = PRESETS[preset].values if preset else {}
    plain = RunConfig(data="/p", preset=preset, out="/r", **recipe)
    assert len(shlex.split(training_command(plain, GPU))) == (12 if preset else 10), "nothing but what differs"


def test_the_model_is_judged_on_the_split_that_the_figure_is_of():
    assert evaluation_command(ODD, "validation") == "leafclinic evaluate '/runs/a b' --split val"
    assert evaluation_command(ODD, "test").endswith("--split test")


def test_what_the_bits_depend_on_is_said():
    assert describe_reproducibility(ODD, CPU).startswith(
        "Computed with seed 7 on LeafClinic 1.2, Numba 0.60, device cpu, processor avx2, threads 3. Under "
        "the same conditions"
    )
    assert "device cuda, processor NVIDIA H200. Under the same" in describe_reproducibility(ODD, GPU)
    assert "minutes" in describe_reproducibility(replace(ODD, minutes=2), CPU)
