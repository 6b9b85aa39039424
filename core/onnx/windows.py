"""Windows of Conv and the pools: kernel, strides, pads and ONNX's automatic padding."""

from __future__ import annotations

from typing import Any, Final

from core.errors import ModelFileError
from core.graph import Shape
from core.ops.window import Window

WINDOW: Final = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def window_of(name: str, attributes: dict[str, Any], kernel: Shape, image: Shape) -> Window:
    """The window over an image of (height, width, channels). Raises ModelFileError."""
    kernel = _pair(name, "kernel_shape", attributes, kernel)
    stride = _pair(name, "strides", attributes, (1, 1))
    if _pair(name, "dilations", attributes, (1, 1)) != (1, 1):
        raise ModelFileError(f"{name} is dilated, which is not supported.")
    if min(stride) < 1 or min(kernel) < 1:
        raise ModelFileError(f"{name} has the kernel {kernel} and the strides {stride}, which are not valid.")
    auto = attributes.get("auto_pad", b"NOTSET")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        padding = _same(image, kernel, stride, auto == b"SAME_UPPER")
    elif auto in (b"NOTSET", b"VALID"):
        pads = tuple(attributes.get("pads", (0, 0, 0, 0))) if auto == b"NOTSET" else (0, 0, 0, 0)
        padding = _four(name, pads)
    else:
        raise ModelFileError(f"{name} has the automatic padding {auto!r}, which does not exist.")
    return Window(kernel, stride, padding, bool(attributes.get("ceil_mode", 0)))


def _same(image: Shape, kernel: tuple[int, int], stride: tuple[int, int], upper: bool) -> tuple[int, int, int, int]:
    sides = []
    for size, k, s in zip(image[:2], kernel, stride, strict=True):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        sides.append((total // 2, total - total // 2) if upper else (total - total // 2, total // 2))
    return (sides[0][0], sides[1][0], sides[0][1], sides[1][1])


def _pair(name: str, key: str, attributes: dict[str, Any], default: Shape) -> tuple[int, int]:
    value = attributes.get(key, default)
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(v, int) for v in value):
        raise ModelFileError(f"{name} needs two whole numbers as {key}; only images are supported.")
    return value[0], value[1]


def _four(name: str, pads: tuple[Any, ...]) -> tuple[int, int, int, int]:
    if len(pads) != 4 or not all(isinstance(p, int) for p in pads):
        raise ModelFileError(f"{name} needs four whole numbers as pads; only images are supported.")
    return pads[0], pads[1], pads[2], pads[3]
