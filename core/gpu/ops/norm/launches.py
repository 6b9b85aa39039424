"""Batch norm's launches: statistics, the pass over the activations, and both backward."""

from __future__ import annotations

from collections.abc import Mapping

from core.gpu.frame import Frame
from core.gpu.launch import (
    PLAIN,
    RELU,
    SUM_BLOCKS,
    THREADS,
    Launch,
    Target,
    Tensor,
    blocks_of,
    make_launch,
    vectors_of,
    vectors_per_row,
)
from core.gpu.ops.norm import batch_norm
from core.gpu.ops.norm.pairs import is_read_raw, is_undone_behind
from core.gpu.select import Case
from core.program import Step

MODULE = "ops.norm.batch_norm"
RANK_SUMS = "rank_sums"
"""The launch whose sums ranks average where batch norm is synchronized."""


def saved_of(frame: Frame, step: Step) -> int:
    """Address of what a batch norm keeps of its channels (`batch_norm.make_finish`)."""
    return frame.use(f"saved:{step.node}", 4 * batch_norm.SAVED * frame.image(step.inputs[0]).padded)


def place_sums(frame: Frame, name: str, blocks: int, x: Tensor) -> int:
    """Address for the partial sums, of two kinds, that so many blocks of a launch make of x; `_finish` adds them."""
    frame.partials[name] = blocks
    return frame.use(name, 8 * blocks * x.padded)


def forward(case: Case) -> None:
    """Finish the statistics, and normalise where no later kernel does it on its way."""
    frame, step = case.frame, case.step
    statistics(frame, step)
    if frame.whole or not is_read_raw(frame, step):
        x, out = frame.image(step.inputs[0]), frame.image(step.output)
        frame.add(_apply(frame, step, "forward", x, None, out, saved_of(frame, step), False))


def statistics(frame: Frame, step: Step) -> None:
    """What the pass over the activations reads of a batch norm's channels, and new running statistics."""
    x, of = frame.image(step.inputs[0]), {p.role: frame.weight(f"{step.node}.{p.role}") for p in step.parameters}
    epsilon = float(step.attributes["epsilon"])  # type: ignore[arg-type]
    if not frame.program.training or step.attributes["frozen"]:
        values = {
            "weight": of["weight"], "bias": of["bias"], "mean": of["running_mean"], "variance": of["running_var"],
            "saved": saved_of(frame, step), "channels": x.channels, "row": x.padded, "epsilon": epsilon,
        }  # fmt: skip
        grid = (blocks_of(x.channels, THREADS), 1, 1)
        frame.add(make_launch(step.node, "forward", "statistics", (MODULE, "fix", ()), batch_norm.FIX, values, grid))
        return
    momentum = float(step.attributes["momentum"])  # type: ignore[arg-type]
    _finish(frame, step, "forward", f"sums:{step.node}", None, {**of, "epsilon": epsilon, "momentum": momentum})


def backward(case: Case) -> None:
    """Gradients of scale and shift, and of the input where no later kernel computes it on its way."""
    frame, step, backward, value = case.frame, case.step, case.backward, case.step.inputs[0]
    moving = not step.attributes["frozen"]
    if moving:
        gradients = {f"d{role}": frame.gradient_of(f"{step.node}.{role}") for role in ("weight", "bias")}
        more = {"weight": frame.weight(f"{step.node}.weight"), "accumulate": int(backward.accumulate), **gradients}
        dy = frame.image(step.output, True)
        _finish(frame, step, "backward_weight", f"dsums:{step.node}", dy, more)
    if backward.wants(value):
        target = backward.target(value)
        if frame.whole or not is_undone_behind(frame, step):
            x, dy, dx = frame.image(value), frame.image(step.output, True), frame.image(value, True)
            saved = saved_of(frame, step)
            frame.add(_apply(frame, step, "backward_input", x, dy, dx, saved, moving, target))


