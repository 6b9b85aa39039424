"""How to reproduce a run: its conditions, and the commands that evaluate and train it again."""

from __future__ import annotations

import os
import shlex
from typing import Any, Final

from core.config import RunConfig, settings
from core.errors import option_name
from core.training.conditions import Conditions
from core.training.presets import PRESETS
from core.training.run_folder import SPLIT

ELSEWHERE: Final = frozenset({"out", "cache", "split", "device", "threads", "preset", "minutes"})
"""Settings that the command sets separately or that do not affect the result; a time limit is not reproducible."""


def describe_reproducibility(config: RunConfig, conditions: Conditions) -> str:
    """State the version, seed and device, and when another computer gives the same bits."""
    made = f"Computed with seed {config.seed} on {conditions}."
    if config.minutes:
        return (f"{made} The training had a time limit of {config.minutes:g} minutes, so its number of steps depends "
                "on the speed of the computer. The first command reproduces the accuracy in any case.")  # fmt: skip
    return (
        f"{made} Under the same conditions the result is bit-identical; under others, rounding may change some "
        "predictions."
    )


def evaluation_command(config: RunConfig, evaluated: str) -> str:
    """The command that evaluates the model of the run on its photos and split."""
    split = {"validation": "val"}.get(evaluated, evaluated)
    return shlex.join(["leafclinic", "evaluate", os.path.abspath(config.out), "--split", split])


def training_command(config: RunConfig, conditions: Conditions) -> str:
    """The command that trains the same network on the same split, into a new folder."""
    words = ["leafclinic", "train"]
    recipe = PRESETS[config.preset].values if config.preset in PRESETS else {}
    if recipe:
        words += ["--preset", config.preset]
    for name, (entry, _) in settings().items():
        value = getattr(config, name)
        if name not in ELSEWHERE and value != recipe.get(name, entry.default):
            words += _option(name, value)
    words += ["--split", os.path.join(os.path.abspath(config.out), SPLIT), "--device", conditions.device]
    if conditions.threads:
        words += ["--threads", str(conditions.threads)]
    return shlex.join([*words, "--out", os.path.abspath(config.out) + "-again"])


def _option(name: str, value: Any) -> list[str]:
    flag = option_name(name)
    if isinstance(value, tuple):
        return [word for each in value for word in (flag, each)]
    return [flag, {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)]
