"""The register tile of all products, written as LLVM IR.

For rows m < MR and columns n < NV * lanes (float32, strides in bytes):

    C[m, n] = end( start + sum over ky < KH, kx < KW, k < KL of
                   A[m * sam + ky * say + kx * sax + k * sak] * B[ky * sby + kx * sbx + k * sbk + n] )

In the depthwise tile (0 vectors in its shape) A is a vector too: ``A[m, k, n] * B[k, n]``.

One tile serves the forward convolution (A image, B packed filter), the input gradient (A output
gradient, B packed rotated filter) and the weight gradient (A image, B output gradient), because the
strides come from the record. The multiply-add block is inline assembly where the processor is
known: LLVM otherwise hoists all broadcasts and spills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types

from core.cpu.instruction_set import InstructionSet
from core.cpu.memory import make_intrinsic
from core.cpu.vectors import F32, I64, Vectors

ACCUMULATE: Final = 1
"""Start from C instead of zero."""
BIAS: Final = 2
"""Start from the row of biases X."""
RELU: Final = 4
"""End with max(0, .)."""
CAP: Final = 8
"""End with min(6, .), and a mask is open only below 6."""
MASK: Final = 16
"""End with zero where the activation's output at `mask` is not above 0 (backward of ReLU)."""

END_FLAGS: Final = (0, RELU, RELU | CAP)
MASK_FLAGS: Final = (0, MASK, MASK | CAP)
"""Flags by the number of a clip (`core.cpu.activation.CLIP`): of the clip, and of its mask in backward."""

WHOLE: Final = 1024
"""Added to the shape of a tile that stores all its lanes."""

# Fields of a record that the tile reads itself (index of the int64).
SAM, SAY, SAX, SAK, SBY, SBX, SBK, KW, KL, LDC, LDM, FLAGS = range(1, 13)

BYTES = ir.IntType(8).as_pointer()
SIGNATURE = ir.FunctionType(ir.VoidType(), [BYTES] + [I64] * 7)


def make_tile(isa: InstructionSet) -> Any:
    """Return ``tile(tiles, shape, record, a, b, c, x, mask, kh, lanes)`` for kernels; shape is ``vectors * 64 + rows``.

    `tiles` is the address of the table of tiles (`core.cpu.tile_code.tile_table`). All but `record` (address of the
    int64 fields above) may differ from tile to tile: addresses of A, B, C, bias row and mask, the number of ky, and the
    valid floats of the last vector.
    """

    def emit(builder: ir.IRBuilder, arguments: Sequence[Any]) -> None:
        table = builder.inttoptr(arguments[0], I64.as_pointer())
        address = builder.load(builder.gep(table, [_which(builder, isa, arguments[1], arguments[9])]))
        function = builder.inttoptr(address, SIGNATURE.as_pointer())
        builder.call(function, [builder.inttoptr(arguments[2], BYTES), *arguments[3:]])

    return make_intrinsic(types.void, [types.int64] * 10, emit)


def tile_shapes(isa: InstructionSet) -> Iterator[tuple[int, int, bool]]:
    """Yield every tile of an instruction set: vectors, rows, and whether it stores all lanes."""
    for vectors, heights in isa.tile_heights.items():
        for rows in heights:
            yield vectors, rows, False
            if not isa.masks:
                yield vectors, rows, True


def add_tile(module: ir.Module, isa: InstructionSet, name: str, vectors: int, rows: int, whole: bool) -> None:
    function = ir.Function(module, SIGNATURE, name)
    function.attributes.add("nounwind")
    _Tile(function, isa, vectors, rows, whole).emit()


def _which(builder: ir.IRBuilder, isa: InstructionSet, shape: Any, lanes: Any) -> Any:
    """Return the shape, plus `WHOLE` if all lanes are valid and the instruction set has such tiles."""
    if isa.masks:
        return shape
    whole = builder.icmp_signed("==", lanes, ir.Constant(I64, isa.vector_width))
    return builder.add(shape, builder.select(whole, ir.Constant(I64, WHOLE), ir.Constant(I64, 0)))


