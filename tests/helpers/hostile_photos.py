"""Photo files made to cost whoever decodes them much memory or time, by name."""

import base64
import struct
import zlib

import cv2
import numpy as np

from tests.helpers.photo_files import PNG, chunk, corners, encode


def large_png(side, bits, colour):
    """A PNG of zeros; its compressed data are one block again and again."""
    channels = {2: 3, 6: 4}[colour]
    packer = zlib.compressobj(1)
    first = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(16 * (1 + side * channels * bits // 8))) + packer.flush(zlib.Z_FULL_FLUSH)
    head = struct.pack(">IIBBBBB", side, side, bits, colour, 0, 0, 0)
    total = side * (1 + side * channels * bits // 8)
    checksum = (total % 65521) << 16 | 1  # Adler-32 of zeros
    body = first + block * (side // 16) + b"\3\0" + struct.pack(">I", checksum)
    return PNG + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def tiff(dtype, channels, side=16, more=()):
    """An uncompressed TIFF of any type of number; more: other values of tags."""
    dtype = np.dtype(dtype)
    size = side * side * channels * dtype.itemsize
    tags = {256: side, 257: side, 258: 8 * dtype.itemsize, 259: 1, 262: 1 + (channels > 2), 273: 0, 277: channels,
            278: side, 279: size, 339: " uif".index(dtype.kind), **dict(more)}  # fmt: skip
    tags[273] = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    pixels = np.random.default_rng(0).integers(0, 256, size, np.uint8).tobytes()
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + pixels


def _gif():
    """A frame of 65,535 x 65,535 pixels in an image of one."""
    head = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return head + b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\2\2\x44\1\0;"


def _jpeg_of_scans():
    """A progressive JPEG whose last scan, a few bytes about all of its blocks, is there 2,000 times."""
    data = encode(np.full((3000, 4000, 3), 90, np.uint8), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * 2000 + data[-2:]


def _png_of_chunks():
    head = encode(corners(), ".png")[8:33]
    return PNG + head + chunk(b"tEXt", b"") * 2_000_000


BOMBS = {"end.png": lambda: base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAABQAAAAYCAIAAAB1KUoh////8ElFTkSuQmCC"),
         "clear8.png": lambda: large_png(10_000, 8, 6), "clear16.png": lambda: large_png(10_000, 16, 6),
         "frame.gif": _gif, "scans.jpg": _jpeg_of_scans, "chunks.png": _png_of_chunks}  # fmt: skip
"""What was seen to cost gigabytes or many seconds where nothing limits it."""

ODD_TIFFS = {f"{dtype}-{channels}.tiff": lambda dtype=dtype, channels=channels: tiff(dtype, channels)
             for dtype in ("i1", "i2", "i4", "u4", "f4", "f8") for channels in (2, 4, 5)}  # fmt: skip
"""Pixels that no camera writes."""
