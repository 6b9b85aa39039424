"""One step of the fast plan by itself, on a caller's float32 arrays: how the tests and the laboratory run its kernels.

The step is lowered as in a whole program. Arrays whose channels fill 16 bytes are used where they lie; others, and
all in bf16, are copied into the plan's layout and back, which counts in a timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from core.errors import KernelUnavailable
from core.gpu import control
from core.gpu.compilation import turing
from core.gpu.driver.device import Device
from core.gpu.driver.hosted import Arrays, Launcher
from core.gpu.frame import Frame, Places
from core.gpu.gradients import Backward
from core.gpu.launch import THREADS, Launch, blocks_of, make_launch
from core.gpu.lowering import write_step, write_step_gradients
from core.gpu.ops.elementwise import layout
from core.gpu.ops.loss.launches import head_launch
from core.gpu.ops.norm import launches as norm
from core.gpu.ops.update.launches import pack_launch
from core.gpu.rows.prepared import Allocate, Copy, Prepared, Work, address_of
from core.graph import Graph, Node, Shape
from core.ops.contract import Array, Mode, volume
from core.ops.op_table import OPS
from core.ops.registry import Case, Refusal
from core.program import ParameterLayout, Program, Step, Value, lay_out_parameters

Write: TypeAlias = Callable[[Frame, Step], None]
"""Writes the launches of one direction of a step."""

NODE: Final = "layer"
PROCESSORS: Final = 132
"""For a refusal, which needs no GPU."""
TRAINING: Final = Mode(training=True)
LOSS: Final = "softmax_cross_entropy"

ROLES: Final = {"x": "x", "x2": "x2", "out": "out", "d:out": "dy", "d:x": "dx", "d:x2": "dx2"}
"""The caller's name of each buffer."""

UPDATED: Final = ("running_mean", "running_var")
"""Parameters that a forward pass in training moves."""

WRITTEN: Final = {"forward": ("out",), "backward_input": ("d:x", "d:x2"), "backward_weight": ()}


def lower_case(case: Case, mode: Mode) -> tuple[Program, ParameterLayout]:
    """A program of one step that reads x (and x2) and writes out; a loss reads the program's own output."""
    op = OPS[case.op]
    if case.op == "dropout" and not mode.training:
        case = replace(case, attributes={**case.attributes, "rate": 0.0})
    parameters = op.parameters(case.attributes, case.inputs)
    inputs = tuple(Value(f"x{i + 1}" if i else "x", shape) for i, shape in enumerate(case.inputs))
    step = Step(
        NODE, case.op, case.attributes, inputs, Value("out", case.output), case.activation, parameters,
        op.cost(case.attributes, case.inputs, case.output),
    )  # fmt: skip
    graph = Graph("row", (Node(NODE, case.op, (), case.output, case.attributes, parameters),), NODE)
    buffers = {value.buffer: value.shape for value in (*inputs, step.output)}
    training = mode.training or case.op != "batch_norm"
    output = inputs[0] if case.op == LOSS else Value("logits", (1,))
    return Program(graph, training, (step,), buffers, {}, output), lay_out_parameters(graph)


def forward(frame: Frame, step: Step) -> None:
    """As the plan does it."""
    write_step(frame, step)


def backward_input(frame: Frame, step: Step) -> None:
    """Gradients of the inputs; a max pool runs forward first, which leaves the winners' places."""
    if step.op == "max_pool":
        write_step(frame, step)
    elif step.op == "batch_norm":
        _keep_statistics(frame, step)
    before = frame.wanted, frame.frozen
    frame.wanted = frozenset(value.buffer for value in step.inputs)
    frame.frozen = frozenset(f"{NODE}.{p.role}" for p in step.parameters)
    write_step_gradients(Backward(frame, False), step)
    frame.wanted, frame.frozen = before


def backward_weight(frame: Frame, step: Step) -> None:
    """Gradients of the parameters."""
    if step.op == "batch_norm":
        if step.attributes["frozen"]:
            raise KernelUnavailable("A frozen batch norm learns nothing.")
        _keep_statistics(frame, step)
    write_step_gradients(Backward(frame, False), step)


def _keep_statistics(frame: Frame, step: Step) -> None:
    """What a batch norm's gradient reads of its forward pass."""
    if not frame.program.training:
        raise KernelUnavailable("The GPU's batch norm has a gradient in training only.")
    norm.statistics(frame, step)


def loss(frame: Frame, step: Step) -> None:
    """Each photo's share of the loss."""
    frame.add(head_launch(frame, None, ""))


def loss_gradient(frame: Frame, step: Step) -> None:
    """The loss and its gradient; that of the loss itself is 1."""
    frame.add(head_launch(frame, frame.image(step.inputs[0], True), ""))


def new_frame(case: Case, processors: int, shared: int, mode: Mode = TRAINING, old: bool = False) -> Frame:
    """`old`: for a GPU before compute capability 8.0."""
    program, layout = lower_case(case, mode)
    return Frame(program, layout, case.batch, case.precision, processors, frozenset(), shared, turing=old)


def refuses(write: Write) -> Refusal:
    """Why the launches cannot be written, in their own words."""

    def refuse(case: Case) -> str | None:
        if case.activation and write is not forward:
            return "An activation's gradient is folded into the next kernel of a plan, not into this one."
        frame = new_frame(case, PROCESSORS, 227 << 10)
        try:
            write(frame, frame.program.steps[0])
        except KernelUnavailable as error:
            return str(error)
        return None

    return refuse


