"""One candidate, or an optimizer step, on a caller's float32 arrays: how tests and laboratory run every kernel.

A program of one step is lowered like a whole network, with the given candidate. Arrays whose channels fill 16 bytes
are used in place; others, and all in bf16, are copied into the plan's layout and back, which is part of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from core.errors import KernelUnavailable
from core.gpu import control
from core.gpu.driver.device import Device, open_device, problem
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.hardware import typical
from core.gpu.launch import THREADS, Launch, blocks_of, make_launch
from core.gpu.lowering import write_step
from core.gpu.ops.elementwise import combine
from core.gpu.ops.norm import launches as norm
from core.gpu.ops.update.optimizer import NORM_BLOCKS, norm_launch, pack_launch, result_launch, update_launch
from core.gpu.prepared import Allocate, Arrays, Copy, Prepared, Run, Work, addresses_of
from core.gpu.select import BACKWARD, BF16, FAST, FORWARD, INPUT, WEIGHT, Candidate, Case
from core.gpu.sizes import block_sizes
from core.graph import Shape
from core.ops.contract import Array, Mode, volume
from core.ops.op_table import LOSSES
from core.ops.registry import KernelCase
from core.optim.optimizer import RULES, Optimizer, Scalars, scalars
from core.program import NODE, Value, lower_case

TRAINING: Final = Mode(training=True)

UPDATED: Final = ("running_mean", "running_var")
"""Parameters that a forward pass in training moves."""


def new_frame(
    candidate: Candidate, direction: str, case: KernelCase, device: Device | None = None, mode: Mode = TRAINING
) -> Frame:
    """The frame of a program of one step, in which only gradients of `direction` are wanted; without a GPU as if there
    were one that runs every kernel.

    A loss reads the program's output; any other step is not the last of a network.
    """
    if case.op == "dropout" and not mode.training:
        case = replace(case, attributes={**case.attributes, "rate": 0.0})
    program = lower_case(case, mode.training or case.op != "batch_norm")
    step = program.steps[0]
    program = replace(program, output=step.inputs[0] if case.op in LOSSES else Value("logits", (1,)))
    frozen = frozenset(f"{NODE}.{p.role}" for p in step.parameters if direction == INPUT)
    precision = "mixed" if candidate.arithmetics == BF16 else case.precision
    hardware = device.hardware if device else typical()
    frame = Frame(program, case.batch, precision, hardware, frozen, algorithm=candidate.level)
    frame.wanted = frozenset(value.buffer for value in step.inputs if direction == INPUT)
    if candidate.level not in FAST:
        frame.vector = 1  # teaching kernels read arrays without padding, so that none is copied
    return frame


def reason_against(candidate: Candidate, direction: str, case: KernelCase) -> str:
    """Why the candidate cannot run the case by itself, or ""."""
    if case.activation and direction != FORWARD:
        return "An activation's gradient is folded into the next kernel of a plan, not into this one."
    if case.op == "batch_norm" and case.attributes["frozen"] and direction == WEIGHT:
        return "A frozen batch norm learns nothing."
    try:
        frame = new_frame(candidate, direction, case, None if problem() else open_device())
        reason = candidate.reason_against(Case(frame, frame.program.steps, candidate.direction))
        if not reason:
            write(candidate, direction, frame)
    except KernelUnavailable as error:
        return str(error)
    return reason


def write(candidate: Candidate, direction: str, frame: Frame, configuration: Any = None) -> None:
    """Write the launches of one direction: those of the candidate, after what it reads of an earlier pass."""
    case = Case(frame, frame.program.steps, candidate.direction, Backward(frame, False))
    with frame.comparing():
        case = replace(case, configuration=configuration or candidate.configurations(case)[0])
    if direction != FORWARD and candidate.level in FAST:
        if case.step.op == "max_pool":  # the positions of the maxima
            write_step(frame, case.step)
        elif case.step.op == "batch_norm":
            norm.statistics(frame, case.step)
    candidate.write(case)


def prepare(
    frame: Frame, candidate: Candidate, direction: str, theirs: Mapping[str, int], allocate: Allocate,
    mode: Mode = TRAINING, element: int = 4, configuration: Any = None,
) -> Work:  # fmt: skip
    """The work on arrays of `element` bytes per number at the addresses `theirs` by role."""
    step = frame.program.steps[0]
    write(candidate, direction, frame, configuration)
    sizes = frame.array_sizes
    given = {n: theirs[_role(n)] for n in sizes if _role(n) in theirs}
    if step.op == "max_pool" and direction != FORWARD:
        given.pop("out", None)  # computed again, for the positions of the maxima
    direct = {n: at for n, at in given.items() if frame.element == element and _shape(frame, n)[-1] % frame.vector == 0}
    settings = control.make_block(
        frame.batch, frame.program.target_size, photos=frame.batch, step=mode.step, photo0=mode.photo0,
        seed=mode.seed & 0xFFFFFFFF,
    )  # fmt: skip
    sizes = block_sizes(frame, (), 0) | {n: size for n, size in sizes.items() if n not in direct}
    contents = {"pack_indices": frame.packs.whole(), "tables": frame.tables.whole(), "control": settings}
    at = direct | allocate(sizes, contents)
    into, out_of = _place_parameters(frame, direction, theirs, at)
    frame.restart(at, at)
    write(candidate, direction, frame, configuration)
    pack = [pack_launch(frame)] if frame.packs.size else []
    copied = [n for n in given if n not in direct]
    pad = [_layout(frame, True, n, given[n], at[n]) for n in copied if not _is_result(n, direction)]
    unpad = [_layout(frame, False, n, at[n], given[n]) for n in copied if _is_result(n, direction)]
    if step.op in LOSSES:
        _copy_labels(frame, direction, theirs, at, into, out_of)
    return (*into, *pack, *pad, *frame.launches, *unpad, *out_of)


def _place_parameters(
    frame: Frame, direction: str, theirs: Mapping[str, int], at: dict[str, int]
) -> tuple[list[Copy], list[Copy]]:
    """Set addresses of parameters and their gradients in `at`; returns copies before and after the launches.

    They are the caller's arrays, except statistics, which only a forward pass may move, and vectors whose length is no
    multiple of `frame.vector`: kernels read them up to the next multiple.
    """
    into, out_of, own = list[Copy](), list[Copy](), at["weights"]
    for parameter in frame.program.steps[0].parameters:
        name, role, size = f"{NODE}.{parameter.role}", parameter.role, 4 * parameter.size
        place = 4 * frame.layout.offsets[name][0]
        whole, moves = len(parameter.shape) > 1 or parameter.size % frame.vector == 0, role in UPDATED
        is_theirs = role in theirs and whole and (direction == FORWARD or not moves)
        at[name] = theirs[role] if is_theirs else own + place
        if role in theirs and not is_theirs:
            into.append(Copy(at[name], theirs[role], size))
            out_of += [Copy(theirs[role], at[name], size)] if moves and direction == FORWARD else []
        if direction == WEIGHT and f"d{role}" in theirs and whole:
            at[f"d:{name}"] = theirs[f"d{role}"]
        elif direction == WEIGHT and f"d{role}" in theirs:
            out_of.append(Copy(theirs[f"d{role}"], at["gradient"] + place, size))
        if role == "weight":  # packed copies are made of it by its place in the flat weights
            at["weights"] = at[name] - place
    return into, out_of


def _copy_labels(
    frame: Frame, direction: str, theirs: Mapping[str, int], at: Mapping[str, int], into: list[Copy],
    out_of: list[Copy],
) -> None:  # fmt: skip
    """Add the copies of a loss: labels and targets before the launches, losses after them."""
    offsets, size = control.find_offsets(frame.batch, frame.program.target_size), 4 * frame.batch
    into.append(Copy(at["control"] + offsets.labels, theirs["labels"], size))
    if frame.program.target_size:
        into.append(Copy(at["control"] + offsets.targets, theirs["targets"], offsets.end - offsets.targets))
    if direction == FORWARD:
        out_of.append(Copy(theirs["out"], at["results"], size))


def _shape(frame: Frame, name: str) -> Shape:
    return frame.program.buffers[name.removeprefix("d:")]


def _layout(frame: Frame, pads: bool, name: str, source: int, target: int) -> Launch:
    shape = _shape(frame, name)
    vectors = blocks_of(shape[-1], frame.vector)
    total = frame.batch * volume(shape[:-1]) * vectors
    values = {
        "source": source, "target": target, "total": total, "vectors": vectors, "by_vectors": vectors,
        "channels": shape[-1],
    }  # fmt: skip
    return make_launch(
        NODE, "forward", combine.make_layout, (frame.element, pads), combine.LAYOUT, values,
        (blocks_of(total, THREADS),),
    )  # fmt: skip


def _role(buffer: str) -> str:
    """The caller's name of an array of the arena."""
    return "dy" if buffer == "d:out" else buffer.replace(":", "")


