"""The GPU: opened, its kernels loaded, its errors as sentences.

There is one context per process: CUDA's primary one, shared with other users of CUDA in it. The engine uses the GPU
only through a `Device`, so that `reset` can release everything.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from core.errors import DeviceError, OutOfMemory
from core.gpu.compilation.arrays import words
from core.gpu.compilation.compiler import Recipe, compile_recipes
from core.gpu.compilation.cuda import driver
from core.gpu.compilation.generations import AMPERE, TURING
from core.gpu.driver import cublas
from core.gpu.driver.tensor_map import TensorMap, encode
from core.gpu.hardware import NO_DRIVER, Hardware, Identity

_C_TYPES: Final = {
    "uint64": ctypes.c_uint64, "int64": ctypes.c_int64, "int32": ctypes.c_int32, "uint32": ctypes.c_uint32,
    "float32": ctypes.c_float, "float64": ctypes.c_double,
    "tensor_map": None,  # the driver's own 128 bytes
}


def check(result: Any) -> Any:
    """The value of a driver call. Raises OutOfMemory or DeviceError with the driver's message."""
    status, values = result[0], result[1:]
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemory("The GPU has no memory left. Close other programs that use it, or take a smaller batch.")
    if status != driver.CUresult.CUDA_SUCCESS:
        words = driver.cuGetErrorString(status)[1] or b""
        raise DeviceError(f"The GPU reported an error: {words.decode()} ({status.name}).")
    return values[0] if len(values) == 1 else values or None


def is_idle(stream: Any) -> bool:
    """Whether all work queued on a stream is done. Raises DeviceError if it failed."""
    return is_done(driver.cuStreamQuery(stream))


def is_done(status: Any) -> bool:
    """Whether a query of a stream or an event says that its work is done. Raises DeviceError if it failed."""
    if status[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
        return False
    check(status)
    return True


def problem() -> str | None:
    """Why no GPU can be used here, as a sentence with the remedy, or None."""
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError:
        return NO_DRIVER
    except ValueError as error:  # a status of a newer driver
        return f"The NVIDIA driver cannot start: {error}. Restart the machine or install the driver again."
    if status == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        return "The NVIDIA driver finds no GPU. Check that one is installed and not hidden by CUDA_VISIBLE_DEVICES."
    if status != driver.CUresult.CUDA_SUCCESS:
        words = (driver.cuGetErrorString(status)[1] or b"").decode()
        return f"The NVIDIA driver cannot start: {words}. Restart the machine or install the driver again."
    name, capability = _identify(check(driver.cuDeviceGet(0)))
    if capability < TURING:
        return (
            f"The {name} has compute capability {capability[0]}.{capability[1]}; the kernels here need 7.5 (Turing, "
            "2018) or newer. Use --device cpu."
        )
    return None


def count_devices() -> int:
    """Number of GPUs; call it only if `problem` returns None."""
    return int(check(driver.cuDeviceGetCount()))


def precision_problem() -> str | None:
    """Why the device computes in float32 only, or None; call it only if `problem` returns None."""
    name, capability = _identify(check(driver.cuDeviceGet(0)))
    if capability >= AMPERE:
        return None
    return (
        f"The {name} (compute capability {capability[0]}.{capability[1]}) computes in float32: bf16 and tf32 came "
        "with 8.0 (Ampere, 2020)."
    )


def _identify(handle: Any) -> tuple[str, tuple[int, int]]:
    attribute = driver.CUdevice_attribute
    major = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle))
    minor = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle))
    name = check(driver.cuDeviceGetName(128, handle)).split(b"\0")[0].decode()
    return name, (int(major), int(minor))


def _dependent_configuration(grid: Sequence[int], block: Sequence[int], shared: int, stream: Any) -> Any:
    """Launch configuration of a kernel that waits for the previous one itself; a captured graph keeps it."""
    attribute, wanted = driver.CUlaunchAttribute(), driver.CUlaunchConfig()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    wanted.gridDimX, wanted.gridDimY, wanted.gridDimZ = grid
    wanted.blockDimX, wanted.blockDimY, wanted.blockDimZ = block
    wanted.sharedMemBytes, wanted.hStream, wanted.attrs, wanted.numAttrs = shared, stream, [attribute], 1
    return wanted


