"""From uint8 photos to the network's input in one pass: sampling, blur, background, mixing, colour, cut-out, scaling.

    grid: (blocks of pixels, images)     block: 256 threads; a thread has some output pixels, one after another
    shared memory: the augmentation parameters of the image

    output pixel --affine map--> place in the photo --bilinear, perhaps five samples of a blur--> colour
      --background or other photo--> --3 x 4 colour matrix--> --cut-out box--> --mean, deviation--> store

Output pixels have 4 or 8 channels (the last are zero), so that a convolution loads 16 bytes. Floor: the photos once
(3 bytes a pixel) and the output once. Reference and meaning of the parameters: `core.ops.photo`.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import CONTROL, KernelSignature, arguments, divisions, ints, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.control import Images, find_offsets, offset, read_photos
from core.gpu.frame import Frame
from core.gpu.launch import RESIDENT, THREADS, Launch, blocks_of, make_launch
from core.gpu.parts.vectors import clear, divide
from core.graph import PHOTO
from core.ops.photo import AUGMENTATION_SIZE, BACKGROUND, BACKGROUND_MAP, BLUR, BLUR_RADIUS, BOX, MAP, MASK, MATRIX
from core.program import Value

PIXELS: Final = 4
"""Pixels per thread, if there are many: the preparation of a thread takes longer than a pixel."""

IMAGE: Final = KernelSignature((
    CONTROL,
    *pointers(source="its field `source`, followed by `masks` and `backgrounds`",
              rows="float32 (batch, AUGMENTATION_SIZE): augmentation parameters (`core.ops.photo`)",
              index="int32 (batch,): which of the source's photos",
              out="the first pixel of the output inside its border"),
    *ints(total="pixels of an output image", height="its rows", width="its columns"),
    *divisions(width="`width`"),
    *ints(ldr="pixels from a row of out to the next", ldn="pixels from an image of out to the next"),
    *arguments("float32", **{f"m{i}": f"mean of channel {i}" for i in range(3)}),
    *arguments("float32", **{f"s{i}": f"1 / deviation of channel {i}" for i in range(3)}),
))  # fmt: skip

_MASKS, _BACKGROUNDS = (offset(name) - offset("source") for name in ("masks", "backgrounds"))
_HEIGHT, _WIDTH = Images.height.offset, Images.width.offset


@device_function
def _two_pixels(at, six):
    """Six bytes from any address as float32, by three aligned words, which reach up to 6 bytes further."""
    start, bits = u64(at & u64(0xFFFFFFFFFFFFFFFC)), u32(u32(at & u64(3)) * u32(8))
    w0, w1, w2 = ptx.load1(start), ptx.load1(u64(start + u64(4))), ptx.load1(u64(start + u64(8)))
    low, high = ptx.shift_pair(w0, w1, bits), ptx.shift_pair(w1, w2, bits)
    for i in range(4):
        six[i] = ptx.byte_to_float(low, u32(0x7650 + i))
    for i in range(2):
        six[4 + i] = ptx.byte_to_float(high, u32(0x7650 + i))


@device_function
def _sample(photo, height, width, sx, sy, rgb, weight):
    """Add ``weight`` times the bilinear value of each channel in 0..1; coordinates are clamped to the photo.

    At the last column the previous pixel has weight 0.
    """
    sx = min(max(sx, f32(0.0)), f32(width - 1))
    sy = min(max(sy, f32(0.0)), f32(height - 1))
    x0, y0 = i32(max(min(i32(sx), width - 2), 0)), i32(sy)
    down = i32(width * 3) if y0 + 1 < height else i32(0)
    fx, fy = f32(sx - f32(x0)), f32(sy - f32(y0))
    at = u64(photo + u64(i32(i32(y0 * width) + x0) * 3))
    scale = f32(weight / f32(255.0))
    wa, wb = f32(f32(f32(1.0) - fy) * f32(f32(1.0) - fx)), f32(f32(f32(1.0) - fy) * fx)
    wc, wd = f32(fy * f32(f32(1.0) - fx)), f32(fy * fx)
    upper = cuda.local.array(6, f32)
    lower = cuda.local.array(6, f32)
    _two_pixels(at, upper)
    _two_pixels(u64(at + u64(down)), lower)
    for i in range(3):
        top, bottom = f32(upper[i] * wa + upper[i + 3] * wb), f32(lower[i] * wc + lower[i + 3] * wd)
        rgb[i] = f32(rgb[i] + scale * f32(top + bottom))


@device_function
def _table(source):
    """Address, height and width of a set of images in the control block (`core.gpu.control.Images`)."""
    address = u64(u64(ptx.load1(source)) | u64(u64(ptx.load1(u64(source + u64(4)))) << u64(32)))
    return address, i32(ptx.load1(u64(source + u64(_HEIGHT)))), i32(ptx.load1(u64(source + u64(_WIDTH))))


@device_function
def _leaf_share(mask, tall, wide, mx, my):
    """The bilinear value of a mask in 0..1; coordinates are clamped."""
    mx = min(max(mx, f32(0.0)), f32(wide - 1))
    my = min(max(my, f32(0.0)), f32(tall - 1))
    x0, y0 = i32(mx), i32(my)
    right, down = i32(1) if x0 + 1 < wide else i32(0), wide if y0 + 1 < tall else i32(0)
    fx, fy = f32(mx - f32(x0)), f32(my - f32(y0))
    at = u64(mask + u64(i32(i32(y0 * wide) + x0)))
    a, b = f32(ptx.load_byte(at)), f32(ptx.load_byte(u64(at + u64(right))))
    c, d = f32(ptx.load_byte(u64(at + u64(down)))), f32(ptx.load_byte(u64(at + u64(down + right))))
    top, bottom = f32(a + f32(fx * f32(b - a))), f32(c + f32(fx * f32(d - c)))
    return f32(f32(top + f32(fy * f32(bottom - top))) / f32(255.0))


@device_function
def _blend(photo, height, width, row, x, y, share, rgb):
    """Mix the colour, which has the weight `share`, with that of the photo of `BACKGROUND_MAP`."""
    for i in range(3):
        rgb[i] = f32(rgb[i] * share)
    gx = f32(row[BACKGROUND_MAP] * x + row[BACKGROUND_MAP + 1] * y + row[BACKGROUND_MAP + 2])
    gy = f32(row[BACKGROUND_MAP + 3] * x + row[BACKGROUND_MAP + 4] * y + row[BACKGROUND_MAP + 5])
    _sample(photo, height, width, gx, gy, rgb, f32(f32(1.0) - share))


@device_function
def _set_on_background(source, row, h, w, x, y, sx, sy, rgb):
    """Replace the colour outside the leaf by that of the background."""
    masks, tall, wide = _table(u64(source + u64(_MASKS)))
    backgrounds, high, broad = _table(u64(source + u64(_BACKGROUNDS)))
    half = f32(0.5)
    down, right = f32(f32(tall) / f32(h)), f32(f32(wide) / f32(w))
    mask = u64(masks + u64(i64(row[MASK]) * tall * wide))
    leaf = _leaf_share(mask, tall, wide, f32(f32(sx + half) * right - half), f32(f32(sy + half) * down - half))
    background = u64(backgrounds + u64((i64(row[BACKGROUND]) - i64(1)) * high * broad * 3))
    _blend(background, high, broad, row, x, y, leaf, rgb)


@device_function
def _colour(source, mine, h, w, row, x, y, boxed, rgb):
    """The colour in 0..1 at (x, y) of the output: sampled, blurred, cut out or mixed, and colour-transformed.

    boxed: whether (x, y) is in the box, where a mix shows only the other photo.
    """
    seen = cuda.local.array(3, f32)
    clear(seen)
    sx = f32(row[MAP] * x + row[MAP + 1] * y + row[MAP + 2])
    sy = f32(row[MAP + 3] * x + row[MAP + 4] * y + row[MAP + 5])
    blur, radius = row[BLUR], row[BLUR_RADIUS]
    _sample(mine, h, w, sx, sy, seen, f32(f32(1.0) - f32(4.0) * blur) if blur > f32(0.0) else f32(1.0))
    if blur > f32(0.0):
        _sample(mine, h, w, f32(sx - radius), sy, seen, blur)
        _sample(mine, h, w, f32(sx + radius), sy, seen, blur)
        _sample(mine, h, w, sx, f32(sy - radius), seen, blur)
        _sample(mine, h, w, sx, f32(sy + radius), seen, blur)
    if row[BACKGROUND] > f32(0.0):
        _set_on_background(source, row, h, w, x, y, sx, sy, seen)
    if row[BACKGROUND] < f32(0.0):
        photos, high, broad = _table(source)
        other = u64(photos + u64((i64(-row[BACKGROUND]) - i64(1)) * h * w * 3))
        _blend(other, high, broad, row, x, y, f32(0.0) if boxed else row[MASK], seen)
    for i in range(3):
        v = row[MATRIX + 4 * i + 3]
        for j in range(3):
            v = f32(v + row[MATRIX + 4 * i + j] * seen[j])
        rgb[i] = min(max(v, f32(0.0)), f32(1.0))


def make_photo(element: int, channels: int, pixel: int) -> Any:
    """The kernel for outputs of 3 channels or 1 (grey), with `pixel` elements per pixel; grid: pixels, photos."""
    HALF, GREY, ONE, EIGHT = element == 2, channels == 1, pixel == 1, pixel == 8

    def photo(control, source, rows, index, out, total, height, width, by_width, ldr, ldn, m0, m1, m2, s0, s1, s2):
        row = cuda.shared.array(AUGMENTATION_SIZE, f32)
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y)
        if t < AUGMENTATION_SIZE:
            row[t] = ptx.load_float(u64(rows + u64((i64(n) * AUGMENTATION_SIZE + t) * 4)))
        cuda.syncthreads()  # the parameters are in shared memory
        real = n < read_photos(control)
        address, h, w = _table(source)
        which = i32(ptx.load1(u64(index + u64(i64(n) * 4)))) if real else i32(0)
        mine = u64(address + u64(i64(which) * h * w * 3))
        rgb = cuda.local.array(3, f32)
        threads = i32(cuda.blockDim.x)
        for at in range(i32(i32(cuda.blockIdx.x) * threads + t), total, i32(threads * i32(cuda.gridDim.x))):
            oy = i32(divide(at, by_width))
            ox = i32(at - oy * width)
            clear(rgb)
            if real:  # images beyond those of the batch are zero
                y0, x0, y1, x1 = i32(row[BOX]), i32(row[BOX + 1]), i32(row[BOX + 2]), i32(row[BOX + 3])
                boxed = oy >= y0 and oy < y1 and ox >= x0 and ox < x1
                _colour(source, mine, h, w, row, f32(ox), f32(oy), boxed, rgb)
                if GREY:
                    rgb[0] = f32(f32(0.299) * rgb[0] + f32(0.587) * rgb[1] + f32(0.114) * rgb[2])
                rgb[0], rgb[1], rgb[2] = f32((rgb[0] - m0) * s0), f32((rgb[1] - m1) * s1), f32((rgb[2] - m2) * s2)
                bare = boxed and row[BACKGROUND] >= f32(0.0)
                for i in range(3):
                    rgb[i] = f32(0.0) if bare or (GREY and i > 0) else rgb[i]
            where, zero = i64(n) * ldn + i64(oy) * ldr + ox, u32(0)
            target = u64(out + u64(where * (element * pixel)))
            if ONE and HALF:
                ptx.store_half(target, ptx.pack_bf16(rgb[0], f32(0.0)))
            elif ONE:
                ptx.store_float(target, rgb[0])
            elif HALF:
                low, high = ptx.pack_bf16(rgb[0], rgb[1]), ptx.pack_bf16(rgb[2], f32(0.0))
                if EIGHT:
                    ptx.store4(target, low, high, zero, zero)
                else:
                    ptx.store2(target, low, high)
            else:
                red, green, blue = ptx.float_to_bits(rgb[0]), ptx.float_to_bits(rgb[1]), ptx.float_to_bits(rgb[2])
                ptx.store4(target, red, green, blue, zero)
                if EIGHT:
                    ptx.store4(u64(target + u64(16)), zero, zero, zero, zero)

    return photo


def image_launch(frame: Frame) -> Launch:
    node, at = frame.program.graph.node(PHOTO), frame.block("control")
    height, width, channels = node.shape
    x, (top, left, *_) = frame.tensor(Value(PHOTO, node.shape)), frame.border
    offsets = find_offsets(frame.batch)
    mean, std = [tuple(float(v) for v in node.attributes[k]) for k in ("mean", "std")]  # type: ignore[union-attr]
    total = height * width
    values = {
        "control": at, "source": at + offset("source"), "rows": at + offsets.augmentation,
        "index": at + offsets.indices, "out": x.address + (top * x.width + left) * x.pitch * x.element,
        "total": total, "height": height, "width": width, "by_width": width, "ldr": x.width, "ldn": x.height * x.width,
        **{f"m{i}": m for i, m in enumerate((*mean, 0.0, 0.0)[:3])},
        **{f"s{i}": 1 / s for i, s in enumerate((*std, 1.0, 1.0)[:3])},
    }  # fmt: skip
    blocks = blocks_of(total, THREADS * PIXELS)
    if blocks * frame.batch < RESIDENT * frame.processors:
        blocks = blocks_of(total, THREADS)
    return make_launch(
        PHOTO, "forward", make_photo, (frame.element, channels, x.pitch), IMAGE, values,
        (blocks, frame.batch), moved=frame.batch * total * (3 + x.pitch * x.element), resident=4,
    )  # fmt: skip
