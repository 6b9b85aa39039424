"""All CUDA kernels, lowest rung first: what the tests, the laboratory, the benchmarks and `choose` read.

Roles of the arrays: `x` (`x2`, `x3` ...), `labels`, parameters by role, `dy` and what it becomes: `dx`
(`dx2` ...), `dweight`, `dbias`; `out` is the result, and an input of the activations' gradients. `mode`
(`core.ops.contract.Mode`) is read by dropout and batch norm. Arrays may lie on the host or the device.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from core.gpu.driver.hosted import Launcher, hosted
from core.gpu.kernels.ladder import (
    matmul,
    matmul_narrow,
    matmul_tensor_core,
    matmul_warp,
)
from core.gpu.kernels.ladder.cases import refuse_fused
from core.gpu.ops.conv import im2col, shared
from core.gpu.ops.conv import naive as conv
from core.gpu.ops.dense import naive as dense
from core.gpu.ops.dense import warp
from core.gpu.ops.depthwise import naive as depthwise
from core.gpu.ops.depthwise import tiled_weight_gradient
from core.gpu.ops.elementwise import naive as elementwise
from core.gpu.ops.elementwise import naive_dropout as dropout
from core.gpu.ops.loss import naive as softmax
from core.gpu.ops.norm import naive as batch_norm
from core.gpu.ops.pool import naive as pool
from core.gpu.ops.update import naive as update
from core.gpu.rows import cublas, fast_rows
from core.ops.registry import Kernel, Refusal, Registry, Tolerance

EXACT: Final = Tolerance(1e-5)
LONG_SUMS: Final = Tolerance(1e-4)
"""Sums over all pixels of a batch, in float32: the naive rung adds them one after the other."""

BF16: Final = Tolerance(2e-2)


def row(
    op: str, direction: str, algorithm: str, launch: Launcher, writes: str, idea: str,
    refuses: Refusal = refuse_fused, tolerance: Tolerance = EXACT,
) -> Kernel:
    """One row; `writes` names the results, separated by blanks."""
    return Kernel(op, direction, "cuda", algorithm, hosted(launch, *writes.split()), idea, tolerance, refuses)


CONVOLUTION: Final = (
    row("conv2d", "forward", "naive", conv.launch_naive_forward, "out",
        "one thread per output, straight from global memory"),
    row("conv2d", "forward", "shared", shared.launch_shared_forward, "out",
        "8 x 8 pixels of 32 filters a block; input tile and filters in shared memory", shared.refuse),
    row("conv2d", "forward", "im2col", im2col.launch_im2col_forward, "out",
        "windows unfolded into a matrix, then a tiled product", im2col.refuse),
    row("conv2d", "backward_input", "naive", conv.launch_naive_backward_input, "dx",
        "one thread per input gathers from every window that saw it"),
    row("conv2d", "backward_input", "shared", shared.launch_shared_backward_input, "dx",
        "the forward walk over dy with the filters turned around", shared.refuse),
    row("conv2d", "backward_input", "im2col", im2col.launch_im2col_backward_input, "dx",
        "tiled product, then windows folded back", im2col.refuse),
    row("conv2d", "backward_weight", "naive", conv.launch_naive_backward_weight, "dweight dbias",
        "one thread per weight walks all pixels of all photos", refuse_fused, LONG_SUMS),
    row("conv2d", "backward_weight", "shared", shared.launch_shared_backward_weight, "dweight dbias",
        "16 x 16 tiles of pixels by channels, slices of the pixels added in order", shared.refuse, LONG_SUMS),
    row("conv2d", "backward_weight", "im2col", im2col.launch_im2col_backward_weight, "dweight dbias",
        "dy transposed times the unfolded windows", im2col.refuse, LONG_SUMS),
)  # fmt: skip

DEPTHWISE: Final = (
    row("depthwise_conv2d", "forward", "naive", depthwise.launch_naive_forward, "out", "one thread per output"),
    row("depthwise_conv2d", "forward", "tiled", depthwise.launch_tiled_forward, "out",
        "a strip of four channels walked downwards, three rows of sums in registers", depthwise.refuse_tiled),
    row("depthwise_conv2d", "backward_input", "naive", depthwise.launch_naive_backward_input, "dx",
        "one thread per input gathers from every window that saw it"),
    row("depthwise_conv2d", "backward_input", "tiled", depthwise.launch_tiled_backward_input, "dx",
        "the same walk over dy with the filters back to front", depthwise.refuse_tiled),
    row("depthwise_conv2d", "backward_weight", "naive", depthwise.launch_naive_backward_weight, "dweight dbias",
        "one thread per weight walks all pixels", refuse_fused, LONG_SUMS),
    row("depthwise_conv2d", "backward_weight", "shared", depthwise.launch_shared_backward_weight, "dweight dbias",
        "slices of the pixels meet in shared memory", refuse_fused, LONG_SUMS),
    row("depthwise_conv2d", "backward_weight", "tiled", tiled_weight_gradient.launch, "dweight dbias",
        "strips of four channels walked downwards, nine sums in registers; blocks' parts added in order",
        depthwise.refuse_tiled, LONG_SUMS),
)  # fmt: skip

DENSE: Final = (
    row("dense", "forward", "naive", dense.launch_naive_forward, "out", "one thread per output"),
    row("dense", "forward", "shared", dense.launch_shared_forward, "out", "tiled product"),
    row("dense", "backward_input", "naive", dense.launch_naive_backward_input, "dx", "one thread per input"),
    row("dense", "backward_input", "shared", dense.launch_shared_backward_input, "dx", "tiled product"),
    row("dense", "backward_weight", "naive", dense.launch_naive_backward_weight, "dweight dbias",
        "one thread per weight", refuse_fused, LONG_SUMS),
    row("dense", "backward_weight", "shared", dense.launch_shared_backward_weight, "dweight dbias",
        "tiled product of the transposed dy", refuse_fused, LONG_SUMS),
    row("dense", "forward", "warp_tiled", warp.launch_forward, "out",
        "the weight turned, then a warp's own tiles", warp.refuse),
    row("dense", "backward_input", "warp_tiled", warp.launch_backward_input, "dx",
        "a warp's own tiles, 8 x 16 sums a thread", warp.refuse),
    row("dense", "backward_weight", "warp_tiled", warp.launch_backward_weight, "dweight dbias",
        "dy turned, then a warp's own tiles", warp.refuse_weight, LONG_SUMS),
)  # fmt: skip

POOLS: Final = (
    row("max_pool", "forward", "naive", pool.launch_naive_max_forward, "out", "one thread per output"),
    row("max_pool", "forward", "vectorised", pool.launch_vectorised_max_forward, "out",
        "four channels a thread, 16-byte accesses", pool.refuse_odd_channels),
    row("max_pool", "backward_input", "naive", pool.launch_naive_max_backward, "dx",
        "one thread per input asks its windows whether it won"),
    row("avg_pool", "forward", "naive", pool.launch_naive_avg_forward, "out", "one thread per output"),
    row("avg_pool", "backward_input", "naive", pool.launch_naive_avg_backward, "dx", "one thread per input"),
    row("global_avg_pool", "forward", "naive", pool.launch_naive_global_forward, "out",
        "one thread per channel walks the photo"),
    row("global_avg_pool", "forward", "shared", pool.launch_shared_global_forward, "out",
        "eight lines of threads a photo meet in shared memory"),
    row("global_avg_pool", "backward_input", "naive", pool.launch_naive_global_backward, "dx", "one thread per input"),
)  # fmt: skip

ELEMENTWISE: Final = tuple(
    row(op, direction, algorithm, launch(kernel, each), writes, idea)
    for op, direction, writes, launch, kernels in (
        ("relu", "forward", "out", elementwise.launch_forward,
         (elementwise.naive_relu, elementwise.vectorised_relu)),
        ("relu", "backward_input", "dx", elementwise.launch_backward,
         (elementwise.naive_relu_slope, elementwise.vectorised_relu_slope)),
        ("relu6", "forward", "out", elementwise.launch_forward,
         (elementwise.naive_relu6, elementwise.vectorised_relu6)),
        ("relu6", "backward_input", "dx", elementwise.launch_backward,
         (elementwise.naive_relu6_slope, elementwise.vectorised_relu6_slope)),
        ("sigmoid", "forward", "out", elementwise.launch_forward,
         (elementwise.naive_sigmoid, elementwise.vectorised_sigmoid)),
        ("sigmoid", "backward_input", "dx", elementwise.launch_backward,
         (elementwise.naive_sigmoid_slope, elementwise.vectorised_sigmoid_slope)),
        ("add", "forward", "out", elementwise.launch_add,
         (elementwise.naive_add, elementwise.vectorised_add)),
    )
    for algorithm, kernel, each, idea in (
        ("naive", kernels[0], 1, "one thread per element"),
        ("vectorised", kernels[1], elementwise.ELEMENTS, "four elements a thread, 16-byte accesses"),
    )
)  # fmt: skip

JOINS: Final = (
    row("add", "backward_input", "naive", elementwise.launch_add_backward, "dx dx2", "two copies"),
    row("concat", "forward", "naive", elementwise.launch_concat, "out", "one copy per input"),
    row("concat", "backward_input", "naive", elementwise.launch_concat_backward, "dx dx2 dx3 dx4",
        "one copy per input"),
    row("dropout", "forward", "naive", dropout.launch_naive("x", "out"), "out",
        "one thread per element computes its own random bits"),
    row("dropout", "backward_input", "naive", dropout.launch_naive("dy", "dx"), "dx",
        "the same bits again: no mask is stored"),
)  # fmt: skip

SOFTMAX: Final = (
    row("softmax", "forward", "naive", softmax.launch_naive_forward, "out", "one thread per row"),
    row("softmax", "forward", "shared", softmax.launch_shared_forward, "out", "one warp per row"),
    row("softmax", "backward_input", "naive", softmax.launch_naive_backward, "dx", "one thread per row"),
    row("softmax", "backward_input", "shared", softmax.launch_shared_backward, "dx", "one warp per row"),
    row("softmax_cross_entropy", "forward", "naive", softmax.launch_naive_loss_forward, "out", "one thread per photo"),
    row("softmax_cross_entropy", "forward", "shared", softmax.launch_shared_loss_forward, "out", "one warp per photo"),
    row("softmax_cross_entropy", "backward_input", "naive", softmax.launch_naive_loss_backward, "dx",
        "one thread per photo"),
)  # fmt: skip

BATCH_NORM: Final = (
    row("batch_norm", "forward", "naive", batch_norm.launch_naive_forward, "out running_mean running_var",
        "one thread per channel walks all pixels", refuse_fused, LONG_SUMS),
    row("batch_norm", "forward", "shared", batch_norm.launch_shared_forward, "out running_mean running_var",
        "slices of the pixels meet in shared memory", refuse_fused, LONG_SUMS),
    row("batch_norm", "backward_input", "naive", batch_norm.launch_backward_input(False), "dx",
        "one thread per channel for the sums, one per element for dx", refuse_fused, LONG_SUMS),
    row("batch_norm", "backward_input", "shared", batch_norm.launch_backward_input(True), "dx",
        "sums in slices, one thread per element for dx", refuse_fused, LONG_SUMS),
    row("batch_norm", "backward_weight", "naive", batch_norm.launch_backward_weight(False), "dweight dbias",
        "one thread per channel", refuse_fused, LONG_SUMS),
    row("batch_norm", "backward_weight", "shared", batch_norm.launch_backward_weight(True), "dweight dbias",
        "sums in slices", refuse_fused, LONG_SUMS),
)  # fmt: skip

UPDATES: Final = tuple(
    row(op, "update", "naive", update.launch_naive, "weights momentum first second average", "one thread per weight")
    for op in ("sgd", "adam", "adamw")
)

PRODUCT: Final = (
    row("matmul", "forward", "naive", matmul.launch_naive, "out", "one thread per element"),
    row("matmul", "forward", "shared", matmul.launch_tiles(matmul.shared, matmul.SIDE), "out",
        "16 x 16 tiles in shared memory"),
    row("matmul", "forward", "tiled", matmul.launch_tiles(matmul.tiled, matmul.TILE), "out",
        "128 x 128 a block, 8 x 8 sums a thread in registers"),
    row("matmul", "forward", "tiled_vectorised", matmul.launch_flat(matmul.tiled_vectorised), "out",
        "the same with 16-byte accesses", matmul.refuse_unaligned),
    row("matmul", "forward", "double_buffered", matmul.launch_flat(matmul.double_buffered), "out",
        "the next tile travels while this one is multiplied", matmul.refuse_unaligned),
    row("matmul", "forward", "warp_tiled", matmul_warp.launch, "out",
        "8 x 16 sums a thread, every warp a tile of its own without bank conflicts", matmul.refuse_unaligned),
    row("matmul", "forward", "narrow", matmul_narrow.launch, "out",
        "a depth of at most 32 asked for at once, 4 x 4 sums a thread", matmul_narrow.refuse),
)  # fmt: skip

FAST: Final = (
    row("matmul", "forward", "tensor_core", matmul_tensor_core.launch, "out",
        "bf16 through cp.async and mma.sync, float32 sums", matmul_tensor_core.refuse, BF16),
)  # fmt: skip


def _sm90_rows() -> tuple[Kernel, ...]:
    """Products that need compute capability 9.0, where that package is installed."""
    if not find_spec("core.gpu.sm90"):
        return ()
    from core.gpu.sm90 import matmul_tma, matmul_wgmma

    return (
        row("matmul", "forward", "wgmma", matmul_wgmma.launch, "out",
            "four warps multiply from swizzled shared memory", matmul_wgmma.refuse, BF16),
        row("matmul", "forward", "copy_engine", matmul_tma.launch, "out",
            "one thread copies by TMA, eight warps only multiply", matmul_wgmma.refuse, BF16),
    )  # fmt: skip


VENDORS: Final = (
    row("matmul", "forward", "cublas", cublas.launch_product, "out", "the vendor's library, float32", cublas.refuse),
    row("dense", "forward", "cublas", cublas.launch_dense_forward, "out",
        "the vendor's product, our bias", cublas.refuse),
    row("dense", "backward_input", "cublas", cublas.launch_dense_backward_input, "dx",
        "the vendor's product", cublas.refuse),
    row("dense", "backward_weight", "cublas", cublas.launch_dense_backward_weight, "dweight dbias",
        "the vendor's product of the transposed dy, our sums of the bias", cublas.refuse, LONG_SUMS),
)  # fmt: skip
"""Yardsticks: never chosen, but timed and checked beside ours."""

TEACHING: Final = (
    *CONVOLUTION, *DEPTHWISE, *DENSE, *POOLS, *ELEMENTWISE, *JOINS, *SOFTMAX, *BATCH_NORM, *UPDATES, *PRODUCT,
)  # fmt: skip

TABLE: Final = Registry((*TEACHING, *FAST, *_sm90_rows(), *VENDORS, *fast_rows.ROWS))