def _is_result(buffer: str, direction: str) -> bool:
    return buffer == "out" if direction == FORWARD else direction == INPUT and buffer.startswith("d:x")


def runner(candidate: Candidate, direction: str, configuration: Any = None) -> Run:
    """A function that runs the candidate on device arrays, float32 or bits of bf16; it keeps its work among them."""

    def run(case: KernelCase, arrays: Arrays) -> None:
        mode = arrays.get("mode", Mode())
        key = f"single {candidate.name} {case} {direction} {configuration} {mode}"
        if key not in arrays:
            theirs = addresses_of(arrays)

            def make(device: Device, allocate: Allocate) -> Work:
                frame, element = new_frame(candidate, direction, case, device, mode), arrays["x"].dtype.itemsize
                return prepare(frame, candidate, direction, theirs, allocate, mode, element, configuration)

            arrays[key] = Prepared(make)
        arrays[key].run()

    return run


def directions_of(candidate: Candidate) -> tuple[str, ...]:
    """Directions in which a candidate runs by itself; none if it replaces several steps, or needs their gradients."""
    if len(candidate.pattern) > 1:
        return ()
    if candidate.direction == BACKWARD:
        return (INPUT, WEIGHT) if candidate.pattern == ("batch_norm",) else ()
    return (candidate.direction,)


