"""Blocks of device memory and pinned host memory, and copies between them."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from core.gpu.compilation.cuda import driver
from core.gpu.driver.device import check
from core.ops.contract import Array

BEHIND: Final = 16
"""Bytes after a block that loads of whole words may touch."""


class Block:
    """Bytes on the device, initially zero; `address` is a number, as kernels take it."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 256)
        self._pointer = check(driver.cuMemAlloc(self.size + BEHIND))
        self.address = int(self._pointer)
        check(driver.cuMemsetD8(self._pointer, 0, self.size))
        _wait()

    def put(self, values: Array, offset: int = 0) -> None:
        """Copy a host array to a byte offset and wait."""
        values = np.ascontiguousarray(values)
        assert offset + values.nbytes <= self.size
        check(driver.cuMemcpyHtoD(self.address + offset, values.ctypes.data, values.nbytes))
        _wait()

    def get(self, count: int, dtype: npt.DTypeLike, offset: int = 0) -> Array:
        """Copy of `count` values from a byte offset."""
        values = np.empty(count, dtype)
        assert offset + values.nbytes <= self.size
        check(driver.cuMemcpyDtoH(values.ctypes.data, self.address + offset, values.nbytes))
        return values

    def queue_from(self, source: Pinned, size: int, stream: Any) -> None:
        """Queue a copy of `size` bytes from pinned memory."""
        check(driver.cuMemcpyHtoDAsync(self.address, source.address, size, stream))

    def close(self) -> None:
        if self.address:
            check(driver.cuMemFree(self._pointer))
            self.address = 0


def _wait() -> None:
    """Wait for the copies and fills of the default stream.

    A copy from pageable memory returns once the driver has staged it, a fill returns at once, and our streams do not
    wait for the default one: a kernel could read weights that are still being copied.
    """
    check(driver.cuStreamSynchronize(driver.CUstream(0)))


class Pinned:
    """Pinned host memory, which the device copies from and kernels write to by its address; `array` is uint8."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 256)
        self.address = int(check(driver.cuMemHostAlloc(self.size, 0)))
        raw = (ctypes.c_uint8 * self.size).from_address(self.address)
        self.array: npt.NDArray[np.uint8] = np.ctypeslib.as_array(raw)

    def close(self) -> None:
        if self.address:
            check(driver.cuMemFreeHost(self.address))
            self.address = 0
