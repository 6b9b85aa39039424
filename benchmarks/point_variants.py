# ruff: noqa
"""1x1 convolutions by the copy engine beside the present kernels, every shape of SqueezeNet 1.0 and 1.1.

``python benchmarks/point_variants.py`` assembles all variants into ``$XDG_CACHE_HOME/leafclinic/kernels/points``
(no GPU; delete the folder when a kernel's source changes). On the GPU, with PyTorch,
``python benchmarks/point_timing.py gradients 9``, the same with ``forward 9`` and ``filters 5`` check them against float64 and time them, so many seconds each, into ``$OUT/NAME.json``;
``point_table.py $OUT gradients`` (or forward, filters) writes that into the table of tiles, which alone decides whether the
plan takes a kernel; ``point_steps.py 24 t10 p10 t11`` times whole steps with and without each of them.
"""
import hashlib, json, os, sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from core.gpu import convolution, hopper_points, tiles
from core.gpu.compiler import _to_line, cache_folder, compile_kernel
from core.gpu.kernels import point_boxes, point_filters, point_gradients
from core.gpu.kernels.tile import Tile
from core.gpu.launch import Tensor
from core.ops.window import Window

HERE = cache_folder() / "points"
POINT = Window((1, 1), (1, 1), (0, 0, 0, 0))
ROOM, HALF = 227 << 10, 113 << 10
SQUEEZE = [(54, 96, 16), (54, 128, 16), (54, 128, 32), (27, 256, 32), (27, 256, 48), (27, 384, 48), (27, 384, 64), (13, 512, 64),
           (55, 64, 16), (55, 128, 16), (27, 128, 32), (13, 256, 48), (13, 384, 48), (13, 384, 64), (13, 512, 16)]
EXPAND = [(54, 16, 64), (54, 32, 128), (27, 32, 128), (27, 48, 192), (27, 64, 256), (13, 64, 256), (55, 16, 64), (13, 48, 192)]
ODD_FORWARD = [(1, 16, 64), (63, 24, 40), (65, 72, 24), (4097, 16, 64), (4097, 512, 64), (777, 64, 256), (777, 96, 16)]
ODD_GRADIENT = [(1, 96, 16), (65, 136, 40), (4097, 96, 16), (4097, 384, 48), (777, 128, 32), (5000, 512, 64)]

def stages(make, room, most=24):
    """As many as fit."""
    st = most
    while st > 1 and make(st) > room: st -= 1
    return st

