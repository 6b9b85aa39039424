"""The engine without its optional packages of candidates: a copy of the tree, from which one was taken away."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOWER = """
from itertools import product
from core.gpu import kernel_entries
from core.gpu.explain import frame_for
from core.gpu.lowering import write_launches
from core.models.architectures import build
from core.ops.builder import with_loss
from core.program import fold_batch_norm, lower

assert kernel_entries.TABLE
for name, training in product(("squeezenet1_0", "mobilenetv2"), (False, True)):
    network = build(name, 5, 224)
    graph = with_loss(network, 0.0, ()) if training else fold_batch_norm(network)
    frame = frame_for(lower(graph, training), 1, "mixed", (9, 0))
    write_launches(frame)
    layers = {launch.layer for launch in frame.launches}
    print(name, len(layers) > 14, *{launch.recipe.module.split(".")[0] for launch in frame.launches})
"""


def test_lowering_works_without_each_package_and_uses_it_where_it_is(tmp_path):
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    script = tmp_path / "lower.py"
    script.write_text(LOWER, encoding="utf-8")

    def lower() -> list[list[str]]:
        done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return [line.split() for line in done.stdout.splitlines()]

    whole = lower()
    for package in ("latency", "sm90"):
        assert any(package in plan for plan in whole)
        (there := tmp_path / "core" / "gpu" / package).rename(away := tmp_path / "away")
        plans = lower()
        away.rename(there)
        assert [plan[:2] for plan in plans] == [plan[:2] for plan in whole]
        assert {plan[1] for plan in plans} == {"True"}
        assert not any(package in plan for plan in plans)
