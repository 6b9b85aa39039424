"""The image's convolution and the max pool after it: launches, and why they do not compute a case."""

from __future__ import annotations

from core.gpu.frame import bias_of
from core.gpu.launch import RELU, Tensor, blocks_of, make_launch
from core.gpu.ops.conv.backward_weight import add_with_sum, partial_of
from core.gpu.ops.conv.geometry import reads_image, window_of
from core.gpu.ops.conv.operands import operands_of, partial_size, taps_of
from core.gpu.ops.pool.max_pool import positions_of
from core.gpu.select import Case
from core.gpu.sm90 import image_pool, image_pool_gradient
from core.gpu.sm90.filters import pack_image
from core.graph import Shape
from core.ops.window import Window, read_window


def _columns(filters: int) -> int:
    """Filters of a block: half of many, so that two blocks share a multiprocessor."""
    return filters // 2 if filters > 64 else filters


def _suits_image(x: Tensor, window: Window, out: Shape, training: bool, limit: int) -> bool:
    """Whether the kernels compute an image's convolution: windows are 16 bytes apart and shared memory suffices."""
    (kernel, width), (_, out_width, filters) = window.kernel, out
    if (x.element, x.pitch) != (2, 4) or x.row_pitch % 8:
        return False
    if window.stride != (2, 2) or window.padding[:2] != (0, 0) or kernel not in (3, 5, 7) or width > 8:
        return False
    if filters not in (32, 64, 96, 128) or out_width > x.row_pitch // 8:
        return False
    row_vectors, steps = x.row_pitch // 8, taps_of(x, window, True).channels // 16
    shared = image_pool.shared_bytes(kernel, steps, _columns(filters), row_vectors)
    if training:
        k_steps = blocks_of(out_width, 16)
        gradient = image_pool_gradient.shared_bytes(row_vectors, 2 * steps, k_steps, filters, out_width // 2)
        shared = max(shared, gradient)
    return shared <= limit


def _strips(batch: int, steps: int, resident: int) -> tuple[int, int]:
    """(strips of an image, steps of a strip) with the least work for the busiest of so many resident blocks."""

    def steps_in_all(strips: int) -> float:
        """The first row of a strip costs half a step."""
        return blocks_of(batch * strips, resident) * (blocks_of(steps, strips) + 0.5)

    strip_steps = blocks_of(steps, min(range(1, steps + 1), key=steps_in_all))
    return blocks_of(steps, strip_steps), strip_steps


def refuse_forward(case: Case) -> str:
    frame, (step, following) = case.frame, case.steps
    if not reads_image(step) or step.attributes["groups"] != 1 or step.activation not in ("relu", "relu6"):
        return "It computes the image's convolution with a ReLU."
    pool = read_window(following.attributes)
    shape = (pool.kernel, pool.stride, pool.padding[:2])
    if following.inputs != (step.output,) or shape != ((3, 3), (2, 2), (0, 0)):
        return "It computes a 3x3 max pool of stride 2 after the convolution."
    alone = frame.is_read_once(step, following)
    if not alone or frame.program.buffers[following.output.buffer] != following.output.shape:
        return "The value between the two is also read elsewhere, or an output is part of a concatenation."
    x, window = frame.tensor(step.inputs[0]), window_of(frame, step)
    if not _suits_image(x, window, step.output.shape, frame.program.training, frame.shared):
        return "It takes windows of 3, 5 or 7 rows, stride 2, and 32, 64, 96 or 128 filters, as shared memory allows."
    return ""


def refuse_backward(case: Case) -> str:
    if not case.frame.wants(case.steps[1].inputs[0]):
        return "No parameter before the pool is trained."
    return refuse_forward(case)


def write_forward(case: Case) -> None:
    """An image's convolution and the 3x3 pool of stride 2 after it; training stores the positions of the maxima."""
    frame, (step, following) = case.frame, case.steps
    of, out = operands_of(frame, step), frame.tensor(following.output)
    x, taps, (kernel, _) = of.x, of.taps, of.window.kernel
    weight = frame.packed(f"vectors:{step.node}.weight", lambda: pack_image(frame.filters(step), taps))
    positions, training = positions_of(frame, following, out) if frame.program.training else 0, frame.program.training
    (height, width, filters), row_vectors, k_steps = step.output.shape, x.row_pitch // 8, taps.channels // 16
    batch, columns = frame.batch, _columns(filters)
    groups, across = 4 if columns <= 48 else 3, filters // columns  # warpgroups: registers for two blocks
    image_steps = blocks_of(out.height, 2)
    strips, strip_steps = _strips(batch, image_steps, 2 * frame.processors // across)
    values = {
        "x": x.address, "weight": weight, "bias": bias_of(frame, step), "out": out.address, "positions": positions,
        "strips": strips, "strip_steps": strip_steps, "image_steps": image_steps, "filters": filters,
        "by_strips": strips, "ho": height, "wo": width, "hp": out.height, "wp": out.width, "rows": x.height,
        "row_vectors": row_vectors, "image_bytes": x.image_pitch * 2, "by_row_vectors": row_vectors,
        "activation": RELU[step.activation],
    }  # fmt: skip
    pooled = batch * out.height * out.width * out.padded
    constants = (kernel, k_steps, columns, groups, training)
    frame.add(make_launch(
        step.node, "forward", image_pool.make_image_pool, constants, image_pool.SIGNATURE, values,
        (batch * strips, across), (128 * groups,), image_pool.shared_bytes(kernel, k_steps, columns, row_vectors),
        2 * batch * x.image_pitch + pooled * (2 + training), 2, flops=2 * batch * height * width * filters * taps.total,
    ))  # fmt: skip


def write_backward(case: Case) -> None:
    """Partial weight gradients of the image's convolution from the gradient after its pool, one for each block."""
    frame, (step, pool) = case.frame, case.steps
    case.backward.claim(pool.inputs[0])
    of, dy = operands_of(frame, step), frame.tensor(pool.output, True)
    height, width, filters = step.output.shape
    x, taps, (kernel, _), batch = of.x, of.taps, of.window.kernel, frame.batch
    row_vectors, k_steps, vectors = x.row_pitch // 8, blocks_of(width, 16), taps.channels // 8
    image_blocks = blocks_of(height, image_pool_gradient.ROWS)
    per_block = blocks_of(batch * image_blocks, frame.processors)
    splits, size = blocks_of(batch * image_blocks, per_block), partial_size(filters, taps)
    values = {
        "x": x.address, "dy": dy.address, "partial": partial_of(case), "positions": positions_of(frame, pool, dy),
        "total": batch * image_blocks, "per_block": per_block, "image_blocks": image_blocks,
        "by_image_blocks": image_blocks, "hp": dy.height, "wp": dy.width, "rows": x.height,
        "row_vectors": row_vectors, "image_bytes": x.image_pitch * 2, "channels": taps.channels,
        "depth": taps.total, "size": size,
    }  # fmt: skip
    add_with_sum(case, of, splits, size, make_launch(
        step.node, "backward_weight", image_pool_gradient.make_image_gradient,
        (kernel, vectors, k_steps, filters), image_pool_gradient.SIGNATURE, values, (splits,), (128 * vectors,),
        image_pool_gradient.shared_bytes(row_vectors, vectors, k_steps, filters, dy.width),
        2 * batch * x.image_pitch + 3 * batch * dy.height * dy.width * dy.padded + 4 * splits * size, 1,
        flops=2 * batch * height * width * filters * taps.total, stream=1,
    ))  # fmt: skip
