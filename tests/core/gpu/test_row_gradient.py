"""The weight gradient by rows, run as plain Python against the reference; and on a GPU of compute capability 9.0."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from core.gpu import hopper_convolution
from core.gpu.kernels import row_gradient_warpgroup
from core.gpu.kernels.tile import Tile
from core.gpu.launch import Tensor
from tests.core.gpu.test_lowering import frame_of
from tests.helpers.compare import relative_error
from tests.helpers.emulated_gpu import Machine, Memory


class Warpgroups(Machine):
    """A machine whose warpgroups multiply, and whose copies travel: late ones until they are waited for."""

    def __init__(self, memory, late):
        super().__init__(memory)
        self.late, self.groups = late, {}
        self.copy = self.known["copy_async16"]
        self.known |= {
            "copy_async16": self._copy, "commit_copies": self._commit, "show_to_tensor_cores": lambda: None,
            "uniform": lambda v: v,
        }  # fmt: skip

    def _copy(self, *copy):
        if self.late:
            self.here.begun = [*getattr(self.here, "begun", []), copy]
        else:
            self.copy(*copy)

    def _commit(self):
        self.here.copies = [*getattr(self.here, "copies", []), getattr(self.here, "begun", [])]
        self.here.begun = []

    def wait_copies(self, pending):
        def wait():
            while len(self.here.copies) > pending:
                for copy in self.here.copies.pop(0):
                    self.copy(*copy)

        return wait

    def factor(self, low, high):
        """16 x anything of a factor whose rows run across the sum: 8 of them from block to block."""
        low, high = int(low), int(high)
        start, along, down = 16 * (low & 0x3FFF), 16 * (low >> 16 & 0x3FFF), 16 * (high & 0x3FFF)

        def read(columns):
            block = np.zeros((16, columns), np.uint32)
            for k in range(16):
                for c in range(columns // 8):
                    at = start + k // 8 * along + k % 8 * 16 + c * down
                    block[k, c * 8 : c * 8 + 8] = self.shared_bytes(at, 16).view(np.uint16)
            return (block << 16).view(np.float32).astype(np.float64)

        return read

    def make_products(self, columns, tiles, across, narrow=()):
        assert across == (True, True)

        def start(sums, a_low, a_high, a_step, b_low, b_high, every):
            def multiply():
                at, found = 0, []
                for wide, places, always in [(columns, t, True) for t in tiles] + [(8, t, False) for t in narrow]:
                    product = np.zeros((64, wide))
                    for first, steps, other in places if always or int(every) == 1 else ():
                        a = self.factor(int(a_low) + first + steps * int(a_step), a_high)(64)
                        product += a.T @ self.factor(int(b_low) + other, b_high)(wide)
                    found.append((at, wide, product))
                    at += wide // 2
                return found

            self.here.products = getattr(self.here, "products", [])
            self.here.products.append((sums, self._shared_work(multiply)))
            if self.late:
                self._finish(0)

        return start

    def _shared_work(self, work):
        """The result of `work`, done once by whichever of a warpgroup's threads asks first."""
        number = getattr(self.here, "number", 0)
        self.here.number = number + 1
        key = (self.here.block, self.here.thread[0] // 128, number)
        lock = threading.Lock()
        entry = self.groups.setdefault(key, [lock, None])

        def result():
            with entry[0]:
                if entry[1] is None:
                    entry[1] = work()
                return entry[1]

        return result

    def _finish(self, pending):
        while len(self.here.products) > pending:
            sums, result = self.here.products.pop(0)
            thread = self.here.thread[0] % 128
            lane, warp = thread % 32, thread // 32
            for at, wide, product in result():
                for i in range(wide // 8):
                    for half in range(2):
                        row, column = warp * 16 + lane // 4 + half * 8, i * 8 + lane % 4 * 2
                        sums[at + i * 4 + half * 2 : at + i * 4 + half * 2 + 2] += product[row, column : column + 2]

    def make_wait(self, count, pending):
        return lambda sums: self._finish(pending)


def to_bf16(values):
    """The nearest bf16 below in size, as float64 and as the 16 bits of each."""
    bits = np.asarray(values, np.float32).view(np.uint32) >> 16
    return (bits << 16).view(np.float32).astype(np.float64), bits.astype(np.uint16)


def gradients(x, dy):
    """(dweight OHWI, dbias) in float64."""
    (_, h, w, _), wide = x.shape, np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [[np.einsum("nyxf,nyxc->fc", dy, wide[:, ky : ky + h, kx : kx + w]) for kx in range(3)] for ky in range(3)]
    return np.transpose(taps, (2, 0, 1, 3)), dy.sum((0, 1, 2))


def problem(batch, height, width, channels, filters, before):
    """bf16 x and dy as float64 and as bits; dy's pixels have `before` channels of something else before and after."""
    draw = np.random.default_rng(height * 100 + width)
    x, x_bits = to_bf16(draw.normal(size=(batch, height, width, channels)))
    whole, dy_bits = to_bf16(draw.normal(size=(batch, height, width, filters + 2 * before)))
    return x, x_bits, whole[..., before : before + filters], dy_bits


SHAPES = (
    (1, 19, 7, 16, 64, Tile(2, 64, 1, 4, 12, 1, 1)),
    (3, 3, 9, 16, 64, Tile(3, 64, 2, 3, 12, 1, 2)),
    (2, 4, 11, 32, 128, Tile(3, 128, 1, 4, 12, 1, 1)),
    (1, 2, 15, 24, 128, Tile(1, 64, 1, 3, 12, 1, 1)),
    (9, 2, 1, 8, 64, Tile(4, 64, 4, 3, 12, 1, 1)),
)
"""Photos, height, width, channels, filters and the tile."""


def row_launch(x, dy, batch, height, width, channels, filters, tile, processors=132, lines=False):
    """The launch on x and dy at these addresses, as `problem` makes them with 8 channels before, and its splits."""
    source = Tensor(x, height, width, channels, channels, 2)
    gradient = Tensor(dy + 16, height, width, filters, filters + 16, 2)
    return hopper_convolution.row_gradient("", batch, source, gradient, tile, processors, lines)


@pytest.mark.parametrize("late", [True, False], ids=["late copies", "late products"])
@pytest.mark.parametrize("lines", [False, True], ids=["pixels", "lines"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_run_as_plain_python_gives_the_references_gradients(shape, lines, late, monkeypatch):
    batch, height, width, channels, filters, tile = shape
    x, x_bits, dy, dy_bits = problem(batch, height, width, channels, filters, 8)
    memory = Memory(1 << 22)
    machine = Warpgroups(memory, late)
    monkeypatch.setattr(hopper_convolution, "FILLED", 99)
    monkeypatch.setattr(row_gradient_warpgroup, "make_products", machine.make_products)
    monkeypatch.setattr(row_gradient_warpgroup, "make_wait", machine.make_wait)
    monkeypatch.setattr(row_gradient_warpgroup, "WAIT_COPIES", [machine.wait_copies(n) for n in range(6)])
    at = [memory.reserve(x_bits.nbytes), memory.reserve(dy_bits.nbytes)]
    memory.put(at[0], x_bits)
    memory.put(at[1], dy_bits)
    launch, splits = row_launch(*at, batch, height, width, channels, filters, tile, 2, lines)
    size = launch.values[-1]
    partial = memory.reserve(4 * size * splits)
    machine.run(replace(launch, values=(*launch.values[:2], partial, *launch.values[3:])))
    got = memory.get(partial, size * splits, np.float32).reshape(splits, size).astype(np.float64).sum(0)
    weight, bias = gradients(x, dy)
    assert relative_error(got, np.concatenate([weight.reshape(-1), bias])) < 1e-6


ON_A_GPU = (
    (3, 27, 27, 64, 256, Tile(3, 64, 1, 6, 12, 1, 1)),
    (5, 27, 27, 48, 192, Tile(3, 64, 2, 6, 12, 1, 1)),
    (2, 55, 54, 16, 64, Tile(2, 64, 1, 5, 12, 1, 2)),
    (9, 13, 13, 64, 256, Tile(13, 64, 1, 6, 12, 1, 1)),
    (2, 31, 40, 32, 128, Tile(2, 128, 1, 5, 12, 1, 1)),
    (200, 2, 1, 8, 64, Tile(4, 64, 4, 3, 12, 1, 1)),
    (1, 7, 9, 80, 64, Tile(3, 64, 1, 4, 12, 1, 1)),
)


@pytest.mark.gpu
def test_the_kernel_writes_the_references_gradients_and_the_same_bits_twice(monkeypatch):
    from core.gpu.device import open_device
    from core.gpu.memory import Block

    device = open_device()
    if device.capability != (9, 0):
        pytest.skip("a GPU of compute capability 9.0 alone runs it")
    monkeypatch.setattr(hopper_convolution, "FILLED", 99)
    empty = [row_launch(0, 0, *shape)[0] for shape in ON_A_GPU]
    functions, stream = device.load([launch.recipe for launch in empty]), device.new_stream()
    for shape in ON_A_GPU:
        x, x_bits, dy, dy_bits = problem(*shape[:5], 8)
        blocks = Block(x_bits.nbytes), Block(dy_bits.nbytes)
        for block, bits in zip(blocks, (x_bits, dy_bits), strict=True):
            block.put(bits)
        launch, splits = row_launch(blocks[0].address, blocks[1].address, *shape)
        size, results = launch.values[-1], []
        partial = Block(4 * size * splits)
        values = (*launch.values[:2], partial.address, *launch.values[3:])
        for _ in range(2):
            partial.fill(0xFF)
            functions[launch.recipe].launch(launch.grid, launch.block, launch.shared, stream, values)
            device.synchronize()
            results.append(partial.get(size * splits, np.float32))
        for block in (*blocks, partial):
            block.close()
        assert np.array_equal(*[r.view(np.uint32) for r in results]), shape
        weight, bias = gradients(x, dy)
        got = results[0].reshape(splits, size).astype(np.float64).sum(0)
        assert relative_error(got, np.concatenate([weight.reshape(-1), bias])) < 1e-5, shape


@pytest.mark.parametrize(("batch", "count"), [(256, 8), (128, 8), (32, 0)])
def test_a_network_takes_it_at_large_batches(batch, count):
    launches = frame_of("squeezenet1_0", batch=batch, size=224, hopper=True).launches
    assert sum(launch.recipe.factory == "make_row_gradient" for launch in launches) == count
