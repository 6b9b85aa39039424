"""cuDNN per algorithm, called through its C library, beside our kernels; and the time of the unfolding alone.

    python -m benchmarks.cudnn_algorithms

float32 without tf32, forward, channels first for cuDNN (its FFT and Winograd kernels have no other order), channels
last for ours. Medians of replayed CUDA graphs, interleaved. Also the time to create all descriptors of a convolution.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.clock import Clock
from benchmarks.pytorch import torch
from benchmarks.record import Row, gpu_name, make_row, write_results
from core.gpu.compilation.cuda import cuda
from core.gpu.kernel_entries import ROUNDED, TABLE
from core.gpu.ops.conv.im2col import unfold, windows_at
from core.gpu.prepared import current_stream
from core.ops.registry import KernelCase

ALGORITHMS = ("implicit_gemm", "implicit_precomp_gemm", "gemm", "direct", "fft", "fft_tiling", "winograd",
              "winograd_nonfused")  # fmt: skip
"""In the order of cudnnConvolutionFwdAlgo_t. Source: cudnn_cnn.h."""
NCHW, FLOAT, CROSS_CORRELATION, FMA_MATH = 0, 0, 1, 3


@dataclass(frozen=True)
class Shape:
    """A convolution with padding that keeps the size at stride 1. `groups`: 1, or all channels for a depthwise one."""

    name: str
    batch: int
    channels: int
    side: int
    filters: int
    kernel: int
    groups: int = 1


SHAPES = (
    Shape("standard 3x3 1x32x122x122", 1, 32, 122, 32, 3),
    Shape("depthwise 3x3 1x32x122x122", 1, 32, 122, 32, 3, 32),
    Shape("fire2 3x3 54px 16->64 b32", 32, 16, 54, 64, 3),
    Shape("fire6 3x3 27px 48->192 b32", 32, 48, 27, 192, 3),
    Shape("fire9 3x3 13px 64->256 b32", 32, 64, 13, 256, 3),
    Shape("fire9 1x1 13px 512->64 b32", 32, 512, 13, 64, 1),
    Shape("mobilenetv2 depthwise 56px 144 b32", 32, 144, 56, 144, 3, 144),
    Shape("mobilenetv2 depthwise 14px 384 b32", 32, 384, 14, 384, 3, 384),
    Shape("mobilenetv2 1x1 14px 384->64 b32", 32, 384, 14, 64, 1),
)


class Cudnn:
    """cuDNN's legacy functions on one stream."""

    def __init__(self, stream: int) -> None:
        torch.backends.cudnn.version()  # PyTorch loads the library
        self.library = ctypes.CDLL("libcudnn.so.9")
        self.handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(self.handle))
        self.call("cudnnSetStream", self.handle, ctypes.c_void_p(stream))

    def call(self, name: str, *arguments: Any) -> None:
        status = self.library[name](*arguments)
        if status:
            raise RuntimeError(f"{name}: status {status}")

    def tensor(self, *dims: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.call("cudnnCreateTensorDescriptor", ctypes.byref(made))
        self.call("cudnnSetTensor4dDescriptor", made, NCHW, FLOAT, *dims)
        return made

    def describe(self, shape: Shape) -> tuple[ctypes.c_void_p, ...]:
        """Descriptors of x, filters, convolution and y."""
        weight, convolution = ctypes.c_void_p(), ctypes.c_void_p()
        x = self.tensor(shape.batch, shape.channels, shape.side, shape.side)
        self.call("cudnnCreateFilterDescriptor", ctypes.byref(weight))
        self.call("cudnnSetFilter4dDescriptor", weight, FLOAT, NCHW, shape.filters, shape.channels // shape.groups,
                  shape.kernel, shape.kernel)  # fmt: skip
        pad = shape.kernel // 2
        self.call("cudnnCreateConvolutionDescriptor", ctypes.byref(convolution))
        self.call("cudnnSetConvolution2dDescriptor", convolution, pad, pad, 1, 1, 1, 1, CROSS_CORRELATION, FLOAT)
        self.call("cudnnSetConvolutionGroupCount", convolution, shape.groups)
        self.call("cudnnSetConvolutionMathType", convolution, FMA_MATH)
        y = self.tensor(shape.batch, shape.filters, shape.side, shape.side)
        return x, weight, convolution, y

    def forward(self, shape: Shape, algorithm: int, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor
                ) -> Callable[[], None]:  # fmt: skip
        """What runs one algorithm. Raises RuntimeError where cuDNN has none for this shape."""
        described = self.describe(shape)
        needed = ctypes.c_size_t()
        self.call("cudnnGetConvolutionForwardWorkspaceSize", self.handle, *described, algorithm, ctypes.byref(needed))
        space = torch.empty(max(needed.value, 1), dtype=torch.uint8, device="cuda")
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        x_at, weight_at, y_at, space_at = (ctypes.c_void_p(t.data_ptr()) for t in (x, weight, y, space))
        arguments = (
            self.handle, ctypes.byref(one), described[0], x_at, described[1], weight_at, described[2], algorithm,
            space_at, ctypes.c_size_t(needed.value), ctypes.byref(zero), described[3], y_at,
        )  # fmt: skip

        def run(kept: torch.Tensor = space) -> None:  # the workspace lives as long as this function
            self.call("cudnnConvolutionForward", *arguments)

        return run


def time_shape(cudnn: Cudnn, clock: Clock, shape: Shape) -> dict[str, float]:
    """Milliseconds of cuDNN's algorithms and of ours, each compared with PyTorch's result first."""
    torch.manual_seed(0)
    x = torch.randn(shape.batch, shape.channels, shape.side, shape.side, device="cuda")
    weight = torch.randn(shape.filters, shape.channels // shape.groups, shape.kernel, shape.kernel, device="cuda")
    wanted = torch.nn.functional.conv2d(x, weight, None, 1, shape.kernel // 2, 1, shape.groups)
    y = torch.empty_like(wanted)
    ways: dict[str, Callable[[], None]] = {}
    for number, name in enumerate(ALGORITHMS):
        try:
            run = cudnn.forward(shape, number, x, weight, y)
            y.fill_(float("nan"))
            torch.cuda.synchronize()
            run()
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"  {shape.name}, {name}: {error}", flush=True)
            continue
        error_size = float((y - wanted).norm() / wanted.norm())
        assert error_size < 1e-2, (shape.name, name, error_size)
        ways[f"cudnn {name}"] = run
    return clock.by_turns(ways | our_ways(shape, x, weight, wanted))


def our_ways(
    shape: Shape, x: torch.Tensor, weight: torch.Tensor, wanted: torch.Tensor
) -> dict[str, Callable[[], None]]:
    pad, side = (shape.kernel // 2,) * 4, shape.side
    attributes: dict[str, Any] = {"kernel": (shape.kernel,) * 2, "stride": (1, 1), "padding": pad, "bias": True,
                                  "init": "he_uniform"}  # fmt: skip
    op = "depthwise_conv2d" if shape.groups > 1 else "conv2d"
    if op == "conv2d":
        attributes |= {"filters": shape.filters, "groups": 1}
    case = KernelCase(op, attributes, ((side, side, shape.channels),), (side, side, shape.filters), shape.batch)
    out = torch.empty(shape.batch, side, side, shape.filters, device="cuda")
    last = weight.permute(0, 2, 3, 1).contiguous()
    arrays = {"x": cuda.as_cuda_array(x.permute(0, 2, 3, 1).contiguous()), "weight": cuda.as_cuda_array(last),
              "bias": cuda.as_cuda_array(torch.zeros(shape.filters, device="cuda")),
              "out": cuda.as_cuda_array(out)}  # fmt: skip
    ways: dict[str, Callable[[], None]] = {}
    for row in TABLE.of(op, "forward"):
        if row.tolerance is ROUNDED or row.refuses(case):
            continue
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        row.run(case, arrays)
        torch.cuda.synchronize()
        error = float((out.permute(0, 3, 1, 2) - wanted).norm() / wanted.norm())
        assert error < 1e-3, (shape.name, row.key, error)
        ways[row.algorithm] = partial(row.run, case, arrays)
    return ways


def time_unfolding(clock: Clock) -> dict[str, float]:
    """Milliseconds of the unfolding alone: (1, 3, 122, 122) by 3x3 to 27 x 14884, and (1, 32, 122, 122)."""
    found = {}
    grid, block, _ = windows_at(1, 122, 122)
    kernel: Any = cuda.jit(unfold.py_func)
    for channels in (3, 32):
        x = torch.randn(1, channels, 122, 122, device="cuda")
        wanted = torch.nn.functional.unfold(x, 3, padding=1)
        columns = torch.full((122 * 122, 9 * channels), float("nan"), device="cuda")
        ours, lines = cuda.as_cuda_array(columns), x.permute(0, 2, 3, 1).reshape(1, 122, 122 * channels)
        given = cuda.as_cuda_array(lines)

        def run(given: Any = given, ours: Any = ours, channels: int = channels) -> None:
            kernel[grid, block, current_stream()](given, ours, 122, 3 * channels, channels, (1, 1), (1, 1))

        run()
        torch.cuda.synchronize()
        same = columns.reshape(122 * 122, 9, channels).permute(2, 1, 0).reshape(wanted.shape)
        assert torch.equal(same, wanted)
        peer = partial(torch.nn.functional.unfold, x, 3, padding=1)
        times = clock.by_turns({"ours": run, "PyTorch": peer})
        found |= {f"unfold 1x{channels}x122x122 {who}": ms for who, ms in times.items()}
    return found


def time_descriptors(cudnn: Cudnn) -> float:
    """Milliseconds of creating and setting the four descriptors of a convolution, the median of 20."""
    taken = []
    for _ in range(20):
        begin = time.perf_counter()
        cudnn.describe(SHAPES[0])
        taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    clock = Clock()
    cudnn = Cudnn(clock.torch_stream.cuda_stream)
    rows = [Row("cudnn descriptors of a convolution", time_descriptors(cudnn), {}, "ms")]
    algorithms: dict[str, dict[str, float]] = {}
    for part in (*SHAPES, None):
        if part is None:
            times = time_unfolding(clock)
            for channels in (3, 32):
                name = f"unfold 1x{channels}x122x122"
                rows.append(make_row(name, times[f"{name} ours"], {"PyTorch": times[f"{name} PyTorch"]}, "ms"))
        else:
            algorithms[part.name] = times = time_shape(cudnn, clock, part)
            peers = {name: ms for name, ms in times.items() if name.startswith("cudnn")}
            best = min(ms for name, ms in times.items() if name not in peers)
            rows.append(make_row(part.name, best, peers, "ms"))
        write_results("cudnn_algorithms", rows, gpu_name(), algorithms=algorithms)


if __name__ == "__main__":
    main()
