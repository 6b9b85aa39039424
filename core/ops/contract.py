"""The interface of an op: shape rule, cost and reference, as plain functions in one dataclass.

Batches are channels last: activations ``(N, H, W, C)`` or ``(N, F)``, filters OHWI. The reference
runs in the dtype of its inputs (float32 or float64) and is never optimised: all kernels are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy.typing as npt

from core.graph import Attributes, Parameter, Shape

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one photo: floating-point operations (a multiply-add is 2) and the fewest bytes moved."""

    flops: int
    bytes: int

    def of_batch(self, photos: int, weights: int) -> Cost:
        """Of a batch, with so many weights in float32: they move at least once."""
        return Cost(photos * self.flops, photos * self.bytes + 4 * weights)


@dataclass(frozen=True, slots=True)
class Mode:
    """The state of a run besides its arrays.

    `seed`, `step` and `photo0` (index of the batch's first photo in the step) feed dropout's
    counter-based generator, so that a mask is the same on every device.
    """

    training: bool = False
    seed: int = 0
    step: int = 0
    photo0: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """What an op computes from: attributes, inputs, parameters by role, and the mode."""

    attributes: Attributes
    inputs: Sequence[Array]
    parameters: Arrays = field(default_factory=dict)
    mode: Mode = Mode()


@dataclass(frozen=True, slots=True)
class Result:
    """A forward result: the output, what backward needs, and new values of running statistics."""

    output: Array
    saved: Arrays = field(default_factory=dict)
    updated: Arrays = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients of the loss: one per input (None for labels), one per trained parameter role."""

    inputs: tuple[Array | None, ...]
    parameters: Arrays = field(default_factory=dict)


ShapeRule: TypeAlias = Callable[[Attributes, Sequence[Shape]], Shape]
ParameterRule: TypeAlias = Callable[[Attributes, Sequence[Shape]], tuple[Parameter, ...]]
CostRule: TypeAlias = Callable[[Attributes, Sequence[Shape], Shape], Cost]
Forward: TypeAlias = Callable[[Call], Result]
Backward: TypeAlias = Callable[[Call, Result, Array], Gradients]


def no_parameters(attributes: Attributes, inputs: Sequence[Shape]) -> tuple[Parameter, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. `shape` raises ValueError with a sentence where the attributes make no sense.

    `defaults` has every attribute; the builder fills them in and refuses others. `backward` takes a call, its
    result and the gradient of the output.
    """

    name: str
    defaults: Attributes
    shape: ShapeRule
    cost: CostRule
    forward: Forward
    backward: Backward
    parameters: ParameterRule = no_parameters


def volume(shape: Shape) -> int:
    return prod(shape)