def forward_tiles(k, n):
    found = []
    def add(groups, columns, blocks):
        tile = Tile(64 * groups, columns, 2 * k, 2, 4 * groups, 1, blocks)
        room = {1: ROOM, 2: HALF, 3: 75 << 10, 4: 56 << 10}[blocks]
        fit = lambda st: point_boxes.shared_bytes(replace(tile, stages=st))
        if fit(2) > room or -(-(128 * groups + 32) * blocks * (columns // 2 + 40) // 65536) > 1: return
        found.append(replace(tile, stages=stages(fit, room)))
    if n <= 64:
        add(2, n, 2); add(4, n, 1); add(2, n, 3)
    elif n == 128:
        add(2, 128, 2); add(4, 128, 1); add(4, 64, 2)
    elif n == 192:
        add(3, 192, 1); add(2, 192, 1); add(2, 64, 3); add(4, 64, 2)
    elif n == 256:
        add(2, 256, 1); add(2, 128, 2); add(4, 64, 2); add(3, 128, 1)
    else:
        add(2, n, 1)
    return found

def gradient_tiles(c, s):
    found = []
    def add(groups, blocks):
        tile = Tile(64, 64 * groups, 2 * s, 2, 4 * groups, 1, blocks)
        room = {1: ROOM, 2: HALF, 3: 75 << 10, 4: 56 << 10}[blocks]
        fit = lambda st: point_gradients.shared_bytes(replace(tile, stages=st))
        st = stages(fit, room, 12)
        if st >= 2: found.append(replace(tile, stages=st))
    if c <= 64: add(1, 4); add(1, 3)
    elif c <= 128: add(2, 2); add(1, 4); add(2, 3)
    elif c == 256: add(2, 2); add(4, 1); add(1, 4)
    elif c == 384: add(2, 2); add(3, 1); add(1, 4)
    else: add(2, 2); add(4, 1); add(1, 4)
    return found

def filter_tiles(e, s):
    found = []
    def add(groups, blocks, most=12):
        tile = Tile(64, 64 * groups, 2 * s, 2, 4 * groups, 1, blocks)
        room = {1: ROOM, 2: HALF, 3: 75 << 10, 4: 56 << 10}[blocks]
        st = stages(lambda st: point_filters.shared_bytes(replace(tile, stages=st)), room, most)
        if st >= 2: found.append(replace(tile, stages=st))
    groups = e // 64
    if groups == 1: add(1, 4); add(1, 3)
    elif groups == 2: add(2, 2); add(1, 4)
    else: add(groups, 1); add(1, 4)
    return found
def our_filters(pixels, e, s, pitch, tile, at=(0,) * 3):
    launch, splits = hopper_points.filter_gradients("l", 1, tensor(at[0], pixels, s, s), tensor(at[1], pixels, e, pitch), s * e + e, tile, 132)
    return [replace(launch, values=(*launch.values[:2], at[2], *launch.values[3:]))], splits
def their_filters(pixels, e, s, pitch, at=(0,) * 3):
    x, dy = tensor(at[0], pixels, s, s), tensor(at[1], pixels, e, pitch)
    b, splits = convolution.backward_weight("l", "bf16", 1, x, dy, POINT, convolution.taps_of(x, POINT, False), at[2], 132)
    return [b], splits

def tensor(address, pixels, channels, pitch): return Tensor(address, 1, pixels, channels, pitch, 2)

def our_forward(pixels, k, n, xp, op, tile, at=(0, 0, 0, 0)):
    return [hopper_points.point("l", 1, tensor(at[0], pixels, k, xp), tensor(at[1], pixels, n, op), at[2], at[3], "relu", tile, 132)]
def their_forward(pixels, k, n, xp, op, at=(0, 0, 0, 0)):
    x, out = tensor(at[0], pixels, k, xp), tensor(at[1], pixels, n, op)
    return [convolution.forward("l", "bf16", 1, x, out, POINT, convolution.taps_of(x, POINT, False), at[2], at[3], "relu")]
def our_gradients(pixels, c, s, tile, masking, at=(0,) * 5):
    x, dy, dx = tensor(at[0], pixels, c, c), tensor(at[1], pixels, s, s), tensor(at[2], pixels, c, c)
    launch, splits = hopper_points.gradients("l", 1, x, dy, dx, at[3], masking, s * c + s, tile, 132)
    return [replace(launch, values=(*launch.values[:2], at[4], *launch.values[3:]))], splits
def their_gradients(pixels, c, s, masking, at=(0,) * 5):
    x, dy, dx = tensor(at[0], pixels, c, c), tensor(at[1], pixels, s, s), tensor(at[2], pixels, c, c)
    a = convolution.backward_input("l", "bf16", 1, dy, dx, POINT, at[3], x if masking else None, masking)
    b, splits = convolution.backward_weight("l", "bf16", 1, x, dy, POINT, convolution.taps_of(x, POINT, False), at[4], 132)
    return [a, b], splits

def masking_of(side, c, s):
    """Behind a max pool x is its own mask's business."""
    return "" if (side, c, s) in ((54, 96, 16), (27, 256, 32), (13, 512, 64), (55, 64, 16), (27, 128, 32), (13, 256, 48)) else "relu"

def name_of(recipe): return hashlib.sha256(_to_line(recipe).encode()).hexdigest()[:16]

def all_launches():
    for rank in range(4):  # the first variant of each shape first
        for side, c, s in SQUEEZE:
            for tile in gradient_tiles(c, s)[rank:rank + 1]:
                for m in sorted({"relu", masking_of(side, c, s)}): yield from our_gradients(side * side, c, s, tile, m)[0]
        for side, s, e in EXPAND:
            for tile in filter_tiles(e, s)[rank:rank + 1]: yield from our_filters(side * side, e, s, 2 * e, tile)[0]
        for side, k, n in EXPAND + SQUEEZE:
            for tile in forward_tiles(k, n)[rank:rank + 1]: yield from our_forward(side * side, k, n, k, n, tile)
        if rank: continue
        for pixels, k, n in ODD_FORWARD: yield from our_forward(pixels, k, n, k, n, forward_tiles(k, n)[0])
        for pixels, c, s in ODD_GRADIENT:
            for m in ("relu", ""): yield from our_gradients(pixels, c, s, gradient_tiles(c, s)[0], m)[0]
    for batch in (256, 32, 1):
        for side, k, n in SQUEEZE + EXPAND: yield from their_forward(batch * side * side, k, n, k, n)
        for side, c, s in SQUEEZE: yield from their_gradients(batch * side * side, c, s, "relu")[0]
        for side, s, e in EXPAND: yield from their_filters(batch * side * side, e, s, 2 * e)[0]
    yield from plan_launches()

def plan_launches():
    """What whole steps run today."""
    from core.gpu.backward_steps import backward_launches
    from core.gpu.forward_steps import forward_launches
    from core.gpu.frame import Frame
    from core.gpu.plain_launches import head_launch
    from core.models.table import build as model
    from core.ops.builder import with_loss
    from core.program import fold_batch_norm, lay_out_parameters, lower
    for name, batch, training in (("squeezenet1_0", 256, True), ("squeezenet1_0", 256, False), ("squeezenet1_1", 256, True), ("squeezenet1_0", 32, True)):
        base = model(name, 10, 224, dropout=0.0)
        graph = with_loss(base, 0.0, ()) if training else fold_batch_norm(base)
        frame = Frame(lower(graph, training), lay_out_parameters(graph), batch, "mixed", 132, frozenset(), hopper=True)
        forward_launches(frame)
        if training: backward_launches(frame, False)
        else: frame.add(head_launch(frame, None, ""))
        yield from frame.launches

def build_one(recipe):
    path = HERE / "cubin" / f"{name_of(recipe)}.cubin"
    if path.exists(): return None
    from cuda.bindings import nvjitlink
    from core.gpu.resources import assemble, assembler_log
    ptx, entry = compile_kernel(recipe, (9, 0))
    r = assemble(ptx, (9, 0))
    serial = "Potential" in assembler_log(ptx, "sm_90a")
    own = "a" if ".target sm_90a" in ptx else ""
    handle = nvjitlink.create(1, [f"-arch=sm_90{own}"])
    source = ptx.encode()
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "k")
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle)); nvjitlink.get_linked_cubin(handle, cubin)
    nvjitlink.destroy(handle)
    path.write_bytes(entry.encode() + b"\n" + bytes(cubin))
    bad = "LOCAL " * (".local" in ptx) + "SERIAL " * serial + "SPILL " * (r.spills + r.stack > 0)
    return f"{recipe.factory} {recipe.arguments} {r.registers} {bad}"

def build():
    (HERE / "cubin").mkdir(parents=True, exist_ok=True)
    recipes = list(dict.fromkeys(l.recipe for l in all_launches()))
    wanted = {name_of(r) + ".cubin" for r in recipes}
    for old in (HERE / "cubin").iterdir():
        if old.name not in wanted: old.unlink()
    print(len(recipes), "kernels", flush=True)
    from concurrent.futures import ProcessPoolExecutor
    import multiprocessing
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        for line in pool.map(build_one, recipes):
            if line: print(line, flush=True)


if __name__ == "__main__":
    build()
