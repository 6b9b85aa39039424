"""Batch norm's launches: statistics, the pass over the activations, and both backward."""

from __future__ import annotations

from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.kernels.parts.thread_rows import lanes_a_row
from core.gpu.kernels.passes import batch_norm_fast
from core.gpu.launch import RELU, SUM_BLOCKS, THREADS, Launch, Tensor, blocks_of, lanes_of, simple_launch
from core.gpu.writers.norm_pairs import is_read_raw, is_undone_behind
from core.program import Step


def saved_of(frame: Frame, step: Step) -> int:
    """Address of what a batch norm keeps of its channels (`batch_norm_fast.make_finish`)."""
    return frame.use(f"saved:{step.node}", 4 * batch_norm_fast.SAVED * frame.image(step.inputs[0]).padded)


def forward(frame: Frame, step: Step) -> None:
    """Finish the statistics, and normalise where no later kernel does it on its way."""
    statistics(frame, step)
    if frame.whole or not is_read_raw(frame, step):
        x, out = frame.image(step.inputs[0]), frame.image(step.output)
        frame.add(_apply(frame, step, "forward", x, None, None, "", out, saved_of(frame, step), False, False))


def statistics(frame: Frame, step: Step) -> None:
    """What the pass over the activations reads of a batch norm's channels, and new running statistics."""
    saved, x = saved_of(frame, step), frame.image(step.inputs[0])
    of = {p.role: frame.weight(f"{step.node}.{p.role}") for p in step.parameters}
    epsilon = float(step.attributes["epsilon"])  # type: ignore[arg-type]
    four = (of["weight"], of["bias"], of["running_mean"], of["running_var"])
    if not frame.program.training or step.attributes["frozen"]:
        frame.add(
            simple_launch(
                step.node, "forward", "statistics", "passes.batch_norm_fast", "fix", (), batch_norm_fast.FIX_ARGUMENTS,
                (blocks_of(x.channels, THREADS), 1, 1), (THREADS, 1, 1), (*four, saved, x.channels, x.padded, epsilon),
            )
        )
    else:
        partial, blocks = _statistics(frame, step, x)
        momentum = float(step.attributes["momentum"])  # type: ignore[arg-type]
        frame.add(_finish(frame, step, x, "forward", (partial, *four, saved, 0, 0), blocks, 0, epsilon, momentum))


def _statistics(frame: Frame, step: Step, x: Tensor) -> tuple[int, int]:
    """Partial sums of a batch norm's input: from the convolution before it, or by a launch of their own."""
    name = f"sums:{step.node}"
    if name in frame.partials:
        return frame.use(name, 0), frame.partials[name]
    return _sums(frame, step, "forward", name, x, None)


def backward(walk: Backward, step: Step) -> None:
    """Gradients of scale and shift, and of the input where no later kernel computes it on its way."""
    frame, value = walk.frame, step.inputs[0]
    moving = not step.attributes["frozen"]
    if moving:
        x, name = frame.image(value), f"dsums:{step.node}"
        if name in frame.partials:
            partial, blocks = frame.use(name, 0), frame.partials[name]
        else:
            partial, blocks = _sums(frame, step, "backward_weight", name, x, frame.image(step.output, True))
        addresses = (
            partial, frame.weight(f"{step.node}.weight"), 0, 0, 0, saved_of(frame, step),
            frame.gradient_of(f"{step.node}.weight"), frame.gradient_of(f"{step.node}.bias"),
        )
        frame.add(_finish(frame, step, x, "backward_weight", addresses, blocks, int(walk.accumulate), 0.0, 0.0))
    if walk.wants(value):
        mask, activation, add = walk.target(value)
        if frame.whole or not is_undone_behind(frame, step):
            x, dy, dx = frame.image(value), frame.image(step.output, True), frame.image(value, True)
            saved = saved_of(frame, step)
            frame.add(_apply(frame, step, "backward_input", x, dy, mask, activation, dx, saved, moving, add))


def _finish(
    frame: Frame, step: Step, x: Tensor, direction: str, addresses: tuple[int, ...], blocks: int, accumulate: int,
    epsilon: float, momentum: float,
) -> Launch:  # fmt: skip
    values = (
        *addresses, frame.places.control, blocks, x.channels, x.padded, x.height * x.width, accumulate, epsilon,
        momentum,
    )
    return simple_launch(
        step.node, direction, "statistics", "passes.batch_norm_fast", "make_finish", (direction != "forward",),
        batch_norm_fast.FINISH_ARGUMENTS, (blocks_of(x.padded, 8), 1, 1), (*batch_norm_fast.FINISH_BLOCK, 1), values,
        blocks=2,
    )


def _sums(
    frame: Frame, step: Step, direction: str, name: str, x: Tensor, dy: Tensor | None
) -> tuple[int, int]:
    """Add the launch of partial sums over pixels; gives their address and how many there are."""
    pixels, lanes = frame.batch * x.height * x.width, lanes_of(x)
    wide = lanes_a_row(lanes, batch_norm_fast.THREADS)
    split = max(64, blocks_of(pixels, max(1, SUM_BLOCKS * frame.processors * wide // lanes)))
    blocks = blocks_of(pixels, split)
    partial = frame.use(name, 8 * blocks * x.padded)
    values = (
        x.address, dy.address if dy else 0, partial, frame.places.control,
        x.height * x.width, pixels, split, lanes, wide, x.pitch, dy.pitch if dy else 0,
    )
    frame.add(
        simple_launch(
            step.node, direction, "sums", "passes.batch_norm_fast", "make_sums", (frame.element, dy is not None),
            batch_norm_fast.SUM_ARGUMENTS, (blocks, lanes // wide, 1), (batch_norm_fast.THREADS, 1, 1), values,
            moved=pixels * lanes * 16 * (2 if dy else 1),
        )
    )
    return frame.use(name, 8 * blocks * x.padded), blocks


def _apply(
    frame: Frame, step: Step, direction: str, x: Tensor, dy: Tensor | None, mask: Tensor | None, masking: str,
    out: Tensor, saved: int, centred: bool, accumulate: bool,
) -> Launch:  # fmt: skip
    """The pass over the activations, forward or backward."""
    pixels, lanes = frame.batch * x.height * x.width, lanes_of(x)
    wide = lanes_a_row(lanes, batch_norm_fast.THREADS)
    split = batch_norm_fast.THREADS // wide * batch_norm_fast.APPLIED
    values = (
        x.address, dy.address if dy else 0, mask.address if mask else 0, out.address, saved, frame.places.control,
        x.height * x.width, pixels, split, lanes, wide, x.pitch, dy.pitch if dy else 0, mask.pitch if mask else 0,
        out.pitch, RELU[step.activation] if dy is None else 0, RELU[masking] if mask else 0, int(accumulate),
    )
    return simple_launch(
        step.node, direction, "fused", "passes.batch_norm_fast", "make_apply", (frame.element, dy is not None, centred),
        batch_norm_fast.APPLY_ARGUMENTS, (blocks_of(pixels, split), lanes // wide, 1), (THREADS, 1, 1), values,
        moved=pixels * lanes * 16 * (2 + bool(dy) + bool(mask) + int(accumulate)),
    )
