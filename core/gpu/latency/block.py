"""What the small-batch kernels share: loads under programmatic dependent launch, a block's shape, the epilogue.

**Programmatic dependent launch** (PDL): blocks of a dependent launch begin while the previous kernel runs. Before
`wait_for_previous` they may only compute addresses and load what no kernel of the graph writes, such as packed filters.
The next kernel may begin after the wait, so at most two kernels share the GPU, and no L1 cache holds what a later
kernel overwrites. Loads after the wait are ordered ones: the assembler may move a read-only load (``.nc``) before it.
Source: PTX ISA 8.x, 9.7.13.13 griddepcontrol; CUDA C++ Programming Guide, Programmatic Dependent Launch.

**Epilogue.** Warps split the depth of a sum (sliced-K), so the partial sums of all slices meet in shared memory,
``(slices, pixels, filters + PADDING)`` float32, and are added in a fixed order. Each thread writes 16-byte vectors of
the output; it loads their bias and addend while the operands are still in flight.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from core.gpu.compilation.cuda import device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.generations import LAUNCH_DEPENDENTS, WAIT
from core.gpu.compilation.ptx import bits_to_float, float_to_bits, instruction, shared_load4, shared_store2, store4
from core.gpu.parts.vectors import PACK, UNPACK, activate, put4

wait_for_previous = instruction("wait_for_previous", f"{WAIT} {LAUNCH_DEPENDENTS}", "", "", memory=True)
"""Wait until the previous kernel has ended and its stores are visible; no wait in an ordinary launch."""


def _load(name: str, kind: str) -> Any:
    text = (
        "{.reg .pred p; setp.ne.u32 p, $5, 0; mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; "
        f"@p ld.global{kind}.v4.u32 {{$0,$1,$2,$3}}, [$4];}}"
    )
    return instruction(name, text, "uuuu", "lu", memory=True)


load4_where = _load("load4_where", "")
"""``(address, inside)``: 16 bytes of global memory, ordered with this thread's stores; zeros where not `inside`."""

load4_constant_where = _load("load4_constant_where", ".nc")
"""`load4_where` of what no kernel of the graph writes."""

VECTOR: Final = 8
"""bf16 elements in 16 bytes."""
CHUNK: Final = 4
"""Vectors of the sum's depth that one warp multiplies at a time: one for each lane of a quad, two `mma` deep."""
PADDING: Final = 8
"""Floats after each row of sums, against bank conflicts."""
REGISTERS, MAX_REGISTERS = 65536, 230
"""Registers of a multiprocessor, and the most that a thread may use."""
OTHER_REGISTERS: Final = 60
"""Registers of a thread that hold neither operands nor sums."""


