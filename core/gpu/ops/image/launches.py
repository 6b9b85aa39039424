"""The launch that makes the network's input from photos."""

from __future__ import annotations

from core.gpu.control import offset, places
from core.gpu.frame import Frame
from core.gpu.launch import RESIDENT, THREADS, Launch, blocks_of, make_launch
from core.gpu.ops.image import image
from core.graph import PHOTO
from core.program import Value


def image_launch(frame: Frame) -> Launch:
    """From uint8 photos to the network's input."""
    node, at = frame.program.graph.node(PHOTO), frame.addresses.control
    height, width, channels = node.shape
    x, (top, left, *_) = frame.image(Value(PHOTO, node.shape)), frame.border
    _, index, rows, *_ = places(frame.batch)
    mean, std = [tuple(float(v) for v in node.attributes[k]) for k in ("mean", "std")]  # type: ignore[union-attr]
    total = height * width
    values = {
        "control": at, "source": at + offset("source"), "rows": at + rows, "index": at + index,
        "out": x.address + (top * x.width + left) * x.pitch * x.element, "total": total, "height": height,
        "width": width, "by_width": width, "ldr": x.width, "ldn": x.height * x.width,
        **{f"m{i}": m for i, m in enumerate((*mean, 0.0, 0.0)[:3])},
        **{f"s{i}": 1 / s for i, s in enumerate((*std, 1.0, 1.0)[:3])},
    }  # fmt: skip
    blocks = blocks_of(total, THREADS * image.PIXELS)
    if blocks * frame.batch < RESIDENT * frame.processors:
        blocks = blocks_of(total, THREADS)
    return make_launch(
        PHOTO, "forward", "fused", ("ops.image.image", "make_photo", (frame.element, channels, x.pitch)), image.IMAGE,
        values, (blocks, frame.batch, 1), moved=frame.batch * total * (3 + x.pitch * x.element), resident=4,
    )  # fmt: skip