class _Tile:
    def __init__(self, function: ir.Function, isa: InstructionSet, vectors: int, rows: int, whole: bool) -> None:
        self.function, self.isa, self.rows, self.whole = function, isa, rows, whole
        self.depthwise, self.vectors = vectors == 0, max(vectors, 1)
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.v = Vectors(self.b, isa)
        self.vector, self.zero = self.v.floats, self.v.constant(0.0)
        self.cells = [(m, v) for m in range(rows) for v in range(self.vectors)]

    def emit(self) -> None:
        record, a, b, self.c, self.x, self.mask, kh, lanes = self.function.args
        load = self._field_loader(record)
        self.flags, self.ldc, self.ldm = load(FLAGS), load(LDC), load(LDM)
        self.row_offset = [self.b.mul(self._i64(m), load(SAM)) for m in range(self.rows)]
        self.open_lanes = self.v.first(lanes)
        start = self._start()
        strides = [(load(SAK), load(SBK)), (load(SAX), load(SBX)), (load(SAY), load(SBY))]
        pointers = self.b.inttoptr(a, BYTES), self.b.inttoptr(b, BYTES)
        total = self._loop([load(KL), load(KW), kh], strides, pointers, start)
        self._finish(total)
        self.b.ret_void()

    def _field_loader(self, record: Any) -> Callable[[int], Any]:
        words = self.b.bitcast(record, I64.as_pointer())
        return lambda index: self.b.load(self.b.gep(words, [ir.Constant(I64, index)]))

    def _i64(self, value: int) -> ir.Constant:
        return ir.Constant(I64, value)

    def _at(self, base: Any, row: int, stride: Any, v: int) -> Any:
        offset = self.b.add(self.b.mul(self._i64(row), stride), self._i64(4 * v * self.isa.vector_width))
        return self.b.add(base, offset)

    def _mask(self, v: int) -> Any:
        """Return the valid lanes of vector v, None for all."""
        return self.open_lanes if not self.whole and v == self.vectors - 1 else None

    def _load(self, pointer: Any) -> Any:
        value = self.b.load(pointer)
        value.align = 4
        return value

    def _has(self, flag: int) -> Any:
        return self.b.icmp_signed("!=", self.b.and_(self.flags, self._i64(flag)), self._i64(0))

    def _start(self) -> list[Any]:
        """Emit the initial accumulators: C, the bias row, or zero."""
        from_c, not_c, from_x, joined = (self.function.append_basic_block(n) for n in ("c", "not_c", "x", "start"))
        self.b.cbranch(self._has(ACCUMULATE), from_c, not_c)
        self.b.position_at_end(from_c)
        old = [self.v.load(self._at(self.c, m, self.ldc, v), self._mask(v)) for m, v in self.cells]
        self.b.branch(joined)
        self.b.position_at_end(not_c)
        self.b.cbranch(self._has(BIAS), from_x, joined)
        self.b.position_at_end(from_x)
        bias = [self.v.load(self._at(self.x, 0, self._i64(0), v), self._mask(v)) for v in range(self.vectors)]
        self.b.branch(joined)
        self.b.position_at_end(joined)
        start = []
        for index, (_, v) in enumerate(self.cells):
            phi = self.b.phi(self.vector)
            phi.add_incoming(old[index], from_c)
            phi.add_incoming(self.zero, not_c)
            phi.add_incoming(bias[v], from_x)
            start.append(phi)
        return start

    def _loop(self, counts: list[Any], strides: list[Any], pointers: Any, sums: list[Any]) -> list[Any]:
        """Emit nested loops, the last count outermost; each runs at least once."""
        if not counts:
            return self._multiply_add(pointers[0], pointers[1], sums)
        before, body = self.b.block, self.function.append_basic_block("loop")
        self.b.branch(body)
        self.b.position_at_end(body)
        left, pa, pb = self.b.phi(I64), self.b.phi(BYTES), self.b.phi(BYTES)
        phis = [self.b.phi(self.vector) for _ in sums]
        starts = [counts[-1], *pointers, *sums]
        for phi, value in zip([left, pa, pb, *phis], starts, strict=True):
            phi.add_incoming(value, before)
        new = self._loop(counts[:-1], strides[:-1], (pa, pb), phis)
        step_a, step_b = strides[-1]
        fewer = self.b.sub(left, self._i64(1))
        nexts = [fewer, self.b.gep(pa, [step_a]), self.b.gep(pb, [step_b]), *new]
        for phi, value in zip([left, pa, pb, *phis], nexts, strict=True):
            phi.add_incoming(value, self.b.block)
        after = self.function.append_basic_block("after")
        self.b.cbranch(self.b.icmp_signed(">", fewer, self._i64(0)), body, after)
        self.b.position_at_end(after)
        return new

    def _multiply_add(self, pa: Any, pb: Any, sums: list[Any]) -> list[Any]:
        """Emit one step of k: every row's float times every filter vector."""
        step = 4 * self.isa.vector_width
        filters = [
            self._load(self.b.bitcast(self.b.gep(pb, [self._i64(step * v)]), self.vector.as_pointer()))
            for v in range(self.vectors)
        ]
        new = []
        for m in range(self.rows):
            if self.isa.assembly and (self.depthwise or (self.isa.name == "avx512" and self.vectors == 1)):
                new.append(self._fma_from_memory(pa, m, filters[0], sums[m]))
            elif self.depthwise:
                seen = self._load(self.b.bitcast(self.b.gep(pa, [self.row_offset[m]]), self.vector.as_pointer()))
                new.append(self._fma(seen, filters[0], sums[m]))
            else:
                value = self._broadcast(pa, m)
                new += [self._fma(value, filters[v], sums[m * self.vectors + v]) for v in range(self.vectors)]
        return new

    def _address_form(self, m: int) -> tuple[str, list[Any]]:
        """Return row m as base + odd multiple of the row stride x 1, 2, 4 or 8: few registers for many rows."""
        odd, scale = m, 1
        while odd % 2 == 0 and scale < 8 and m:
            odd, scale = odd // 2, scale * 2
        return ("($1)", []) if m == 0 else (f"($1,$2,{scale})", [self.row_offset[odd]])

    def _broadcast(self, pa: Any, m: int) -> Any:
        if not self.isa.assembly:
            scalar = self.b.load(self.b.bitcast(self.b.gep(pa, [self.row_offset[m]]), F32.as_pointer()))
            scalar.align = 4
            return self.v.splat(scalar)
        form, index = self._address_form(m)
        kind = ir.FunctionType(self.vector, [BYTES, *[I64] * len(index)])
        places = f"={self._register()},r" + ",r" * len(index)
        code = ir.InlineAsm(kind, f"vbroadcastss {form}, $0", places, side_effect=True)
        return self.b.call(code, [pa, *index])

    def _fma(self, a: Any, b: Any, c: Any) -> Any:
        if self.depthwise or not self.isa.assembly:
            return self.v.multiply_add(a, b, c)
        kind, r = ir.FunctionType(self.vector, [self.vector] * 3), self._register()
        code = ir.InlineAsm(kind, "vfmadd231ps $2, $1, $0", f"={r},{r},{r},0", side_effect=True)
        return self.b.call(code, [a, b, c])

    def _fma_from_memory(self, pa: Any, m: int, b: Any, c: Any) -> Any:
        """Emit a multiply-add with a vector of A (depthwise) or a float that AVX-512 broadcasts, read from memory."""
        form, index = self._address_form(m)
        kind = ir.FunctionType(self.vector, [BYTES, *[I64] * len(index), self.vector, self.vector])
        spread = "" if self.depthwise else f"{{1to{self.isa.vector_width}}}"
        code = f"vfmadd231ps {form}{spread}, ${2 + len(index)}, $0"
        places = f"={self._register()},r," + "r," * len(index) + f"{self._register()},0"
        return self.b.call(ir.InlineAsm(kind, code, places, side_effect=True), [pa, *index, b, c])

    def _register(self) -> str:
        return "v" if self.isa.name == "avx512" else "x"

    def _finish(self, total: list[Any]) -> None:
        """Emit ReLU, ReLU6 or the mask, then the store. NaN passes through."""
        low = self.b.select(self._has(RELU), self.zero, self.v.constant(float("-inf")))
        names = ("masked", "not_masked", "capped", "plain", "end")
        masked, not_masked, capped, plain, end = (self.function.append_basic_block(n) for n in names)
        self.b.cbranch(self._has(MASK), masked, not_masked)
        self.b.position_at_end(masked)
        high = self.b.select(self._has(CAP), self.v.constant(6.0), self.v.constant(float("inf")))
        for (m, v), value in zip(self.cells, total, strict=True):
            y = self.v.load(self._at(self.mask, m, self.ldm, v), self._mask(v))
            is_open = self.b.and_(self.b.fcmp_ordered(">", y, self.zero), self.b.fcmp_ordered("<", y, high))
            self.v.store(self.b.select(is_open, value, self.zero), self._at(self.c, m, self.ldc, v), self._mask(v))
        self.b.branch(end)
        self.b.position_at_end(not_masked)
        self.b.cbranch(self._has(CAP), capped, plain)
        for block, high in ((capped, self.v.constant(6.0)), (plain, None)):
            self.b.position_at_end(block)
            for (m, v), value in zip(self.cells, total, strict=True):
                value = self.b.select(self.b.fcmp_ordered("<", value, low), low, value)
                if high is not None:
                    value = self.b.select(self.b.fcmp_ordered(">", value, high), high, value)
                self.v.store(value, self._at(self.c, m, self.ldc, v), self._mask(v))
            self.b.branch(end)
        self.b.position_at_end(end)
