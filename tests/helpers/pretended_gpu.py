"""A CUDA driver that is not there: device memory is host memory, launches are counted and do nothing."""

import ctypes

import numpy as np

from core.gpu.compilation.cuda import driver as real

DONE = real.CUresult.CUDA_SUCCESS
ATTRIBUTES = {"CAPABILITY_MAJOR": 9, "CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132, "SHARED_MEMORY": 227 << 10,
              "MEMORY_CLOCK_RATE": 3_200_000, "BUS_WIDTH": 6016, "CLOCK_RATE": 1_830_000}  # fmt: skip
MODULES = ("driver.device", "driver.memory", "graph_capture", "plan", "staging", "timing")


class PretendedDriver:
    """Answers what `core.gpu` asks of the driver; `blocks` are the arrays allocated and not yet freed.

    Copies from ordinary memory and fills count as under way until the default stream was waited for: no kernel may be
    queued before, since our streams do not wait for that one.
    """

    CUresult, CUdevice_attribute = real.CUresult, real.CUdevice_attribute
    CUfunction_attribute, CUstream_flags = real.CUfunction_attribute, real.CUstream_flags
    CUlaunchConfig, CUlaunchAttribute = real.CUlaunchConfig, real.CUlaunchAttribute
    CUlaunchAttributeID = real.CUlaunchAttributeID
    CUevent_flags, CUstreamCaptureMode, CUstream = real.CUevent_flags, real.CUstreamCaptureMode, real.CUstream

    def __init__(self, memory):
        self.memory, self.blocks, self.launches, self.replays = memory, {}, 0, 0
        self.under_way = False

    def cuDeviceGetAttribute(self, attribute, handle):  # noqa: N802
        return DONE, next((v for k, v in ATTRIBUTES.items() if k in attribute.name), 1000)

    def cuDeviceGetName(self, length, handle):  # noqa: N802
        return DONE, b"Pretended GPU\0"

    def cuDriverGetVersion(self):  # noqa: N802
        return DONE, 13000

    def cuMemGetInfo(self):  # noqa: N802
        return DONE, self.memory - sum(b.nbytes for b in self.blocks.values()), self.memory

    def cuMemAlloc(self, size):  # noqa: N802
        block = np.full(size, 255, np.uint8)
        self.blocks[block.ctypes.data] = block
        return DONE, block.ctypes.data

    def cuMemHostAlloc(self, size, flags):  # noqa: N802
        done, address = self.cuMemAlloc(size)
        self.blocks[address][:] = 0  # the results of steps, which no kernel writes
        return done, address

    def cuMemFree(self, pointer):  # noqa: N802
        del self.blocks[int(pointer)]
        return (DONE,)

    cuMemFreeHost = cuMemFree  # noqa: N815

    def cuMemsetD8(self, pointer, byte, size):  # noqa: N802
        ctypes.memset(int(pointer), byte, size)
        self.under_way = True
        return (DONE,)

    def _copy(self, target, source, size, stream=None):
        ctypes.memmove(int(target), int(source), size)
        return (DONE,)

    cuMemcpyDtoH = cuMemcpyHtoDAsync = _copy  # noqa: N815

    def cuMemcpyHtoD(self, target, source, size):  # noqa: N802
        self.under_way = True
        return self._copy(target, source, size)

    def cuStreamSynchronize(self, stream):  # noqa: N802
        self.under_way &= int(stream) != 0
        return (DONE,)

    def cuLaunchKernel(self, *arguments):  # noqa: N802
        assert not self.under_way, "a kernel could read what has not landed"
        values, kinds = arguments[9]
        assert len(values) == len(kinds)
        self.launches += 1
        return (DONE,)

    def cuLaunchKernelEx(self, configuration, function, arguments, extra):  # noqa: N802
        return self.cuLaunchKernel(*(None,) * 9, arguments)

    def cuGraphLaunch(self, graph, stream):  # noqa: N802
        assert not self.under_way, "a kernel could read what has not landed"
        self.replays += 1
        return (DONE,)

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: (DONE, 1) if name in RETURNING else (DONE,)


RETURNING = {
    "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuEventCreate", "cuStreamEndCapture",
    "cuGraphInstantiate", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute", "cuEventElapsedTime",
}  # fmt: skip


def pretend(monkeypatch, memory=8 << 30):
    """Put a pretended driver under `core.gpu` for one test; kernels are neither compiled nor run."""
    import importlib

    driver = PretendedDriver(memory)
    for name in MODULES:
        monkeypatch.setattr(importlib.import_module(f"core.gpu.{name}"), "driver", driver)
    monkeypatch.setattr("core.plan.has_driver", lambda: True)
    device = importlib.import_module("core.gpu.driver.device")
    monkeypatch.setattr(device, "_opened", [])
    monkeypatch.setattr(device, "_registered", [])
    monkeypatch.setattr(device, "compile_recipes", lambda recipes, capability: dict.fromkeys(recipes, ("", "")))
    return driver