def prepare(
    frame: Frame, direction: str, write: Write, theirs: Mapping[str, int], allocate: Allocate, mode: Mode = TRAINING
) -> Work:
    """The work on arrays at the addresses `theirs` by role; `allocate` makes room for what the step has of its own."""
    step = frame.program.steps[0]
    write(frame, step)
    sizes = {name: life.bytes for name, life in frame.lifetimes().items()}
    given = {n: theirs[ROLES[n]] for n in sizes if ROLES.get(n) in theirs}
    if step.op == "max_pool" and direction != "forward":
        given.pop("out", None)  # made again for the places alone
    direct = {n: address for n, address in given.items() if _lies_as_here(frame, n)}
    settings = _settings(frame.batch, frame.program.taught, mode)
    packed, flat = max(frame.packed_count, 2), 4 * frame.layout.size + 64
    sizes = {n: size for n, size in sizes.items() if n not in direct} | {
        "weights": flat, "gradient": flat, "packed": packed * frame.element, "pack places": 4 * packed,
        "tables": frame.all_tables().nbytes, "results": 8 * frame.batch,
        "logits": 4 * frame.batch * frame.program.output.shape[-1], "control": len(settings),
    }  # fmt: skip
    contents = {"pack places": frame.all_packs(), "tables": frame.all_tables(), "control": settings}
    at = direct | allocate(sizes, contents)
    frame.restart(
        Places(
            at["weights"], at["gradient"], at["control"], at["packed"], at["pack places"], at["tables"], at["logits"],
            at["results"], 0, at,
        )
    )  # fmt: skip
    write(frame, step)
    pack = [pack_launch(frame)] if frame.packed_count else []
    copied, results = [n for n in given if n not in direct], WRITTEN[direction]
    spread = [_layout(frame, "make_spread", n, given[n], at[n]) for n in copied if n not in results]
    gather = [_layout(frame, "make_gather", n, at[n], given[n]) for n in copied if n in results]
    into, out_of = _loss_copies(frame, direction, theirs, at)
    more_into, more_out_of = _parameter_copies(frame, direction, theirs, at)
    return Work((*into, *more_into), (*pack, *spread, *frame.launches, *gather), (*out_of, *more_out_of))


def _settings(batch: int, taught: int, mode: Mode) -> Array:
    """The control block of a batch without labels."""
    raw = np.zeros(control.places(batch, taught)[-1], np.uint8)
    settings = control.Control(raw, batch, taught).settings
    settings["photos"], settings["step"], settings["photo0"] = batch, mode.step, mode.photo0
    settings["seed"] = mode.seed & 0xFFFFFFFF
    return raw


def _parameter_copies(
    frame: Frame, direction: str, theirs: Mapping[str, int], at: Mapping[str, int]
) -> tuple[list[Copy], list[Copy]]:
    """Parameters into the flat weights before; statistics and gradients out of the flat buffers after."""
    into, out_of = [], []
    for parameter in frame.program.steps[0].parameters:
        first, size = 4 * frame.layout.offsets[f"{NODE}.{parameter.role}"][0], 4 * parameter.size
        if parameter.role in theirs:
            into.append(Copy(at["weights"] + first, theirs[parameter.role], size))
        if direction == "forward" and parameter.role in UPDATED and parameter.role in theirs:
            out_of.append(Copy(theirs[parameter.role], at["weights"] + first, size))
        if direction == "backward_weight" and f"d{parameter.role}" in theirs:
            out_of.append(Copy(theirs[f"d{parameter.role}"], at["gradient"] + first, size))
    return into, out_of


def _loss_copies(
    frame: Frame, direction: str, theirs: Mapping[str, int], at: Mapping[str, int]
) -> tuple[list[Copy], list[Copy]]:
    """Labels and targets into the control block, and each photo's share of the loss out of the results."""
    if frame.program.steps[0].op != LOSS:
        return [], []
    labels, _, _, targets, end = control.places(frame.batch, frame.program.taught)
    size = 4 * frame.batch
    into = [Copy(at["control"] + labels, theirs["labels"], size)]
    if frame.program.taught:
        into.append(Copy(at["control"] + targets, theirs["targets"], end - targets))
    return into, [Copy(theirs["out"], at["results"], size)] if direction == "forward" else []


def _lies_as_here(frame: Frame, name: str) -> bool:
    """Whether the caller's array has the plan's own layout."""
    return frame.element == 4 and _shape(frame, name)[-1] % frame.vector == 0


def _shape(frame: Frame, name: str) -> Shape:
    return frame.program.buffers[name.removeprefix("d:")]


def _layout(frame: Frame, factory: str, name: str, source: int, target: int) -> Launch:
    shape = _shape(frame, name)
    lanes = blocks_of(shape[-1], frame.vector)
    total = frame.batch * volume(shape[:-1]) * lanes
    values = {
        "source": source, "target": target, "total": total, "lanes": lanes, "by_lanes": lanes, "channels": shape[-1],
    }  # fmt: skip
    made = ("ops.elementwise.layout", factory, (frame.element,))
    grid = (blocks_of(total, THREADS), 1, 1)
    return make_launch(NODE, "forward", "layout", made, layout.LAYOUT, values, grid)


def launcher(direction: str, write: Write) -> Launcher:
    """`run` of a table row, on device arrays; what it prepares is kept in `arrays`."""

    def launch(case: Case, arrays: Arrays) -> None:
        mode = arrays.get("mode", Mode())
        key = f"single {case} {direction} {write.__name__} {mode}"
        if key not in arrays:
            theirs = {n: address_of(a) for n, a in arrays.items() if hasattr(a, "__cuda_array_interface__")}

            def make(device: Device, allocate: Allocate) -> Work:
                frame = new_frame(case, device.processors, device.shared, mode, device.capability < turing.FIRST_AFTER)
                return prepare(frame, direction, write, theirs, allocate, mode)

            arrays[key] = Prepared(make)
        arrays[key].run()

    return launch
