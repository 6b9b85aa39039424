"""The fast plan's optimizer as a row of the table: the launches behind a gradient, on a caller's float32 arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from core.gpu import control
from core.gpu.driver.device import Device
from core.gpu.driver.hosted import Arrays
from core.gpu.frame import Addresses
from core.gpu.ops.update.launches import UpdateArrays, result_launches, update_launch
from core.gpu.ops.update.optimizer import NORM_BLOCKS
from core.gpu.prepared import Allocate, Prepared, Work, address_of
from core.ops.contract import Array
from core.ops.registry import KernelCase
from core.optim.optimizer import Optimizer, Scalars, moments, scalars

WRITES: Final = ("weights", "momentum", "first", "second", "average")


def launch(case: KernelCase, arrays: Arrays) -> None:
    """One step on device arrays "weights", "gradient", "decayed" (0 or 1) and the optimizer's state by name.

    "optimizer", "learning_rate" and "step" (from 1) are plain values in the same dict. What is prepared stays in it; a
    new step's scalars are sent to the device before they are used.
    """
    optimizer: Optimizer = arrays["optimizer"]
    now, key = scalars(optimizer, arrays["learning_rate"], arrays["step"]), f"update {optimizer}"
    if key not in arrays:
        theirs = {n: address_of(a) for n, a in arrays.items() if hasattr(a, "__cuda_array_interface__")}
        decayed, count = arrays["decayed"].copy_to_host(), arrays["weights"].size

        def make(device: Device, allocate: Allocate) -> Work:
            return prepare(optimizer, now, theirs, decayed, count, device.hardware.processors, allocate)

        arrays[key] = now, Prepared(make)
    before, prepared = arrays[key]
    if before != now:
        prepared.blocks["control"].put(settings_of(now))
        arrays[key] = now, prepared
    prepared.run()


def prepare(
    optimizer: Optimizer, now: Scalars, theirs: Mapping[str, int], decayed: Array, count: int, processors: int,
    allocate: Allocate,
) -> Work:  # fmt: skip
    """The launches on arrays of `count` floats at the addresses `theirs` by name."""
    roles = np.where(decayed > 0, 2, 1).astype(np.uint8)
    contents = {"roles": roles, "control": settings_of(now)}
    sizes = {name: values.nbytes for name, values in contents.items()} | {"sums": 4 * NORM_BLOCKS, "result": 16}
    at = allocate(sizes, contents)
    places = Addresses(theirs["weights"], theirs["gradient"], at["control"])
    first, second = (*(theirs[name] for name in moments(optimizer)), 0)[:2]
    average = theirs["average"] if optimizer.average > 0 else 0
    own = UpdateArrays(first, second, average, at["roles"], at["sums"], at["result"])
    update = update_launch(places, count, processors, optimizer, own)
    return Work((), (*result_launches(places, count, 0, own), update), ())


def settings_of(now: Scalars) -> Array:
    """The control block of a step without photos."""
    return control.make_block(
        0, rate=now.rate, root=now.root, shrink=now.shrink, average=now.average, factor=1
    )
