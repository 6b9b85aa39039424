# ruff: noqa
"""Whole steps with and without the kernels of the copy engine: point_steps.py SECONDS [case...]."""
import os, sys, time
from pathlib import Path
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
import numpy as np
from core.device import Optimizer, PhotoBatch
from core.gpu import tiles
from core.gpu.plan import CudaPlan
from core.models.table import build
from core.ops.builder import with_loss
from core.ops.photo import identity_rows
from core.program import fold_batch_norm, fold_weights

from core.gpu import device as devices
from point_variants import HERE, name_of
compile_recipes, assemble_one = devices.compile_recipes, devices.Device._assemble
def ready(recipes, capability):
    """Kernels built before, and the others."""
    found = {r: (str(HERE / "cubin" / f"{name_of(r)}.cubin"), "cubin") for r in recipes}
    missing = [r for r, (path, _) in found.items() if not Path(path).exists()]
    print(len(recipes), "kernels,", len(missing), "to compile", [r.factory for r in missing][:30], flush=True)
    return {**found, **compile_recipes(missing, capability)}
def assemble_ready(self, item):
    recipe, (path, kind) = item
    if kind != "cubin": return assemble_one(self, item)
    self.activate()
    entry, code = Path(path).read_bytes().split(b"\n", 1)
    module = devices.check(devices.driver.cuModuleLoadData(code))
    return module, devices.Function(devices.check(devices.driver.cuModuleGetFunction(module, entry)), recipe.kinds)
devices.compile_recipes, devices.Device._assemble = ready, assemble_ready

def he(graph):
    draw, weights = np.random.default_rng(0), {}
    for name, p in graph.parameters().items():
        ones = p.role == "running_var" or (p.role == "weight" and len(p.shape) == 1)
        values = draw.normal(0, (2 / p.fan_in) ** 0.5, p.shape) if len(p.shape) > 1 else np.full(p.shape, float(ones))
        weights[name] = values.astype(np.float32)
    return weights

def plan_of(model, batch, training):
    base = build(model, 10, 224, dropout=0.0); weights = he(base)
    if training:
        plan = CudaPlan(with_loss(base, 0.0, ()), batch=batch, training=True, precision="mixed", optimizer=Optimizer("adam")); plan.load(weights)
    else:
        plan = CudaPlan(fold_batch_norm(base), batch=batch, training=False, precision="mixed"); plan.load(fold_weights(base, weights))
    draw = np.random.default_rng(1)
    plan.keep_photos(draw.integers(0, 256, (batch, 224, 224, 3), dtype=np.uint8))
    labels = draw.integers(0, 10, batch).astype(np.int32)
    data = PhotoBatch(None, identity_rows(batch, (224, 224), (224, 224)), labels, np.arange(batch))
    if training: plan.train_step(data, 1e-5)
    return plan, data

TAKES = {
    "none": lambda d, c, k: False, "gradients": lambda d, c, k: d == "gradients", "forward": lambda d, c, k: d == "forward",
    "squeeze": lambda d, c, k: d == "forward" and c < k, "filters": lambda d, c, k: d == "filters", "all": lambda d, c, k: True,
}
forward, gradients, filters = tiles.boxes_forward, tiles.boxes_gradients, tiles.boxes_filters
CASES = {"t10": ("squeezenet1_0", 256, True), "p10": ("squeezenet1_0", 256, False), "t11": ("squeezenet1_1", 256, True), "t10s": ("squeezenet1_0", 32, True), "p1": ("squeezenet1_0", 1, False)}
until = time.time() + float(sys.argv[1]); began = time.time()
for case in sys.argv[2:] or CASES:
    model, batch, training = CASES[case]
    held = {}
    for name, take in TAKES.items():
        if not training and name in ("gradients", "filters"): continue
        if time.time() > until: break
        tiles.boxes_forward = lambda r, c, k, t=take: forward(r, c, k) if t("forward", c, k) else None
        tiles.boxes_filters = lambda r, c, k, t=take: filters(r, c, k) if t("filters", c, k) else None
        tiles.boxes_gradients = lambda r, c, k, t=take: gradients(r, c, k) if t("gradients", c, k) else None
        held[name] = plan_of(model, batch, training)
        if name in ("none", "all") and training: print(name, "loss", held[name][0].gradient(held[name][1]).loss if hasattr(held[name][0], "gradient") else "", flush=True)
    for plan, data in held.values(): plan.replay_milliseconds(data, 3)
    times = {n: [] for n in held}
    for _ in range(5):
        for name, (plan, data) in held.items(): times[name].append(plan.replay_milliseconds(data, 5 if batch > 1 else 20))
    print(case, {n: round(sorted(t)[2], 4) for n, t in times.items()}, f"{time.time() - began:.1f} s", flush=True)
    if case == "t10" and "all" in held:
        for t in sorted(held["all"][0].time_kernels(held["all"][1]), key=lambda t: -t.milliseconds)[:45]: print("  ", t.layer, t.direction, t.kernel, round(t.milliseconds * 1e3, 1), round(t.floor * 1e3, 1) if hasattr(t, "floor") else "")
    for plan, _ in held.values(): plan.close()
