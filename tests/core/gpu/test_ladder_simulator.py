"""Every teaching kernel as plain Python in Numba's CUDA simulator, in a process of its own, against the reference."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.gpu.table import TEACHING

ROOT = Path(__file__).parents[3]
GROUPS = (
    {"conv2d": 60},
    {"dense": 100, "max_pool": 100, "avg_pool": 100, "global_avg_pool": 200, "depthwise_conv2d": 100,
     "batch_norm": 200},
    {"relu": 50, "relu6": 50, "sigmoid": 50, "softmax": 100, "softmax_cross_entropy": 120, "add": 50, "concat": 50,
     "dropout": 120, "sgd": 0, "adam": 0, "adamw": 0},
    {"matmul": 0},
)
"""Ops, and the elements of their largest case: a simulated thread costs 0.35 ms."""


def simulate(group):
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    ops = [f"{op}:{limit}" for op, limit in group.items()]
    command = [sys.executable, "-W", "error", "-m", "tests.helpers.ladder", *ops]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: next(iter(group)))
def test_every_rung_agrees_with_the_reference(group):
    lines = simulate(group)
    wrong = [line for line in lines if not (math.isfinite(line["error"]) and line["error"] <= line["tolerance"])]
    assert not wrong, wrong
    tested = {tuple(line["key"]) for line in lines}
    untested = [row.key for row in TEACHING if row.op in group and row.key not in tested]
    assert not untested, untested


def test_every_op_of_the_ladder_is_simulated():
    assert {row.op for row in TEACHING} == {op for group in GROUPS for op in group}
