# ruff: noqa
"""Checks and times on the GPU what `point_variants` assembled: point_timing.py forward | gradients | filters SECONDS."""
import json, os, sys, time
from dataclasses import replace
from pathlib import Path
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]
import numpy as np
from core.gpu import hopper_points, tiles
from core.gpu.kernels import point_boxes, point_gradients
from point_variants import *
from point_variants import HERE, name_of

class Gpu:
    def __init__(self):
        import torch
        from core.gpu.cuda import driver
        from core.gpu.device import Function, check
        self.torch, self.driver, self.Function, self.check = torch, driver, Function, check
        torch.zeros(1, device="cuda")
        self.functions = {}
    def function(self, recipe):
        key = name_of(recipe)
        if key not in self.functions:
            entry, cubin = (HERE / "cubin" / f"{key}.cubin").read_bytes().split(b"\n", 1)
            module = self.check(self.driver.cuModuleLoadData(cubin))
            self.functions[key] = self.Function(self.check(self.driver.cuModuleGetFunction(module, entry)), recipe.kinds)
        return self.functions[key]
    def run(self, launches):
        stream = self.driver.CUstream(self.torch.cuda.current_stream().cuda_stream)
        for l in launches: self.function(l.recipe).launch(l.grid, l.block, l.shared, stream, l.values)
    def has(self, launches): return all((HERE / "cubin" / f"{name_of(l.recipe)}.cubin").exists() for l in launches)
    def time(self, sets, count):
        """Median microseconds of one of `sets` of launches, in a graph."""
        torch = self.torch
        if not self.has(sets[0]): return float("inf")
        for launches in sets: self.run(launches)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(count): self.run(sets[i % len(sets)])
        took = []
        for _ in range(4):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); graph.replay(); b.record(); torch.cuda.synchronize()
            took.append(a.elapsed_time(b) * 1e3 / count)
        return sorted(took[1:])[1]
    def packed(self, places, weights):
        """bf16 filters packed by a table of places."""
        torch = self.torch
        index = torch.as_tensor(np.ascontiguousarray(places).reshape(-1).astype(np.int64), device="cuda")
        values = weights.reshape(-1)[index.clamp(min=0)].clone(); values[index < 0] = 0
        return values.to(torch.bfloat16).contiguous()
    def random(self, pixels, channels, relu=False):
        x = self.torch.randn(pixels, channels, device="cuda", dtype=self.torch.bfloat16)
        return self.torch.relu(x) if relu else x

def from_table(direction, rows, columns, depth):
    """Where the present kernel was not built: what the table says it took."""
    near = next(tiles._nearest("bf16", direction, rows, columns, depth))
    return near.microseconds / near.rows * rows

BAD = set()
"""Tiles whose results were wrong: they are not timed."""

def poison(torch, *shape): return torch.full(shape, -1, dtype=torch.int16, device="cuda").view(torch.bfloat16)
def distance(got, wanted):
    got = got.double()
    return float((got - wanted).norm() / wanted.norm()) if bool(got.isfinite().all()) else float("nan")

def where_wrong(got, wanted, say):
    bad = ((got.double() - wanted).abs() > 0.05 * wanted.abs().max()) | ~got.double().isfinite()
    r, c = bad.any(1).nonzero().flatten()[:12].tolist(), bad.any(0).nonzero().flatten()[:40].tolist()
    say(f"    wrong {float(bad.double().mean()):.3f} of elements; rows {r} columns {c}")
    say(f"    got {got[:2, :8].tolist()} wanted {wanted[:2, :8].tolist()}")

def check_forward(gpu, pixels, k, n, tile, say):
    torch = gpu.torch
    if not gpu.has(our_forward(pixels, k, n, k, n, tile)): return True
    x, w, b = gpu.random(pixels, k + 24)[:, 16:16 + k], torch.randn(n, k, device="cuda") / k ** 0.5, torch.randn(n, device="cuda")
    w = w.to(torch.bfloat16).float(); wide = poison(torch, pixels + 3, n + 32); bits = wide.view(torch.int16)
    weight = gpu.packed(hopper_points.pack_points(np.arange(n * k).reshape(n, 1, 1, k), point_boxes.parts_of(tile)), w)
    launches = our_forward(pixels, k, n, k + 24, n + 32, tile, (x.data_ptr(), wide.data_ptr() + 16, weight.data_ptr(), b.data_ptr()))
    gpu.run(launches); torch.cuda.synchronize()
    wanted = torch.relu(x.double() @ w.double().T + b.double())
    got = wide[:pixels, 8:8 + n]; error = distance(got, wanted)
    clean = bool((bits[:, :8] == -1).all()) and bool((bits[:, 8 + n:] == -1).all()) and bool((bits[pixels:] == -1).all())
    first = bits.clone(); bits[:pixels, 8:8 + n] = -1; gpu.run(launches); torch.cuda.synchronize()
    same = bool((first == bits).all())
    ok = error < 4e-3 and clean and same
    say(f"{'ok ' if ok else 'BAD'} forward {pixels} x {k} -> {n} {tile.numbers} error {error:.2e} clean {clean} same {same}")
    if not error < 4e-3: where_wrong(got, wanted, say)
    if not ok: BAD.add(tile.numbers)
    return ok

