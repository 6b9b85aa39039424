"""Compiling ahead: what a prediction needs and no more, in two processes, and nothing is left for the plan."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from core.cpu import execution, instruction_set, precompilation, records, tile_code
from core.cpu.plan import CpuPlan
from core.device import PhotoBatch
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights

NETWORKS = (("squeezenet1_0", 1), ("squeezenet1_1", 2), ("mobilenetv2", 2), ("cnn", 1))
"""With the number of views: a photo and its mirror image are two."""


@pytest.mark.parametrize(("network", "views"), NETWORKS)
def test_a_prediction_compiles_only_what_was_compiled_ahead(network, views, monkeypatch):
    graph = fold_batch_norm(build(network, 3, 64))
    asked, compiled = [], SimpleNamespace(address=0)
    monkeypatch.setattr(records, "cached", lambda *a, **k: lambda kernel: asked.append(_name(kernel)) or compiled)
    ask = lambda *a, **k: lambda kernel: asked.append(_name(kernel)) or (lambda *a: None)  # noqa: E731
    monkeypatch.setattr(execution, "cached", ask)
    records.entry.cache_clear()
    execution.runner.cache_clear()
    try:
        plan = CpuPlan(graph, batch=views, training=False, threads=1)
        plan.load(fold_weights(build(network, 3, 64), initial_weights(build(network, 3, 64), 0)))
        augmentation = identity_augmentation(views, 64, 64)
        plan.predict(PhotoBatch(np.zeros((views, 64, 64, 3), np.uint8), augmentation, np.full(views, -1, np.int32)))
    finally:
        records.entry.cache_clear()
        execution.runner.cache_clear()
    assert {*asked, tile_code.NAME} == set(precompilation.prediction_kernels(graph))


def test_two_processes_leave_every_kernel_in_the_cache(tmp_path):
    code = ("from core.cpu import precompilation\n"
            "names = ('convolution.run_pack', 'tile_code.tiles', 'tiled.run_tiled', 'execution.run_sequence')\n"
            "seen = []\n"
            "print(precompilation.are_compiled(names))\n"
            "precompilation.usable_cores = lambda: 2\n"
            "precompilation.compile_kernels(names, lambda done, total: seen.append((done, total)))\n"
            "print(precompilation.are_compiled(names), seen[0], seen[-1], sorted(seen) == seen)\n")  # fmt: skip
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), instruction_set.VARIABLE: "portable"}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["False", "True (0, 4) (4, 4) True"]
    assert len(list(tmp_path.rglob("tiled.run_tiled-*.nbc"))) == len(list(tmp_path.rglob("tile_code.tiles-*.o"))) == 1


def test_a_second_process_that_ends_at_once_costs_nothing_but_time(monkeypatch):
    monkeypatch.setattr(precompilation, "command", lambda name: [sys.executable, "-c", ""])
    monkeypatch.setattr(precompilation, "are_compiled", lambda names: False)
    monkeypatch.setattr(precompilation, "usable_cores", lambda: 2)
    done = []
    monkeypatch.setattr(precompilation, "compile_kernel", done.append)
    precompilation.compile_kernels(["tiled.run_tiled", "convolution.run_pack"], lambda done, total: None)
    assert sorted(done) == ["convolution.run_pack", "tiled.run_tiled"]


def test_a_second_process_whose_parent_was_killed_ends_without_a_word():
    asked = subprocess.Popen(precompilation.command("compile"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=precompilation.child_environment())  # fmt: skip
    asked.stdout.close()
    assert (asked.communicate(b"tile_code.tiles\n")[1], asked.returncode) == (b"", 0)


def test_what_stops_the_report_stops_the_compiling(monkeypatch):
    monkeypatch.setattr(precompilation, "are_compiled", lambda names: True)
    monkeypatch.setattr(precompilation, "compile_kernel", lambda name: None)

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        precompilation.compile_kernels(precompilation.all_kernels(), stop)


def _name(kernel):
    return f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"
