"""Activations as ops: value and gradient of each, as entries of a table.

ReLU and ReLU6 are fused with the step before them (`core.gpu.launch.RELU`). Every other activation is one launch of
`core.gpu.ops.elementwise.combine`, forward and backward, and needs only an entry here. Formulas: `core.ops.activation`.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, f32


@device_function
def _sigmoid(x):
    """From ``exp(-|x|)``, so that nothing overflows."""
    small = cuda.libdevice.expf(x if x < f32(0.0) else f32(-x))
    return f32((f32(1.0) if x >= f32(0.0) else small) / f32(f32(1.0) + small))


@device_function
def _silu_gradient(dy, x):
    s = _sigmoid(x)
    return f32(dy * f32(s + f32(f32(x * s) * f32(f32(1.0) - s))))


@device_function
def _hard_swish_gradient(dy, x):
    inside = f32(dy * f32(f32(f32(x + x) + f32(3.0)) * f32(1 / 6))) if x < f32(3.0) else dy
    return inside if x > f32(-3.0) else f32(0.0)


_relu = device_function(lambda x: x if x > f32(0.0) else f32(0.0))
_relu6 = device_function(lambda x: min(_relu(x), f32(6.0)))
_hard_sigmoid = device_function(lambda x: f32(_relu6(f32(x + f32(3.0))) * f32(1 / 6)))

ACTIVATIONS: Final[dict[str, tuple[Any, Any]]] = {
    "relu": (_relu, device_function(lambda dy, y: dy if y > f32(0.0) else f32(0.0))),
    "relu6": (_relu6, device_function(lambda dy, y: dy if y > f32(0.0) and y < f32(6.0) else f32(0.0))),
    "sigmoid": (_sigmoid, device_function(lambda dy, y: f32(f32(dy * y) * f32(f32(1.0) - y)))),
    "hard_sigmoid": (
        _hard_sigmoid,
        device_function(lambda dy, y: f32(dy * f32(1 / 6)) if y > f32(0.0) and y < f32(1.0) else f32(0.0)),
    ),
    "hard_swish": (device_function(lambda x: f32(x * _hard_sigmoid(x))), _hard_swish_gradient),
    "silu": (device_function(lambda x: f32(x * _sigmoid(x))), _silu_gradient),
}
"""y of x, and the gradient of x from that of y and from y, or from x where `core.ops.activation` says `needs_input`."""
