"""Launches of batch norm: statistics, and the pass over the activations, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping

from core.gpu.frame import Frame
from core.gpu.launch import PLAIN, RELU, SUM_BLOCKS, THREADS, Target, Tensor, blocks_of, make_launch, vectors_per_row
from core.gpu.ops.norm import batch_norm
from core.gpu.ops.norm.fusion import is_computed_by_producer, is_computed_by_reader
from core.gpu.select import Case
from core.program import Step


def saved_of(frame: Frame, step: Step) -> int:
    """Address of the numbers that a batch norm saves per channel (`batch_norm.make_finish`)."""
    return frame.use(f"saved:{step.node}", 4 * batch_norm.SAVED * frame.tensor(step.inputs[0]).padded)


def place_sums(frame: Frame, name: str, blocks: int, x: Tensor) -> int:
    """Address of the partial sums of x, of two kinds, by the blocks of a launch; `_finish` adds them."""
    frame.partials[name] = blocks
    return frame.use(name, 8 * blocks * x.padded)


def forward(case: Case) -> None:
    """Finish the statistics, and normalize unless the next kernel does it while it reads."""
    frame, step = case.frame, case.step
    statistics(frame, step)
    if frame.stores_all or not is_computed_by_reader(frame, step):
        _apply(frame, step, False, None)


def statistics(frame: Frame, step: Step) -> None:
    """Add the launch of the factors per channel and of the new running statistics."""
    x, of = frame.tensor(step.inputs[0]), {p.role: frame.weight(f"{step.node}.{p.role}") for p in step.parameters}
    epsilon = float(step.attributes["epsilon"])  # type: ignore[arg-type]
    if not frame.program.training or step.attributes["frozen"]:
        values = {
            "weight": of["weight"], "bias": of["bias"], "mean": of["running_mean"], "variance": of["running_var"],
            "saved": saved_of(frame, step), "channels": x.channels, "row": x.padded, "epsilon": epsilon,
        }  # fmt: skip
        frame.add(make_launch(
            step.node, "forward", batch_norm.fix, (), batch_norm.FIX, values, (blocks_of(x.channels, THREADS),),
        ))  # fmt: skip
        return
    momentum = float(step.attributes["momentum"])  # type: ignore[arg-type]
    _finish(frame, step, "forward", f"sums:{step.node}", None, {**of, "epsilon": epsilon, "momentum": momentum})


def backward(case: Case) -> None:
    """Gradients of scale and shift, and of the input unless the next kernel computes it while it reads."""
    frame, step, backward, value = case.frame, case.step, case.backward, case.step.inputs[0]
    moving = not step.attributes["frozen"]
    if moving:
        gradients = {f"d{role}": frame.gradient_of(f"{step.node}.{role}") for role in ("weight", "bias")}
        more = {"weight": frame.weight(f"{step.node}.weight"), "accumulate": int(backward.accumulate), **gradients}
        dy = frame.tensor(step.output, True)
        _finish(frame, step, "backward_weight", f"dsums:{step.node}", dy, more)
    if frame.wants(value):
        target = backward.target(value)
        if frame.stores_all or not is_computed_by_producer(frame, step):
            _apply(frame, step, moving, target)


def _finish(frame: Frame, step: Step, direction: str, name: str, dy: Tensor | None, more: Mapping[str, float]) -> None:
    """Add the partial sums `name`, computed by a convolution or by a launch before this one."""
    x = frame.tensor(step.inputs[0])
    blocks = frame.partials[name] if name in frame.partials else _sums(frame, step, direction, name, x, dy)
    grid, block = (blocks_of(x.padded, batch_norm.FINISH_BLOCK[0]),), batch_norm.FINISH_BLOCK
    if frame.ranks > 1:
        given = {
            "partial": frame.use(name, 0), "sums": frame.use(f"rank {name}", 8 * x.padded),
            "control": frame.block("control"), "blocks": blocks, "row": x.padded,
        }  # fmt: skip
        frame.add(make_launch(step.node, direction, batch_norm.rank_sums, (), batch_norm.RANK_SUMS, given, grid, block))
        name, blocks = f"rank {name}", 1
    values = {
        "bias": 0, "running_mean": 0, "running_var": 0, "dweight": 0, "dbias": 0, "accumulate": 0, "epsilon": 0.0,
        "momentum": 0.0, **more, "partial": frame.use(name, 0), "saved": saved_of(frame, step),
        "control": frame.block("control"), "blocks": blocks, "channels": x.channels, "row": x.padded,
        "hw": x.height * x.width,
    }  # fmt: skip
    frame.add(make_launch(
        step.node, direction, batch_norm.make_finish, (dy is not None, frame.ranks), batch_norm.FINISH,
        values, grid, block, resident=2,
    ))  # fmt: skip


def _sums(frame: Frame, step: Step, direction: str, name: str, x: Tensor, dy: Tensor | None) -> int:
    """Add the launch of partial sums over pixels; returns their number."""
    pixels, vectors = frame.batch * x.height * x.width, x.vectors
    wide = vectors_per_row(vectors, THREADS)
    split = max(64, blocks_of(pixels, max(1, SUM_BLOCKS * frame.processors * wide // vectors)))
    blocks = blocks_of(pixels, split)
    values = {**_share(frame, x, dy, split, wide), "partial": frame.use(name, 8 * blocks * x.padded)}
    frame.add(make_launch(
        step.node, direction, batch_norm.make_sums, (frame.element, dy is not None), batch_norm.SUMS, values,
        (blocks, vectors // wide), moved=pixels * vectors * 16 * (2 if dy else 1),
    ))  # fmt: skip
    return blocks


def _apply(frame: Frame, step: Step, centred: bool, target: Target | None) -> None:
    """Add the launch of the pass over the activations: forward, or with a target the gradient of the input."""
    value, gradient = step.inputs[0], target is not None
    x, out = frame.tensor(value), frame.tensor(value, True) if gradient else frame.tensor(step.output)
    dy, target = frame.tensor(step.output, True) if gradient else None, target or PLAIN
    pixels, vectors = frame.batch * x.height * x.width, x.vectors
    wide = vectors_per_row(vectors, THREADS)
    split = THREADS // wide * batch_norm.APPLIED
    values = {
        **_share(frame, x, dy, split, wide), **target.values, "out": out.address, "saved": saved_of(frame, step),
        "ldo": out.pitch, "activation": 0 if gradient else RELU[step.activation],
    }  # fmt: skip
    frame.add(make_launch(
        step.node, "backward_input" if gradient else "forward", batch_norm.make_apply,
        (frame.element, gradient, centred), batch_norm.APPLY, values, (blocks_of(pixels, split), vectors // wide),
        moved=pixels * vectors * 16 * (1 + gradient + target.passes),
    ))  # fmt: skip


def _share(frame: Frame, x: Tensor, dy: Tensor | None, split: int, wide: int) -> dict[str, int]:
    """Arguments shared by the kernels of `_sums` and `_apply`: both sides, and the share of a block."""
    return {
        "x": x.address, "dy": dy.address if dy else 0, "control": frame.block("control"), "hw": x.height * x.width,
        "pixels": frame.batch * x.height * x.width, "split": split, "vectors": x.vectors, "wide": wide,
        "ldx": x.pitch, "ldy": dy.pitch if dy else 0,
    }  # fmt: skip
