"""Dense layers of a few images in float32, bound by reading the weights, or by writing their gradient.

    forward          a warp, or four for long rows, per unit: a lane has every 32nd or 128th vector of its row
    input gradient   128 or 512 threads per 16 inputs of 8 images: a thread has four, for every 32nd or 128th unit
    weight gradient  a thread has four inputs of four units, summed over the images

A thread has the sums of all images in registers. Warps add theirs by shuffles, then the block in shared memory, in a
fixed order. Weights are read, and their gradient is written, in 16-byte vectors where they are: nothing is packed.
Bytes: the weights once (or their gradient), which is the floor; the images again for each unit, from the L1 cache.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import ACTIVATION, MASK, MASKING, KernelSignature, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import bits_to_float, load4, load4_ordered, load_float, shuffle_xor, store4, store_float
from core.gpu.frame import bias_of, has_bias
from core.gpu.launch import RELU, blocks_of, make_launch
from core.gpu.parts.vectors import ADD, PACK, UNPACK, activate, clear, passes, unrolled
from core.gpu.select import FORWARD, INPUT, WEIGHT, Case
from core.ops.contract import volume

MOST_IMAGES: Final = {FORWARD: 8, INPUT: 128, WEIGHT: 64}
"""Largest batch by direction: with more images products of tiles read less from the caches."""
GROUP: Final = 8
"""Images of a block of the input gradient; more would not fit into registers."""
MOST_READ: Final = 16 << 20
"""Bytes of weights that the input gradients of several groups read; beyond it products of tiles are faster."""
LONG: Final = 512
"""Inputs from which four warps share a row of weights."""
COLUMNS: Final = 16
"""Inputs per block of the input gradient."""
SPLITS: Final = (32, 128)
"""Splits of the units in the input gradient, with few units and with many."""
FEW: Final = 512
"""Largest number of units for 32 splits: on an H200, 448 units take 0.6 of the time with 128, and 2240 1.4."""
IMAGES: Final = 4
"""Of the weight gradient: images that a thread loads at once."""
LOADED: Final = 4 * IMAGES

FORWARD_SIGNATURE: Final = KernelSignature((
    *pointers(x="float32 (images, inputs)", weight="float32 (units, inputs)", bias="float32 (units,), or 0",
              out="float32 (images, units)"),
    *ints(inputs="a multiple of 4", units="outputs", columns="the same up to 16 bytes"),
    *pitches(ldx="x", ldo="out"),
    ACTIVATION,
))  # fmt: skip

INPUT_SIGNATURE: Final = KernelSignature((
    *pointers(dy="float32 (images, units)", weight="float32 (units, inputs)", out="dx, float32 (images, inputs)"),
    MASK,
    *ints(inputs="a multiple of 4", units="outputs", images="N"),
    *pitches(ldy="dy", ldo="out", ldm="mask"),
    *MASKING,
))  # fmt: skip

WEIGHT_SIGNATURE: Final = KernelSignature((
    *pointers(x="float32 (images, inputs)", dy="float32 (images, units)", weights="gradient of the weights",
              biases="gradient of the biases; 0 for none"),
    *ints(inputs="a multiple of 4", units="outputs", images="N", accumulate="1 adds to the gradients"),
    *pitches(ldx="x", ldy="dy"),
))  # fmt: skip


pack, unpack, add = PACK[4], UNPACK[4], ADD[4]


def make_gemv(images: int, warps: int) -> Any:
    """Forward, with `warps` (1 or 4) warps per unit."""
    M, STEP, UNITS, STORED = images, 128 * warps, 4 // warps, 4 * images

    def gemv(x, weight, bias, out, inputs, units, columns, ldx, ldo, activation):
        shared = cuda.shared.array(STORED, f32)
        sums = cuda.local.array(M, f32)
        w = cuda.local.array(4, f32)
        v = cuda.local.array(4, f32)
        t = i32(cuda.threadIdx.x)
        warp, first = i32(t >> 5), i32(i32(cuda.blockIdx.x) * UNITS)
        unit = i32(first + warp // warps)
        clear(sums)
        if unit < units:
            for k in range(i32((t & i32(32 * warps - 1)) * 4), inputs, STEP):
                unpack(load4(u64(weight + u64((i64(unit) * inputs + k) * 4))), w)
                for m in range(M):
                    unpack(load4(u64(x + u64((i64(m) * ldx + k) * 4))), v)
                    for i in range(4):
                        sums[m] = f32(sums[m] + f32(w[i] * v[i]))
        for m in range(M):
            for step in (16, 8, 4, 2, 1):
                sums[m] = f32(sums[m] + shuffle_xor(sums[m], u32(step)))
            if (t & 31) == 0:
                shared[i32(warp * M + m)] = sums[m]
        cuda.syncthreads()  # the sums of all warps are stored
        mine, m = i32(t // M), i32(t % M)
        if t < UNITS * M and first + mine < columns:
            biased = bias != u64(0) and first + mine < units
            total = load_float(u64(bias + u64(i64(first + mine) * 4))) if biased else f32(0.0)
            for w in range(warps):
                total = f32(total + shared[i32((mine * warps + w) * M + m)])
            store_float(u64(out + u64((i64(m) * ldo + first + mine) * 4)), activate(total, activation))

    return gemv


def make_gemv_transposed(images: int, splits: int) -> Any:
    """The input gradient of `images` per block, masked and added if requested."""
    M, SUMS, STORED = images, 4 * images, splits // 8 * COLUMNS * images
    AT_ONCE = 4 if images <= 4 else 2  # units whose weights a thread loads at once: more do not fit into registers

    @device_function
    def load_weights(weight, n, units, inputs, w, j):
        at = i64(i64(n + j * splits) * inputs) if n + j * splits < units else i64(0)
        v = load4(u64(weight + u64(at * 4)))
        for i in range(4):
            w[j * 4 + i] = bits_to_float(v[i]) if n + j * splits < units else f32(0.0)

    load_all, WEIGHTS = unrolled(load_weights, AT_ONCE), 4 * AT_ONCE

    def gemv_transposed(dy, weight, out, mask, inputs, units, images, ldy, ldo, ldm, masking, accumulate):
        shared = cuda.shared.array(STORED, f32)
        sums = cuda.local.array(SUMS, f32)
        w = cuda.local.array(WEIGHTS, f32)
        t = i32(cuda.threadIdx.x)
        first, start, lane = i32(i32(cuda.blockIdx.x) * COLUMNS), i32(i32(cuda.blockIdx.y) * M), i32(t & 3)
        own = u64(weight + u64(i64(min(i32(first + lane * 4), i32(inputs - 4))) * 4))
        clear(sums)
        for n in range(i32(t >> 2), units, splits * AT_ONCE):
            load_all(own, n, units, inputs, w)
            for j in range(AT_ONCE):
                for m in range(M):
                    image = i64(min(i32(start + m), i32(images - 1)))
                    at = i64(image * ldy + min(i32(n + j * splits), i32(units - 1)))
                    g = load_float(u64(dy + u64(at * 4)))
                    for i in range(4):
                        sums[m * 4 + i] = f32(sums[m * 4 + i] + f32(g * w[j * 4 + i]))
        for s in range(SUMS):
            for step in (4, 8, 16):
                sums[s] = f32(sums[s] + shuffle_xor(sums[s], u32(step)))
            if (t & 31) < 4:
                shared[i32((t >> 5) * COLUMNS * M + (s // 4) * COLUMNS + lane * 4 + (s & 3))] = sums[s]
        cuda.syncthreads()  # the sums of all warps are stored
        m, column = i32(start + t // COLUMNS), i32(first + (t & i32(COLUMNS - 1)))
        if t < COLUMNS * M and m < images and column < inputs:
            total = f32(0.0)
            for warp in range(splits // 8):
                total = f32(total + shared[i32(warp * COLUMNS * M + t)])
            if masking != 0 and not passes(load_float(u64(mask + u64((i64(m) * ldm + column) * 4))), masking):
                total = f32(0.0)
            target = u64(out + u64((i64(m) * ldo + column) * 4))
            store_float(target, f32(total + load_float(target)) if accumulate != 0 else total)

    return gemv_transposed


@device_function
def load_image(x, dy, first, images, ldx, ldy, v, g, m):
    """Four inputs and four gradients of image ``first + m``, zeros after the last one."""
    image, real = i64(min(i32(first + m), i32(images - 1))), first + m < images
    a, b = load4(u64(x + u64(image * ldx * 4))), load4(u64(dy + u64(image * ldy * 4)))
    for i in range(4):
        v[m * 4 + i] = bits_to_float(a[i])
        g[m * 4 + i] = bits_to_float(b[i]) if real else f32(0.0)


load_images = unrolled(load_image, IMAGES)


def outer_product(x, dy, weights, biases, inputs, units, images, accumulate, ldx, ldy):
    """The weight gradient; threads with the first inputs also have that of the biases."""
    sums = cuda.local.array(16, f32)
    bias = cuda.local.array(4, f32)
    v = cuda.local.array(LOADED, f32)
    g = cuda.local.array(LOADED, f32)
    vectors = i32(inputs // 4)
    at = i32(cuda.grid(1))
    n, k = i32(at // vectors * 4), i32(at % vectors * 4)
    clear(sums)
    clear(bias)
    if n < units:
        for first in range(0, images, IMAGES):
            load_images(u64(x + u64(k * 4)), u64(dy + u64(n * 4)), first, images, ldx, ldy, v, g)
            for m in range(IMAGES):
                for j in range(4):
                    bias[j] = f32(bias[j] + g[m * 4 + j])
                    for i in range(4):
                        sums[j * 4 + i] = f32(sums[j * 4 + i] + f32(g[m * 4 + j] * v[m * 4 + i]))
        for j in range(4):
            if n + j < units:
                for i in range(4):
                    v[i] = sums[j * 4 + i]
                target, row = u64(weights + u64((i64(n + j) * inputs + k) * 4)), pack(v)
                row = add(row, load4_ordered(target)) if accumulate != 0 else row
                store4(target, row[0], row[1], row[2], row[3])
                if k == 0 and biases != u64(0):
                    target = u64(biases + u64(i64(n + j) * 4))
                    store_float(target, f32(bias[j] + load_float(target)) if accumulate != 0 else bias[j])


def refuse(case: Case) -> str:
    frame, most = case.frame, MOST_IMAGES[case.direction]
    x, features = frame.flat(case.step.inputs[0])
    if features.size != x.channels:
        return "It reads vectors whose length is a multiple of 4."
    read = 4 * volume(case.step.parameters[0].shape) * blocks_of(frame.batch, GROUP)
    if case.direction == INPUT and frame.batch > GROUP and read > MOST_READ:
        return f"It computes at most {GROUP} images with so many weights."
    return f"It computes at most {most} images." if frame.batch > most else ""


def write_forward(case: Case) -> None:
    frame, step = case.frame, case.step
    (x, _), out = frame.flat(step.inputs[0]), frame.tensor(step.output)
    warps = 4 if x.channels > LONG else 1
    values = {
        "x": x.address, "weight": frame.weight(f"{step.node}.weight"), "bias": bias_of(frame, step), "out": out.address,
        "inputs": x.channels, "units": out.channels, "columns": out.padded, "ldx": x.pitch, "ldo": out.pitch,
        "activation": RELU[step.activation],
    }  # fmt: skip
    frame.add(make_launch(
        step.node, FORWARD, make_gemv, (frame.batch, warps), FORWARD_SIGNATURE, values,
        (blocks_of(out.padded * warps, 4),), (128,), moved=4 * x.channels * out.channels,
    ))  # fmt: skip


def write_input(case: Case) -> None:
    frame, step = case.frame, case.step
    dy, (dx, _) = frame.tensor(step.output, True), frame.flat(step.inputs[0], True)
    values = {
        "dy": dy.address, "weight": frame.weight(f"{step.node}.weight"), "out": dx.address, "inputs": dx.channels,
        "units": dy.channels, "images": frame.batch, "ldy": dy.pitch, "ldo": dx.pitch,
        **case.backward.target(step.inputs[0]).values,
    }  # fmt: skip
    grid, images = (blocks_of(dx.channels, COLUMNS), blocks_of(frame.batch, GROUP)), min(frame.batch, GROUP)
    splits = SPLITS[dy.channels > FEW]
    frame.add(make_launch(
        step.node, INPUT, make_gemv_transposed, (images, splits), INPUT_SIGNATURE, values, grid, (4 * splits,),
        moved=4 * dx.channels * dy.channels, resident=1,
    ))  # fmt: skip


def write_weight(case: Case) -> None:
    frame, step = case.frame, case.step
    (x, _), dy = frame.flat(step.inputs[0]), frame.tensor(step.output, True)
    if not frame.trains(step, "weight"):
        return
    biased = has_bias(step) and frame.trains(step, "bias")
    values = {
        "x": x.address, "dy": dy.address, "weights": frame.gradient_of(f"{step.node}.weight"),
        "biases": frame.gradient_of(f"{step.node}.bias") if biased else 0, "inputs": x.channels, "units": dy.channels,
        "images": frame.batch, "accumulate": int(case.backward.accumulate), "ldx": x.pitch, "ldy": dy.pitch,
    }  # fmt: skip
    frame.add(make_launch(
        step.node, WEIGHT, outer_product, (), WEIGHT_SIGNATURE, values,
        (blocks_of(x.vectors * blocks_of(dy.channels, 4), 128),), (128,), moved=4 * x.channels * dy.channels, stream=1,
    ))  # fmt: skip
