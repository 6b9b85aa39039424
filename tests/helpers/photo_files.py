"""Photo files of every kind that users have, sound and broken, made here so that none is stored."""

import struct
import zlib

import cv2
import numpy as np

RED, GREEN, BLUE = (200, 30, 40), (40, 160, 50), (30, 60, 190)
PNG = b"\x89PNG\r\n\x1a\n"


def corners(height=48, width=64):
    """RGB with red top left, green top right, blue bottom left, grey bottom right: shows every turn and swap."""
    rgb = np.full((height, width, 3), 128, np.uint8)
    rgb[: height // 2, : width // 2] = RED
    rgb[: height // 2, width // 2 :] = GREEN
    rgb[height // 2 :, : width // 2] = BLUE
    return rgb


def encode(rgb, ending, *options):
    """An encoded photo's bytes; `rgb` may be grey, have alpha, or 16 bits."""
    order = {2: None, 3: [2, 1, 0], 4: [2, 1, 0, 3]}[rgb.ndim if rgb.ndim == 2 else rgb.shape[2]]
    done, data = cv2.imencode(ending, rgb if order is None else np.ascontiguousarray(rgb[..., order]), options)
    assert done
    return data.tobytes()


def array(data):
    """A file's bytes as `core.data.photo.decode` takes them."""
    return np.frombuffer(data, np.uint8)


def jpeg(rgb, quality=95):
    return encode(rgb, ".jpg", cv2.IMWRITE_JPEG_QUALITY, quality)


def jpeg_with_orientation(rgb, orientation):
    """A JPEG whose EXIF says how the camera was held (1..8)."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    return jpeg_with_exif(rgb, b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 1) + entry + struct.pack("<I", 0))


def jpeg_with_exif(rgb, content):
    plain = jpeg(rgb)
    return plain[:2] + _segment(0xE1, b"Exif\0\0" + content) + plain[2:]


def cmyk_jpeg(cyan, magenta, yellow, black, side=16):
    """A baseline JPEG of one colour in four inks (Adobe's inverted form), by hand: no encoder here makes one."""
    segments = [b"\xff\xd8", _segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))]
    segments.append(_segment(0xDB, b"\0" + bytes([1] * 64)))
    frame = struct.pack(">BHHB", 8, side, side, 4) + b"".join(bytes([i, 0x11, 0]) for i in range(1, 5))
    segments.append(_segment(0xC0, frame))
    # twelve DC codes of four bits, categories 0..11; one AC code: end of block
    segments.append(_segment(0xC4, b"\0" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12))))
    segments.append(_segment(0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"))
    segments.append(_segment(0xDA, b"\4" + b"".join(bytes([i, 0]) for i in range(1, 5)) + b"\0\x3f\0"))
    bits = ""
    last = [0] * 4
    for _ in range((side // 8) ** 2):
        for i, ink in enumerate((cyan, magenta, yellow, black)):
            level = 8 * (255 - ink - 128)
            bits += _dc_bits(level - last[i]) + "0"
            last[i] = level
    bits += "1" * (-len(bits) % 8)
    scan = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
    return b"".join(segments) + scan + b"\xff\xd9"


def _segment(marker, body):
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def _dc_bits(difference):
    size = abs(difference).bit_length()
    value = difference if difference > 0 else difference + (1 << size) - 1
    return f"{size:04b}" + (f"{value:0{size}b}" if size else "")


def png_header_only(width, height):
    """The first bytes of a PNG that claims a size, and its end: nothing between."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG + chunk(b"IHDR", head) + chunk(b"IEND", b"")


def jpeg_header_only(width, height):
    frame = struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 17, 0, 2, 17, 0, 3, 17, 0])
    return b"\xff\xd8" + _segment(0xC0, frame) + _segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])) + b"\0\xff\xd9"


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def animation(ending, frames):
    """An animated GIF, WebP or PNG of RGB frames."""
    moving = cv2.Animation()
    moving.frames = [np.dstack((f[..., ::-1], np.full(f.shape[:2], 255, np.uint8))) for f in frames]
    moving.durations = np.full(len(frames), 100, np.int32)
    done, data = cv2.imencodeanimation(ending, moving)
    assert done
    return np.asarray(data).tobytes()


def leaf_folder(root, classes=("healthy", "rust"), each=6, seed=0):
    """A small folder of photos that all differ; gives the root."""
    random = np.random.default_rng(seed)
    for label in classes:
        (root / label).mkdir(parents=True)
        for number in range(each):
            coarse = random.integers(0, 255, (4, 4, 3), np.uint8)
            rgb = cv2.resize(coarse, (32, 32), interpolation=cv2.INTER_CUBIC)
            (root / label / f"{number:03d}.png").write_bytes(encode(rgb, ".png"))
    return root
