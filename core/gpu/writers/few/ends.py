"""The end of a prediction in one launch: global average, classifier and logits."""

from __future__ import annotations

from core.gpu.frame import Frame, bias_of
from core.gpu.kernels.convolution.few_pixels import PART
from core.gpu.kernels.passes import classify_few
from core.gpu.launch import Launch, blocks_of, simple_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.packing import Taps
from core.gpu.writers.few.convolutions import reads_alone
from core.program import Step


def ends_in_classifier(frame: Frame, step: Step, following: Step) -> bool:
    """Whether a global average and a dense layer are a prediction's last steps."""
    if step.op != "global_avg_pool" or following.op != "dense" or following.output != frame.program.output:
        return False
    if frame.arithmetic != "bf16" or following.activation or not reads_alone(frame, step, following):
        return False
    x = frame.image(step.inputs[0])
    few = frame.batch <= classify_few.MOST_PHOTOS and x.padded // PART <= classify_few.MOST_LANES
    return few and x.row_pitch == x.width * x.pitch and following.output.buffer not in frame.kept


def classify(frame: Frame, step: Step, following: Step) -> Launch:
    """The launch of a global average, a dense layer and the logits."""
    x, indices = frame.image(step.inputs[0]), frame.indices(f"{following.node}.weight")
    taps = Taps((1, 1), x.padded)
    weight = frame.packed(
        f"{following.node}.weight",
        lambda: packing.pack_forward(indices.reshape(len(indices), 1, 1, -1), taps, frame.element),
    )
    lanes, hw, classes = x.padded // PART, x.height * x.width, len(indices)
    values = (
        x.address, weight, bias_of(frame, following), frame.places.logits, hw, x.pitch, classes,
        packing.padded_depth(taps.total, 2), 1 / hw,
    )  # fmt: skip
    threads = classify_few.THREADS
    return simple_launch(
        following.node, "forward", "fused", "passes.classify_few", "make_classify", (lanes,), classify_few.ARGUMENTS,
        (blocks_of(classes, classify_few.WARPS), frame.batch, 1), (threads, 1, 1), values,
        classify_few.shared_bytes(lanes), moved=2 * (frame.batch * hw + classes) * x.padded, blocks=1,
    )  # fmt: skip
