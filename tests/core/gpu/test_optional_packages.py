"""The engine without its optional packages of candidates: a copy of the tree, from which one was deleted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOWER = """
from core.gpu.explain import frame_for
from core.gpu.lowering import walk
from core.models.architectures import build
from core.program import fold_batch_norm, lower

for name in ("squeezenet1_0", "mobilenetv2"):
    frame = frame_for(lower(fold_batch_norm(build(name, 5, 224)), False), 1, "mixed", (9, 0))
    walk(frame, False, False)
    print(name, frame.launches[-1].layer, *sorted({launch.recipe.module.split(".")[0] for launch in frame.launches}))
"""


@pytest.mark.parametrize("package", ["latency"])
def test_lowering_works_without_the_package_and_uses_it_where_it_is(package, tmp_path):
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    script = tmp_path / "lower.py"
    script.write_text(LOWER, encoding="utf-8")

    def lower() -> list[str]:
        done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    assert all(package in line.split() for line in lower())
    shutil.rmtree(tmp_path / "core" / "gpu" / package)
    lines = lower()
    assert [line.split()[:2] for line in lines] == [["squeezenet1_0", "logits"], ["mobilenetv2", "logits"]]
    assert not any(package in line.split() for line in lines)
