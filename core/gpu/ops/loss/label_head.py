"""The end of a network whose photos may have several labels: `head`, with a sigmoid for each label.

    2  loss      a thread has every 128th label: its share of the loss, and whether it is right, by block sums
    3  gradient  sigmoid less target; of the exponential of ``-|score|`` alone, which cannot overflow

Source: `core.ops.sigmoid_cross_entropy`.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load1, load_float, store1, store_float
from core.gpu.control import make_reader, read_photos
from core.gpu.ops.loss.head import known_weight, make_mean, make_spread
from core.gpu.parts.block import block_sum

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

_read_share = make_reader("share")


def make_label_head(element: int) -> Any:
    """The kernel, with the arguments and the shared memory of `head.HEAD`."""
    mean, spread = make_mean(element), make_spread(element)

    def label_head(
        x, logits, dx, labels, weights, targets, results, control, hw, classes, ldx, ldd, batch, activation, smoothing,
    ):
        scores = cuda.shared.array(0, dtype=types.float32)
        scratch = cuda.shared.array(128, dtype=types.float32)
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
        photos = read_photos(control)
        base = u64(x + u64(i64(n) * hw * ldx * element))
        mean(base, scores, u64(logits + u64(i64(n) * classes * 4)), hw, classes, ldx)
        known = known_weight(labels, weights, photos, scratch)
        label = i32(load1(u64(labels + u64(i64(n) * 4)))) if n < photos else i32(-1)
        scale = f32(_read_share(control) / f32(known * f32(classes))) if label >= 0 else f32(0.0)
        loss, wrong = f32(0.0), f32(0.0)
        for c in range(t, classes, 128):
            z, q = scores[c], load_float(u64(targets + u64(i64(i64(n) * classes + c) * 4)))
            small = cuda.libdevice.expf(f32(-abs(z)))
            p = f32((f32(1.0) if z >= f32(0.0) else small) / f32(f32(1.0) + small))
            if label >= 0:
                loss = f32(loss + scale * f32(max(z, f32(0.0)) - q * z + cuda.libdevice.logf(f32(f32(1.0) + small))))
                wrong = f32(wrong + f32((z > f32(0.0)) != (q > f32(0.5))))
            scores[c] = f32(scale * f32(p - q) / f32(hw)) if label >= 0 else f32(0.0)
        loss, wrong = block_sum(loss, scratch), block_sum(wrong, scratch)
        if t == 0:
            store_float(u64(results + u64(i64(n) * 4)), loss)
            store1(u64(results + u64(i64(batch + n) * 4)), u32(1) if label >= 0 and wrong == f32(0.0) else u32(0))
        if dx != u64(0):
            spread(scores, base, dx, hw, classes, ldx, ldd, activation)

    return label_head
