"""A run's network and memory, told before it starts: layer, shape, parameters, work and kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from core.data.loader import AHEAD
from core.device import STREAM_BUFFERS, Memory, Plan


def describe_network(plan: Plan) -> str:
    """The table of a plan's steps, one line each, for one photo forward; kernels of all directions."""
    kernels: dict[str, list[str]] = defaultdict(list)
    for layer, _, kernel in plan.kernels():
        if kernel not in kernels[layer]:
            kernels[layer].append(kernel)
    rows = [("layer", "op", "shape", "parameters", "MFLOP", "kB", "kernel")]
    flops = parameters = moved = 0
    for step in plan.program.steps:
        owned = sum(p.size for p in step.parameters)
        flops, parameters, moved = flops + step.cost.flops, parameters + owned, moved + step.cost.bytes
        op = step.op + (f"+{step.activation}" if step.activation else "")
        shape = "x".join(str(side) for side in step.output.shape) or "1"
        rows.append((step.node, op, shape, f"{owned:,}", f"{step.cost.flops / 1e6:.2f}",
                     f"{step.cost.bytes / 1e3:.0f}", ", ".join(kernels[step.node])))
    rows.append(("all", "", "", f"{parameters:,}", f"{flops / 1e6:.2f}", f"{moved / 1e3:.0f}", ""))
    return align_columns(rows, right=(3, 4, 5))


def count_memory(
    training: Plan, validation: Plan, photos: int, photo_bytes: int, *, device: str, stream: bool,
    teachers: Sequence[Plan] = (),
) -> dict[str, int]:  # fmt: skip
    """Bytes that a run takes, by purpose, "memory of the run" in all.

    photos: how many there are; photo_bytes: of one decoded photo. The GPU has room for all photos, or for the way
    of batches where they are streamed; the CPU reads them where they are. The loader holds some batches ahead in the
    memory of the computer, those of the larger plan that is not told photos by number.
    """
    resident = not stream and training.fits(photos * photo_bytes)
    on_device = [STREAM_BUFFERS * plan.batch * photo_bytes for plan in (training, validation)]
    if resident:
        on_device[0] = photos * photo_bytes
    if device == "cpu":
        on_device = [0, 0]
    known = replace(training.memory, photos=on_device[0])
    rows = {f"training: {f.name}": int(getattr(known, f.name)) for f in fields(Memory)}
    if teachers:  # they look at the training plan's photos, or each has its own way for them
        way = 0 if resident or device == "cpu" else STREAM_BUFFERS * training.batch * photo_bytes
        rows["teachers"] = sum(replace(plan.memory, photos=way).total for plan in teachers)
    rows["validation plan"] = replace(validation.memory, photos=on_device[1]).total
    ahead = validation.batch if resident else max(training.batch, validation.batch)
    rows["photos gathered ahead"] = (AHEAD + 2) * ahead * photo_bytes
    return {**rows, "memory of the run": sum(rows.values())}


def describe_memory(rows: Mapping[str, int]) -> str:
    """The bytes of `count_memory` as a table."""
    return align_columns([(name, f"{size / 2**20:.2f} MB") for name, size in rows.items()], right=(1,))


def align_columns(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Rows as text in columns, those numbered in `right` to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