def check_gradients(gpu, pixels, c, s, tile, masking, say):
    torch = gpu.torch
    if not gpu.has(our_gradients(pixels, c, s, tile, masking)[0]): return True
    x, dy = gpu.random(pixels, c, True), gpu.random(pixels, s)
    w = (torch.randn(s, c, device="cuda") / s ** 0.5).to(torch.bfloat16).float()
    dx, count = poison(torch, pixels + 3, c), s * c + s
    places = hopper_points.pack_point_gradients(np.arange(s * c).reshape(s, 1, 1, c), point_gradients.parts_of(tile), hopper_points.gradient_columns(c, tile))
    weight, partial = gpu.packed(places, w), torch.full((132 * 8 * count,), float("nan"), device="cuda")
    launches, splits = our_gradients(pixels, c, s, tile, masking, tuple(t.data_ptr() for t in (x, dy, dx, weight, partial)))
    gpu.run(launches); torch.cuda.synchronize()
    wanted = dy.double() @ w.double()
    if masking: wanted = wanted * (x > 0)
    parts = partial[:splits * count].reshape(splits, count)
    total = parts.double().sum(0)
    errors = [distance(dx[:pixels], wanted), distance(total[:s * c].reshape(s, c), dy.double().T @ x.double()), distance(total[s * c:], dy.double().sum(0))]
    clean = bool((dx.view(torch.int16)[pixels:] == -1).all()) and bool(partial[splits * count:].isnan().all())
    first, before = dx.view(torch.int16).clone(), parts.clone()
    dx.view(torch.int16).fill_(-1); partial.fill_(float("nan")); gpu.run(launches); torch.cuda.synchronize()
    same = bool((first == dx.view(torch.int16)).all()) and bool((before == parts).all())
    ok = errors[0] < 4e-3 and errors[1] < 1e-4 and errors[2] < 1e-4 and clean and same
    say(f"{'ok ' if ok else 'BAD'} gradients {pixels} x {c} <- {s} {tile.numbers} {masking or '-'} errors {' '.join(f'{e:.1e}' for e in errors)} clean {clean} same {same}")
    if not errors[0] < 4e-3: where_wrong(dx[:pixels], wanted, say)
    if not errors[1] < 1e-4: where_wrong(total[:s * c].reshape(s, c), dy.double().T @ x.double(), say)
    if not errors[2] < 1e-4: say(f"    bias {total[s * c:][:8].tolist()} wanted {dy.double().sum(0)[:8].tolist()}")
    if not ok: BAD.add(tile.numbers)
    return ok

def check_filters(gpu, pixels, e, s, tile, say):
    torch = gpu.torch
    x, wide = gpu.random(pixels, s, True), gpu.random(pixels, 2 * e)
    dy, count = wide[:, e:], s * e + e
    partial = torch.full((132 * 8 * count,), float("nan"), device="cuda")
    if not gpu.has(our_filters(pixels, e, s, 2 * e, tile)[0]): return True
    launches, splits = our_filters(pixels, e, s, 2 * e, tile, (x.data_ptr(), dy.data_ptr(), partial.data_ptr()))
    gpu.run(launches); torch.cuda.synchronize()
    parts = partial[:splits * count].reshape(splits, count).clone(); total = parts.double().sum(0)
    partial.fill_(float("nan")); gpu.run(launches); torch.cuda.synchronize()
    same = bool((parts == partial[:splits * count].reshape(splits, count)).all()) and bool(partial[splits * count:].isnan().all())
    errors = [distance(total[:s * e].reshape(e, s), dy.double().T @ x.double()), distance(total[s * e:], dy.double().sum(0))]
    ok = max(errors) < 1e-4 and same
    say(f"{'ok ' if ok else 'BAD'} filters {pixels} x {s} -> {e} {tile.numbers} errors {errors[0]:.1e} {errors[1]:.1e} same {same}")
    if not errors[0] < 1e-4: where_wrong(total[:s * e].reshape(e, s), dy.double().T @ x.double(), say)
    if not errors[1] < 1e-4: say(f"    bias {total[s * e:][:8].tolist()} wanted {dy.double().sum(0)[:8].tolist()}")
    if not ok: BAD.add(tile.numbers)
    return ok