def _finish(
    frame: Frame, step: Step, direction: str, name: str, dy: Tensor | None, more: Mapping[str, float]
) -> None:
    """Add the partial sums `name`, which a convolution has made or a launch before this makes."""
    x = frame.image(step.inputs[0])
    blocks = frame.partials[name] if name in frame.partials else _sums(frame, step, direction, name, x, dy)
    grid, block = (blocks_of(x.padded, batch_norm.FINISH_BLOCK[0]), 1, 1), (*batch_norm.FINISH_BLOCK, 1)
    if frame.ranks > 1:
        both, of_rank = frame.use(f"rank {name}", 8 * x.padded), (MODULE, RANK_SUMS, ())
        given = {"partial": frame.use(name, 0), "sums": both, "control": frame.addresses.control, "blocks": blocks,
                 "row": x.padded}  # fmt: skip
        frame.add(make_launch(step.node, direction, RANK_SUMS, of_rank, batch_norm.RANK_SUMS, given, grid, block))
        name, blocks = f"rank {name}", 1
    values = {
        "bias": 0, "running_mean": 0, "running_var": 0, "dweight": 0, "dbias": 0, "accumulate": 0, "epsilon": 0.0,
        "momentum": 0.0, **more, "partial": frame.use(name, 0), "saved": saved_of(frame, step),
        "control": frame.addresses.control, "blocks": blocks, "channels": x.channels, "row": x.padded,
        "hw": x.height * x.width,
    }  # fmt: skip
    frame.add(
        make_launch(
            step.node, direction, "statistics", (MODULE, "make_finish", (dy is not None, frame.ranks)),
            batch_norm.FINISH, values, grid, block, resident=2,
        )
    )  # fmt: skip


def _sums(frame: Frame, step: Step, direction: str, name: str, x: Tensor, dy: Tensor | None) -> int:
    """Add the launch of partial sums over pixels; gives how many there are."""
    pixels, vectors = frame.batch * x.height * x.width, vectors_of(x)
    wide = vectors_per_row(vectors, batch_norm.THREADS)
    split = max(64, blocks_of(pixels, max(1, SUM_BLOCKS * frame.processors * wide // vectors)))
    blocks = blocks_of(pixels, split)
    values = {**_share(frame, x, dy, split, wide), "partial": frame.use(name, 8 * blocks * x.padded)}
    made = (MODULE, "make_sums", (frame.element, dy is not None))
    frame.add(
        make_launch(
            step.node, direction, "sums", made, batch_norm.SUMS, values, (blocks, vectors // wide, 1),
            moved=pixels * vectors * 16 * (2 if dy else 1),
        )
    )  # fmt: skip
    return blocks


def _apply(
    frame: Frame, step: Step, direction: str, x: Tensor, dy: Tensor | None, out: Tensor, saved: int, centred: bool,
    target: Target = PLAIN,
) -> Launch:  # fmt: skip
    """The pass over the activations, forward or backward."""
    pixels, vectors = frame.batch * x.height * x.width, vectors_of(x)
    wide = vectors_per_row(vectors, batch_norm.THREADS)
    split = batch_norm.THREADS // wide * batch_norm.APPLIED
    values = {
        **_share(frame, x, dy, split, wide), **target.values, "out": out.address, "saved": saved, "ldo": out.pitch,
        "activation": RELU[step.activation] if dy is None else 0,
    }  # fmt: skip
    made = (MODULE, "make_apply", (frame.element, dy is not None, centred))
    return make_launch(
        step.node, direction, "fused", made, batch_norm.APPLY, values, (blocks_of(pixels, split), vectors // wide, 1),
        moved=pixels * vectors * 16 * (1 + bool(dy) + target.passes),
    )  # fmt: skip


def _share(frame: Frame, x: Tensor, dy: Tensor | None, split: int, wide: int) -> dict[str, int]:
    """What sums and the pass over the activations have in common: both sides, and a block's share of them."""
    return {
        "x": x.address, "dy": dy.address if dy else 0, "control": frame.addresses.control, "hw": x.height * x.width,
        "pixels": frame.batch * x.height * x.width, "split": split, "vectors": vectors_of(x), "wide": wide,
        "ldx": x.pitch, "ldy": dy.pitch if dy else 0,
    }  # fmt: skip
