"""Holds every row of the teaching ladder against the float64 reference, on a GPU or in Numba's CUDA simulator.

    NUMBA_ENABLE_CUDASIM=1 python -m tests.helpers.ladder conv2d:150 dense:400

takes the shared cases of up to so many elements, and prints one line of JSON per row and case: its key, the
case, the relative error and the tolerance.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace

import numpy as np

from core.gpu.compilation.cuda import SIMULATED
from core.gpu.driver.hosted import hosted
from core.gpu.kernels.ladder import matmul_warp
from core.gpu.table import TEACHING
from core.ops.registry import Case
from core.optim.optimizer import Optimizer, initial_state, update
from tests.helpers.compare import poisoned, relative_error
from tests.helpers.shapes import MODE, case, cases, label, solve

OPTIMIZERS = {
    "sgd": Optimizer("sgd", nesterov=True, weight_decay=0.01, average=0.99),
    "adam": Optimizer("adam", weight_decay=0.01, clip_norm=0.5),
    "adamw": Optimizer("adamw", weight_decay=0.1, average=0.9),
}
SMALL = {
    "conv2d": (
        case("conv2d", (5, 4, 3), filters=5, kernel=(3, 2), stride=(2, 1), padding=(1, 0, 0, 1)),
        case("conv2d", (3, 2, 4), filters=6, kernel=(1, 1), groups=2, bias=False),
        case("conv2d", (2, 3, 2), filters=3, kernel=(1, 1), padding=(1, 1, 1, 1), batch=1),
    ),
    "depthwise_conv2d": (
        case("depthwise_conv2d", (4, 5, 4), kernel=(3, 3), padding=(1, 1, 1, 1)),
        case("depthwise_conv2d", (6, 4, 4), kernel=(3, 3), padding=(0, 2, 1, 0), bias=False, batch=1),
        case("depthwise_conv2d", (5, 4, 2), kernel=(2, 3), stride=(2, 1), padding=(0, 1, 1, 2), bias=False),
    ),
    "dense": (
        case("dense", (12,), units=36, batch=4),
        case("dense", (40,), units=8, bias=False, batch=36),
    ),
    "max_pool": (case("max_pool", (5, 4, 4), kernel=(3, 3), stride=(2, 2), ceil_mode=True),),
}
"""Cases small enough for the simulator that reach what its small cases of the shared list do not."""

PRODUCTS = ((5, 7, 3), (33, 9, 65), (1, 1, 1), (130, 16, 4), (66, 36, 68), (33, 27, 72))
"""(M, K, N) of matrix products: odd, one element, two for 16-byte loads (whole slices; a shorter last one),
an unfolded first layer."""
HALVES = () if SIMULATED else ((66, 40, 72),)
"""For bf16, which the simulator does not know."""
NARROW = ("naive", "shared")
"""Rungs whose tiles, of 16 x 16, meet all their edges in products of up to `SEEN` elements."""
SEEN = 3000


def check(op, limit, table=TEACHING):
    """(row, case text, relative error) of every row of an op and every case of up to `limit` elements."""
    if op in OPTIMIZERS:
        yield from _check_update(op, table)
    elif op == "matmul":
        yield from _check_product(table)
    else:
        plain = {label(c): c for c in (replace(c, activation="") for c in cases(op)) if _elements(c) <= limit}
        for problem in (*plain.values(), *SMALL.get(op, ())):
            yield from _check_case(op, problem, table)


def _elements(case):
    sides = [case.output, *case.inputs]
    return case.batch * max(int(np.prod(s)) for s in sides)


def _check_case(op, case, table):
    problem = solve(case)
    for row in (r for r in table if r.op == op):
        results = [name for name in problem.wanted if _belongs(name, row.direction)]
        if row.refuses(case) is not None or not results:  # a frozen batch norm has no gradient of its weights
            continue
        arrays = {name: value.copy() for name, value in problem.given.items()} | {"mode": MODE}
        for name in results:
            if name not in arrays:
                arrays[name] = poisoned(problem.wanted[name].shape)
        if row.direction != "forward" and op in ("relu", "relu6", "sigmoid", "softmax"):
            arrays["out"] = problem.wanted["out"].astype(np.float32)
        row.run(case, arrays)
        errors = [relative_error(arrays[name], problem.wanted[name]) for name in results]
        yield row, label(case), max(errors)


def _belongs(name, direction):
    if direction == "backward_input":
        return name in ("dx", "dx2", "dx3", "dx4")
    if direction == "backward_weight":
        return name in ("dweight", "dbias")
    return name == "out" or name.startswith("running")


def _check_update(op, table):
    optimizer = OPTIMIZERS[op]
    rng = np.random.default_rng(3)
    weights, gradient = (rng.normal(size=97).astype(np.float32) for _ in range(2))
    decayed = np.arange(97) < 50
    state = {k: np.abs(rng.normal(size=97)).astype(np.float32) for k in initial_state(optimizer, weights)}
    exact = {k: v.astype(np.float64) for k, v in state.items()}
    wanted, moved = update(optimizer, weights.astype(np.float64), gradient.astype(np.float64), exact, decayed, 0.01, 3)
    for row in (r for r in table if r.op == op):
        arrays = {"weights": weights.copy(), "gradient": gradient, "decayed": decayed.astype(np.float32)}
        arrays |= {k: v.copy() for k, v in state.items()}
        arrays |= {"optimizer": optimizer, "learning_rate": 0.01, "step": 3}
        row.run(Case(op, {}, ((97,),), (97,), 1), arrays)
        errors = [relative_error(arrays[k], v) for k, v in {"weights": wanted, **moved}.items()]
        yield row, "97 weights", max(errors)


def _check_product(table):
    rng = np.random.default_rng(5)
    for m, k, n in (*PRODUCTS, *HALVES):
        case = Case("matmul", {}, ((m, k), (k, n)), (m, n), 1)
        x, x2 = (rng.normal(size=shape).astype(np.float32) for shape in case.inputs)
        for row in (r for r in table if r.op == "matmul"):
            enough = SIMULATED and row.algorithm in NARROW and m * n > SEEN
            if row.refuses(case) is None and not enough:
                arrays = {"x": x, "x2": x2, "out": poisoned((m, n))}
                row.run(case, arrays)
                yield row, f"{m}x{k}x{n}", relative_error(arrays["out"], x.astype(np.float64) @ x2)
        if k % 4 == 0 and n % 4 == 0 and table is TEACHING:
            yield from _check_tiles(x, x2)


def _check_tiles(x, x2):
    """The other tiles of the rung that has several, not only the one that fits the size."""
    row = next(r for r in TEACHING if (r.op, r.algorithm) == ("matmul", "warp_tiled"))
    for tile in set(matmul_warp.TILES) - {matmul_warp.choose(len(x), x2.shape[1])}:
        arrays = {"x": x, "x2": x2, "out": poisoned((len(x), x2.shape[1]))}
        hosted(lambda case, given, tile=tile: matmul_warp.launch_tile(tile, given), "out")(None, arrays)
        yield row, f"{x.shape} {x2.shape} by {tile}", relative_error(arrays["out"], x.astype(np.float64) @ x2)


if __name__ == "__main__":
    if SIMULATED:
        importlib.import_module("tests.helpers.simulator").install()
    for name, most in (argument.split(":") for argument in sys.argv[1:]):
        for row, text, error in check(name, int(most)):
            line = {"key": row.key, "case": text, "error": error, "tolerance": row.tolerance.relative}
            sys.stdout.write(json.dumps(line) + "\n")
