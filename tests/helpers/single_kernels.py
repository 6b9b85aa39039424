"""Holds kernel entries of the GPU against the float64 reference: on a GPU, or as plain Python without one."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from core.gpu.candidates import CANDIDATES
from core.gpu.kernel_entries import UPDATES, WRITES, tolerance_of
from core.gpu.prepared import Copy, hosted
from core.gpu.select import FAST
from core.gpu.single import directions_of, new_frame, prepare, reason_against, runner, write
from core.laboratory.kernel_comparison import solve_update
from core.ops.registry import KernelCase
from tests.helpers.compare import poisoned, relative_error
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.shapes import MODE, case, cases, label, solve

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
    "dense": (case("dense", (12,), units=36, batch=4), case("dense", (40,), units=8, bias=False, batch=36)),
    "max_pool": (case("max_pool", (5, 4, 4), kernel=(3, 3), stride=(2, 2), ceil_mode=True),),
}
"""Cases small enough for plain Python that reach what the small ones of the shared list do not."""

PRODUCTS = ((5, 7, 3), (33, 9, 35), (1, 1, 1), (34, 16, 4), (66, 36, 68), (33, 27, 40), (66, 40, 72))
"""(M, K, N) of matrix products: odd, one element, for 16-byte loads (whole slices; a shorter last one), an unfolded
first layer, for bf16."""


def is_teaching(candidate):
    return candidate.level not in FAST


def entries(op):
    """(candidate, direction) of every candidate of an op that runs by itself."""
    return [(one, d) for one in CANDIDATES.all if one.pattern == (op,) for d in directions_of(one)]


def problems(op, limit):
    """The shared cases of up to `limit` elements, and small ones."""
    if op == "matmul":
        return [KernelCase(op, {}, ((m, k), (k, n)), (m, n), 1) for m, k, n in PRODUCTS if m * n <= limit]
    plain = {label(c): c for c in (replace(c, activation="") for c in cases(op))
             if c.batch * max(int(np.prod(s)) for s in (c.output, *c.inputs)) <= limit}  # fmt: skip
    return [*plain.values(), *SMALL.get(op, ())]


def written_alone():
    """The launches of every fast candidate by itself, whichever the plans of networks choose."""
    for one in (one for one in CANDIDATES.all if len(one.pattern) == 1 and not is_teaching(one)):
        for direction, problem in product(directions_of(one), problems(one.pattern[0], 1 << 20)):
            if not reason_against(one, direction, problem):
                frame = new_frame(one, direction, problem)
                write(one, direction, frame)
                yield from frame.launches


def given_and_wanted(problem):
    if problem.op != "matmul":
        solved = solve(problem)
        return dict(solved.given), solved.wanted
    draw = np.random.default_rng(5)
    x, x2 = (draw.normal(size=shape).astype(np.float32) for shape in problem.inputs)
    return {"x": x, "x2": x2}, {"out": x.astype(np.float64) @ x2}


def check(op, limit, run, chosen=lambda candidate: True):
    """(candidate, direction, case, relative error, tolerance) of every entry and every case that it does not refuse."""
    for problem in problems(op, limit):
        yield from check_case(problem, run, chosen)


def check_case(problem, run, chosen):
    given, wanted = given_and_wanted(problem)
    for candidate, direction in entries(problem.op):
        results = [name for name in wanted if name in WRITES[direction]]
        if not chosen(candidate) or not results or reason_against(candidate, direction, problem):
            continue
        arrays = {name: value.copy() for name, value in given.items()} | {"mode": MODE}
        if direction != "forward":
            arrays["out"] = wanted["out"].astype(np.float32)
        arrays |= {n: poisoned(wanted[n].shape) for n in results if n not in arrays or n == "out"}
        run(candidate, direction, problem, arrays)
        errors = [relative_error(arrays[name], wanted[name]) for name in results]
        text = str(problem.inputs) if problem.op == "matmul" else label(problem)
        yield candidate, direction, text, max(errors), tolerance_of(candidate, direction)


def run_on_gpu(candidate, direction, problem, arrays):
    hosted(runner(candidate, direction), *WRITES[direction])(problem, arrays)


def run_as_python(candidate, direction, problem, arrays):
    """The launches one after another, each thread a greenlet."""
    memory, mode = Memory(1 << 22), arrays["mode"]
    numbers = {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}
    at = {name: memory.place(value) for name, value in numbers.items()}
    frame = new_frame(candidate, direction, problem, None, mode)
    work = prepare(frame, candidate, direction, at, partial(allocate, memory), mode)
    run_work(memory, work)
    for name, value in numbers.items():
        value[...] = memory.get(at[name], value.size, value.dtype).reshape(value.shape)


def allocate(memory, sizes, contents):
    made = {name: memory.reserve(size) for name, size in sizes.items()}
    for name, values in contents.items():
        memory.put(made[name], values)
    return made


def run_work(memory, work):
    """Copies and launches of `core.gpu.prepared.Work` in their order."""
    machine = Machine(memory)
    for item in work:
        if isinstance(item, Copy):
            memory.bytes[item.target : item.target + item.bytes] = memory.bytes[item.source : item.source + item.bytes]
        else:
            machine.run(item)


def check_updates(optimizer):
    """(entry, relative error) of the optimizer's update on a GPU."""
    problem = KernelCase(optimizer.name, {}, ((97,),), (97,), 1)
    given, wanted = solve_update(problem, optimizer)
    for one in (r for r in UPDATES if r.op == optimizer.name):
        arrays = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()}
        one.run(problem, arrays)
        yield one, max(relative_error(arrays[k], v) for k, v in wanted.items())
