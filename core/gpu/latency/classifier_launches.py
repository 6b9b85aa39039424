"""Launch of the end of a prediction: global average pool, dense layer, logits."""

from __future__ import annotations

from core.gpu.frame import bias_of
from core.gpu.latency import classifier
from core.gpu.latency.block import VECTOR
from core.gpu.latency.conv_launches import READ, is_read_once, refuse_unless
from core.gpu.launch import blocks_of, make_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.packing import Taps
from core.gpu.select import Case


def refuse_classifier(case: Case) -> str:
    frame, (step, following) = case.frame, case.steps
    x = frame.image(step.inputs[0])
    return refuse_unless(
        case,
        ("It computes one or two images.", lambda: frame.batch <= classifier.MOST_IMAGES),
        ("It computes the network's last two steps.", lambda: following.output == frame.program.output),
        ("The logits have an activation.", lambda: not following.activation),
        (READ, lambda: is_read_once(frame, step, following) and following.output.buffer not in frame.kept),
        ("A warp's registers hold 2048 channels.", lambda: x.padded // VECTOR <= classifier.MOST_VECTORS),
        ("It takes rows without gaps.", lambda: x.row_pitch == x.width * x.pitch),
    )


def write_classifier(case: Case) -> None:
    """The last two steps, and the logits themselves."""
    frame, (step, following) = case.frame, case.steps
    x, indices = frame.image(step.inputs[0]), frame.indices(f"{following.node}.weight")
    taps = Taps((1, 1), x.padded)
    weight = frame.packed(
        f"{following.node}.weight",
        lambda: packing.pack_forward(indices.reshape(len(indices), 1, 1, -1), taps, frame.element),
    )
    vectors, area, classes = x.padded // VECTOR, x.height * x.width, len(indices)
    values = {
        "x": x.address, "weight": weight, "bias": bias_of(frame, following), "logits": frame.places.logits,
        "area": area, "ldx": x.pitch, "classes": classes, "depth": packing.padded_depth(taps.total, 2),
        "factor": 1 / area,
    }  # fmt: skip
    frame.add(
        make_launch(
            following.node, "forward", "fused", ("latency.classifier", "make_classify", (vectors,)),
            classifier.SIGNATURE, values, (blocks_of(classes, classifier.WARPS), frame.batch, 1),
            (classifier.THREADS, 1, 1), classifier.shared_bytes(vectors),
            2 * (frame.batch * area + classes) * x.padded, 1,
        )
    )  # fmt: skip
    frame.has_logits = True