def bench_filters(gpu, say, rows, until):
    torch = gpu.torch
    for batch in (256, 32, 1):
        for side, s, e in EXPAND:
            if time.time() > until: return say("time is up")
            pixels, sets = batch * side * side, 3 if batch == 256 else 1
            xs = [gpu.random(pixels, s, True) for _ in range(sets)]; dys = [gpu.random(pixels, 2 * e) for _ in range(sets)]
            partial = torch.empty(600 * (s * e + e), device="cuda")
            at = [(x.data_ptr(), y.data_ptr(), partial.data_ptr()) for x, y in zip(xs, dys)]
            count, found = 12 if batch == 256 else 40, []
            if all(t.numbers in BAD for t in filter_tiles(e, s)): continue
            theirs = gpu.time([their_filters(pixels, e, s, 2 * e, a)[0] for a in at], count)
            theirs = theirs if theirs < 1e9 else from_table("backward_weight", pixels, e, s)
            for tile in [t for t in filter_tiles(e, s) if t.numbers not in BAD]:
                found.append((gpu.time([our_filters(pixels, e, s, 2 * e, tile, a)[0] for a in at], count), tile.numbers))
            best, floor = min(found), 2 * pixels * (e + s) / 4.3e6
            rows.append({"arithmetic": "bf16", "direction": "boxes_filters", "rows": pixels, "columns": e, "depth": s, "splits": 1, "tile": best[1], "microseconds": round(best[0], 1), "theirs": round(theirs, 1), "floor": round(floor, 1)})
            say(f"filters b{batch} {side} {s}->{e}: theirs {theirs:.1f} ours {' '.join(f'{t:.1f}{list(num[i] for i in (1, 3, 4, 6))}' for t, num in found)} floor {floor:.1f}")