class BlockShape(NamedTuple):
    """`across` x `slices` warps; each has `rows` x `columns` fragments of 16 pixels x 8 filters.

    Warps across have filters of their own; slices split the depth of the same sums (sliced-K).
    """

    rows: int
    columns: int
    across: int
    slices: int

    @property
    def threads(self) -> int:
        return 32 * self.across * self.slices

    @property
    def size(self) -> tuple[int, int]:
        """Pixels and filters of a block."""
        return 16 * self.rows, VECTOR * self.columns * self.across

    @property
    def rounds(self) -> int:
        """Vectors of the output that a thread writes."""
        return -(-self.size[0] * self.size[1] // VECTOR // self.threads)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory for the sums of all slices."""
        pixels, filters = self.size
        return 4 * self.slices * pixels * (filters + PADDING)

    def chunks(self, vectors: int) -> int:
        """Chunks of each warp for a sum of so many vectors."""
        return -(-vectors // (CHUNK * self.slices))

    def fits(self, vectors: int) -> bool:
        """Whether the operands of such a sum fit into the registers and the sums into shared memory."""
        operands = self.chunks(vectors) * (8 * self.rows + 4 * self.columns) + 4 * self.rows * self.columns
        return self.has_registers(operands + OTHER_REGISTERS) and self.shared <= 48 << 10

    def has_registers(self, used: int) -> bool:
        """Whether each thread of a block may use so many."""
        return used <= MAX_REGISTERS and used * self.threads <= REGISTERS


def make_filter_loads(shape: BlockShape, chunks: int) -> Any:
    """Device function: `chunks` of a warp's filters into registers, zeros beyond the last."""
    TN, CHUNKS = shape.columns, chunks

    @device_function
    def load_filters(weight, column, limit, depth, first, vectors, registers):
        for c in range(CHUNKS):
            vector = i32(first + c * 4)
            for n in range(TN):
                ok = column + n * 8 < limit and vector < vectors
                at = u64(weight + u64((i64(column + n * 8) * i64(depth) + i64(vector) * 8) * 2))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                put4(v, registers, (c * TN + n) * 4)

    return load_filters


def make_epilogue(shape: BlockShape, pixel_of: Any) -> tuple[Any, Any, Any, Any]:
    """Device functions for a thread's output vectors: load the bias, add another tensor, store the sums, write.

    `pixel_of(row, geometry)` is a device function that gives the pixel of a block's row, or -1.
    """
    (ROWS, COLUMNS), (TM, TN), TH, SL = shape.size, shape[:2], shape.threads, shape.slices
    VECTORS, ROW, ROUNDS, pack, unpack = COLUMNS // VECTOR, 4 * (COLUMNS + PADDING), shape.rounds, PACK[2], UNPACK[2]

    @device_function
    def load_bias(tid, bias, weight, first, limit, initial):
        for j in range(ROUNDS):
            vector = i32((tid + j * TH) % VECTORS)
            ok = bias != u64(0) and first + vector * 8 < limit
            for h in range(2):
                at = u64(bias + u64(i64(first + vector * 8 + h * 4) * 4))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                for i in range(4):
                    initial[j * 8 + h * 4 + i] = bits_to_float(v[i])

    @device_function
    def load_addend(tid, addend, pitch, bn, columns, value, initial, geometry):
        for j in range(ROUNDS):
            r, vector = i32((tid + j * TH) // VECTORS), i32((tid + j * TH) % VECTORS)
            pixel = pixel_of(r, geometry) if r < ROWS and bn + vector * 8 < columns else i32(-1)
            at = u64(addend + u64((i64(pixel) * i64(pitch) + i64(bn + vector * 8)) * 2))
            unpack(load4_where(at if pixel >= 0 else addend, u32(1) if pixel >= 0 else u32(0)), value)
            for i in range(8):
                initial[j * 8 + i] = f32(initial[j * 8 + i] + value[i])

    @device_function
    def store_sums(acc, base, slice_index, column, g, t):
        for m in range(TM):
            for n in range(TN):
                o = (m * TN + n) * 4
                at = u32(base + u32((slice_index * ROWS + m * 16 + g) * ROW + (column + n * 8 + t * 2) * 4))
                shared_store2(at, float_to_bits(acc[o]), float_to_bits(acc[o + 1]))
                shared_store2(u32(at + u32(8 * ROW)), float_to_bits(acc[o + 2]), float_to_bits(acc[o + 3]))

    @device_function
    def write_output(tid, base, out, pitch, bn, columns, activation, value, initial, geometry):
        for j in range(ROUNDS):
            r, vector = i32((tid + j * TH) // VECTORS), i32((tid + j * TH) % VECTORS)
            pixel = pixel_of(r, geometry) if r < ROWS and bn + vector * 8 < columns else i32(-1)
            if pixel >= 0:
                for i in range(8):
                    value[i] = initial[j * 8 + i]
                for s in range(SL):  # always in this order: the same bits every time
                    at = u32(base + u32((s * ROWS + r) * ROW + vector * 32))
                    low, high = shared_load4(at), shared_load4(u32(at + u32(16)))
                    for i in range(4):
                        value[i] = f32(value[i] + bits_to_float(low[i]))
                        value[i + 4] = f32(value[i + 4] + bits_to_float(high[i]))
                for i in range(8):
                    value[i] = activate(value[i], activation)
                v = pack(value)
                store4(u64(out + u64((i64(pixel) * i64(pitch) + i64(bn + vector * 8)) * 2)), v[0], v[1], v[2], v[3])

    return load_bias, load_addend, store_sums, write_output