class Function:
    """A kernel loaded on the device, ready to launch."""

    def __init__(self, handle: Any, kinds: Sequence[str]) -> None:
        self._handle = handle
        self._kinds = tuple(_C_TYPES[word] for kind in kinds for word in words(kind))
        self._shared = 48 << 10

    def launch(
        self, grid: Sequence[int], block: Sequence[int], shared: int, stream: Any, values: Sequence[Any],
        dependent: bool = False,
    ) -> None:  # fmt: skip
        """Queue one run; `values` in the order of its parameters. `dependent`: `core.gpu.compilation.generations`."""
        self.allow_shared(shared)
        given = tuple(check(encode(v)) if isinstance(v, TensorMap) else v for v in values)
        if not dependent:
            check(driver.cuLaunchKernel(self._handle, *grid, *block, shared, stream, (given, self._kinds), 0))
            return
        configuration = _dependent_configuration(grid, block, shared, stream)
        check(driver.cuLaunchKernelEx(configuration, self._handle, (given, self._kinds), 0))

    def allow_shared(self, shared: int) -> None:
        """Allow the kernel `shared` bytes of dynamic shared memory."""
        if shared > self._shared:
            wanted = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(self._handle, wanted, shared))
            self._shared = shared


class Device:
    """The open GPU. `close` releases everything; `open_device` opens it again."""

    def __init__(self) -> None:
        reason = problem()
        if reason is not None:
            raise DeviceError(reason)
        self._handle = check(driver.cuDeviceGet(0))
        self._context = check(driver.cuDevicePrimaryCtxRetain(self._handle))
        self.activate()
        self.name, self.capability = _identify(self._handle)
        self.hardware = Hardware(
            self.capability, self._attribute("MULTIPROCESSOR_COUNT"),
            self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"), self._attribute("CLOCK_RATE") * 1e3,
            2e3 * self._attribute("MEMORY_CLOCK_RATE") * self._attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8,
        )  # fmt: skip
        self._modules: list[Any] = []
        self._functions: dict[Recipe, Function | cublas.Sgemm] = {}

    @property
    def identity(self) -> Identity:
        version = int(check(driver.cuDriverGetVersion()))
        return Identity(self.name, self.capability, f"CUDA {version // 1000}.{version % 1000 // 10}")

    def activate(self) -> None:
        """Make the context current in this thread; every public entry point does so first."""
        check(driver.cuCtxSetCurrent(self._context))

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes, as reported by the driver."""
        free, total = check(driver.cuMemGetInfo())
        return int(free), int(total)

    def new_stream(self) -> Any:
        return check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value))

    def synchronize(self) -> None:
        check(driver.cuCtxSynchronize())

    def load(self, recipes: Sequence[Recipe]) -> dict[Recipe, Function | cublas.Sgemm]:
        """The kernels of these recipes; those missing in the cache are compiled."""
        missing = [r for r in dict.fromkeys(recipes) if r not in self._functions]
        for recipe in [r for r in missing if r.module == cublas.MODULE]:
            self._functions[recipe] = cublas.Sgemm()
            missing.remove(recipe)
        compiled, failed = compile_recipes(missing, self.capability), list[DeviceError]()
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the driver assembles PTX, half a second per kernel
            for recipe, made in [(one[0], pool.submit(self._assemble, one)) for one in compiled.items()]:
                try:
                    module, self._functions[recipe] = made.result()
                    self._modules.append(module)
                except DeviceError as error:  # the others are still loaded
                    failed.append(error)
        if failed:
            raise failed[0]
        return {r: self._functions[r] for r in recipes}

    def _assemble(self, item: tuple[Recipe, tuple[str, str]]) -> tuple[Any, Function]:
        recipe, (ptx, entry) = item
        self.activate()
        module = check(driver.cuModuleLoadData(ptx.encode() + b"\0"))
        return module, Function(check(driver.cuModuleGetFunction(module, entry.encode())), recipe.types)

    def close(self) -> None:
        """Unload every kernel and release the context. Plans on it must be closed first."""
        self.activate()
        for module in self._modules:
            check(driver.cuModuleUnload(module))
        for function in self._functions.values():
            if isinstance(function, cublas.Sgemm):  # others are freed with their module
                function.close()
        self._modules.clear()
        self._functions.clear()
        check(driver.cuDevicePrimaryCtxRelease(self._handle))

    def _attribute(self, name: str) -> int:
        wanted = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(wanted, self._handle)))


class Resettable(Protocol):
    """What `reset` frees and restores: a plan."""

    def release(self) -> None:
        """Copy all state to the host and free everything on the device."""

    def restore(self) -> None:
        """Allocate everything again and copy the state back."""


_opened: list[Device] = []
_registered: list[Resettable] = []


def open_device() -> Device:
    """The process's device, opened at the first call. Raises DeviceError if there is none."""
    if not _opened:
        _opened.append(Device())
    _opened[0].activate()
    return _opened[0]


def register(plan: Resettable) -> None:
    """Let `reset` free and restore a plan."""
    _registered.append(plan)


def unregister(plan: Resettable) -> None:
    if plan in _registered:
        _registered.remove(plan)


def reset() -> None:
    """Empty the device: weights and optimizer states are saved on the host, everything is freed, and they are restored.

    Training continues with the same bits; graphs are captured again.
    """
    for plan in _registered:
        plan.release()
    while _opened:
        _opened.pop().close()
    for plan in _registered:
        plan.restore()