def bench_forward(gpu, say, rows, until):
    torch = gpu.torch
    for batch in (256, 32, 1):
        for side, k, n in SQUEEZE + EXPAND:
            if time.time() > until: return say("time is up")
            pixels, slice_ = batch * side * side, n if n < k else 2 * n
            sets, w, b = 3 if batch == 256 else 1, torch.randn(65536 * 2, device="cuda").to(torch.bfloat16), torch.randn(n, device="cuda")
            xs = [gpu.random(pixels, k, True) for _ in range(sets)]
            outs = [torch.empty(pixels, slice_, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
            at = [(x.data_ptr(), o.data_ptr(), w.data_ptr(), b.data_ptr()) for x, o in zip(xs, outs)]
            count = 12 if batch == 256 else 40
            if all(t.numbers in BAD for t in forward_tiles(k, n)): continue
            theirs = gpu.time([their_forward(pixels, k, n, k, slice_, a) for a in at], count)
            found = []
            for tile in [t for t in forward_tiles(k, n) if t.numbers not in BAD]:
                found.append((gpu.time([our_forward(pixels, k, n, k, slice_, tile, a) for a in at], count), tile.numbers))
            best, theirs = min(found), theirs if theirs < 1e9 else from_table("forward", pixels, n, k)
            floor = 2 * pixels * (k + n) / 4.3e6
            rows.append({"arithmetic": "bf16", "direction": "boxes_forward", "rows": pixels, "columns": n, "depth": k, "splits": 1, "tile": best[1], "microseconds": round(best[0], 1), "theirs": round(theirs, 1), "floor": round(floor, 1)})
            say(f"forward b{batch} {side} {k}->{n}: theirs {theirs:.1f} ours {' '.join(f'{t:.1f}{list(num[i] for i in (1, 3, 4, 6))}' for t, num in found)} floor {floor:.1f}")

def bench_gradients(gpu, say, rows, until):
    torch = gpu.torch
    for batch in (256, 32, 1):
        for side, c, s in SQUEEZE:
            if time.time() > until: return say("time is up")
            pixels = batch * side * side
            sets, w = 3 if batch == 256 else 1, torch.randn(65536, device="cuda").to(torch.bfloat16)
            masking = masking_of(side, c, s)
            xs = [gpu.random(pixels, c, True) for _ in range(sets)]; dys = [gpu.random(pixels, s) for _ in range(sets)]
            dxs = [torch.empty(pixels, c, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
            partial = torch.empty(600 * (s * c + s), device="cuda")
            at = [(x.data_ptr(), y.data_ptr(), d.data_ptr(), w.data_ptr(), partial.data_ptr()) for x, y, d in zip(xs, dys, dxs)]
            count = 12 if batch == 256 else 40
            if all(t.numbers in BAD for t in gradient_tiles(c, s)): continue
            theirs, found = gpu.time([their_gradients(pixels, c, s, masking, a)[0] for a in at], count), []
            for tile in [t for t in gradient_tiles(c, s) if t.numbers not in BAD]:
                found.append((gpu.time([our_gradients(pixels, c, s, tile, masking, a)[0] for a in at], count), tile.numbers))
            theirs = theirs if theirs < 1e9 else from_table("backward_input", pixels, c, s) + from_table("backward_weight", pixels, s, c)
            best, floor = min(found), 2 * pixels * (2 * c + s) / 4.3e6
            rows.append({"arithmetic": "bf16", "direction": "boxes_gradients", "rows": pixels, "columns": c, "depth": s, "splits": 1, "tile": best[1], "microseconds": round(best[0], 1), "theirs": round(theirs, 1), "floor": round(floor, 1)})
            say(f"gradients b{batch} {side} {c}<-{s} {masking or '-'}: theirs {theirs:.1f} ours {' '.join(f'{t:.1f}{list(num[i] for i in (1, 3, 4, 6))}' for t, num in found)} floor {floor:.1f}")

def main(kind, seconds):
    import signal
    began = time.time(); until = began + float(seconds)
    out = Path(os.environ.get("OUT", "/tmp")); log = open(out / f"{kind}.log", "w")
    def say(text): print(text, flush=True); log.write(text + "\n"); log.flush()
    gpu = Gpu(); say(f"torch and module {time.time() - began:.1f} s")
    import fcntl
    lock = open("/tmp/b1.lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX)
    until = time.time() + float(seconds)
    signal.alarm(int(float(seconds)) + 4)  # a kernel that hangs ends with its process
    good, rows = [], []
    if kind == "forward":
        for pixels, k, n in ODD_FORWARD: good.append(check_forward(gpu, pixels, k, n, forward_tiles(k, n)[0], say))
        seen = set()
        for _, k, n in SQUEEZE + EXPAND:
            for tile in forward_tiles(k, n):
                if tile.numbers not in seen: seen.add(tile.numbers); good.append(check_forward(gpu, 30001, k, n, tile, say if not all(good) or len(seen) < 3 else (lambda t: t.startswith(("BAD", "    ")) and say(t))))
    elif kind == "filters":
        for _, s, e in EXPAND[:1] + EXPAND[-2:]:
            for pixels in (1, 65, 4097): good.append(check_filters(gpu, pixels, e, s, filter_tiles(e, s)[0], say))
        for _, s, e in EXPAND:
            for tile in filter_tiles(e, s): good.append(check_filters(gpu, 30001, e, s, tile, say))
    else:
        for pixels, c, s in ODD_GRADIENT:
            for masking in ("relu", "relu6" if pixels == 1 else ""):
                if masking != "relu6": good.append(check_gradients(gpu, pixels, c, s, gradient_tiles(c, s)[0], masking, say))
        seen = set()
        for _, c, s in SQUEEZE:
            for tile in gradient_tiles(c, s):
                if (c, tile.numbers) not in seen: seen.add((c, tile.numbers)); good.append(check_gradients(gpu, 30001, c, s, tile, "relu", say if not all(good) or len(seen) < 3 else (lambda t: t.startswith(("BAD", "    ")) and say(t))))
    say(f"{kind}: {sum(good)} of {len(good)} right, {time.time() - began:.1f} s")
    if len(good) - sum(good) < len(good) // 2 or "always" in sys.argv:
        try: {"forward": bench_forward, "gradients": bench_gradients, "filters": bench_filters}[kind](gpu, say, rows, until)
        finally: (out / f"{kind}.json").write_text(json.dumps(rows))
    say(f"{kind} done {time.time() - began:.1f} s")

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