UPDATE_WRITES: Final = ("weights", "momentum", "first", "second", "average")


def run_update(case: KernelCase, arrays: Arrays) -> None:
    """One optimizer step on device arrays "weights", "gradient", "decayed" (0 or 1) and the optimizer's state by name.

    "optimizer", "learning_rate" and "step" (from 1) are plain values in the same dict, which keeps the prepared work.
    """
    optimizer: Optimizer = arrays["optimizer"]
    now, key = scalars(optimizer, arrays["learning_rate"], arrays["step"]), f"update {optimizer}"
    if key not in arrays:
        theirs, decayed = addresses_of(arrays), arrays["decayed"].copy_to_host()
        arrays[key] = Prepared(
            lambda device, allocate: prepare_update(
                optimizer, now, theirs, decayed, device.hardware.processors, allocate
            )
        )
    arrays[key].blocks["control"].put(_settings_of(now))
    arrays[key].run()


def prepare_update(
    optimizer: Optimizer, now: Scalars, theirs: Mapping[str, int], decayed: Array, processors: int, allocate: Allocate
) -> Work:
    """The launches on float32 arrays, as long as `decayed`, at the addresses `theirs` by name."""
    roles, count = np.where(decayed > 0, 2, 1).astype(np.uint8), decayed.size
    sizes = {"roles": count, "control": _settings_of(now).nbytes, "sums": 4 * NORM_BLOCKS, "results": 16}
    sizes |= {"totals": 16, "report": 16}
    at = allocate(sizes, {"roles": roles, "control": _settings_of(now)})
    names = ("weights", "gradient", *(("average",) if optimizer.average > 0 else ()))
    own = dict(zip(("first", "second"), RULES[optimizer.name].moments, strict=False))
    at |= {name: theirs[name] for name in names} | {name: theirs[moment] for name, moment in own.items()}
    return norm_launch(at, count), result_launch(at, 0), update_launch(at, count, processors, optimizer)


def _settings_of(now: Scalars) -> Array:
    """The control block of a step without photos."""
    return control.make_block(0, rate=now.rate, root=now.root, shrink=now.shrink, average=now.average, factor=1)
