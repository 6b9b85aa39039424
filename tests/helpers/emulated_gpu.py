"""Kernels made of PTX instructions, run as plain Python: a thread is a greenlet, memory is one array of bytes."""

from functools import partial
from types import CellType, FunctionType, ModuleType, SimpleNamespace

import numpy as np
from greenlet import getcurrent
from numba.core import types as numba_types

from core.gpu.compilation.arrays import KINDS, type_of, words
from core.gpu.teaching.kernel import TeachingKernel
from tests.helpers.turns import Barrier, Gate, Turns

GAP = 64
"""Bytes between arrays that no kernel may touch."""


class Memory:
    """The GPU's memory; every access must lie inside one array, and be aligned."""

    def __init__(self, size):
        self.bytes = np.zeros(size, np.uint8)
        self.allowed = np.zeros(size, bool)
        self.used = 4096

    def reserve(self, size):
        """Address of new bytes full of 0xFF, which are NaN as bf16 and as float32."""
        at = self.used
        self.bytes[at : at + size], self.allowed[at : at + size] = 0xFF, True
        self.used = (at + size + GAP + 255) // 256 * 256
        return at

    def place(self, array):
        at = self.reserve(array.nbytes)
        self.put(at, array)
        return at

    def put(self, address, array):
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.bytes[address : address + raw.size] = raw

    def get(self, address, count, dtype):
        return self.bytes[address : address + count * np.dtype(dtype).itemsize].view(dtype).copy()

    def load(self, address, words):
        address = int(address)
        assert address % (4 * words) == 0, "misaligned"
        assert self.allowed[address : address + 4 * words].all(), f"a load at {address} leaves its array"
        return tuple(self.bytes[address : address + 4 * words].view(np.uint32))

    def store(self, address, *words):
        address = int(address)
        assert address % (4 * len(words)) == 0, "misaligned"
        assert self.allowed[address : address + 4 * len(words)].all(), f"a store at {address} leaves its array"
        self.bytes[address : address + 4 * len(words)] = np.array(words, np.uint32).view(np.uint8)

    def store_half(self, address, word):
        address = int(address)
        assert self.allowed[address : address + 2].all(), f"a store at {address} leaves its array"
        self.bytes[address : address + 2] = np.array([word], np.uint32).view(np.uint8)[:2]


def bits(value):
    return np.float32(value).view(np.uint32)


def number(word):
    return np.uint32(word).view(np.float32)


def round_bf16(value):
    """The upper 16 bits of a float32 rounded to bf16, ties to even."""
    word = int(bits(value))
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16 & 0xFFFF


def permute(a, b, chosen):
    """Bytes by the digits of `chosen`; a digit of 8 and more takes the byte's sign eight times."""
    both, word = int(b) << 32 | int(a), 0
    for i in range(4):
        digit = int(chosen) >> 4 * i & 15
        byte = both >> 8 * (digit & 7) & 255
        word |= (255 * (byte >> 7) if digit & 8 else byte) << 8 * i
    return np.uint32(word)


def _load_from(array, index):
    """`core.gpu.teaching.vector.load4`."""
    assert index % 4 == 0, "misaligned"
    return tuple(array.reshape(-1)[int(index) + k] for k in range(4))


def _store_to(array, index, *values):
    """`core.gpu.teaching.vector.store4`."""
    assert index % 4 == 0, "misaligned"
    for k, value in enumerate(values):
        array.reshape(-1)[int(index) + k] = value


def instructions(memory):
    """What `core.gpu.compilation.ptx` offers, by name."""
    return {
        "load1": lambda at: memory.load(at, 1)[0], "load_byte": lambda at: np.uint32(memory.bytes[int(at)]),
        "load2": lambda at: memory.load(at, 2),
        "load2_ordered": lambda at: memory.load(at, 2),
        "load4": lambda at, *index: _load_from(at, *index) if index else memory.load(at, 4),
        "load4_ordered": lambda at: memory.load(at, 4),
        "load4_constant_where": lambda at, real: memory.load(at, 4) if real else (np.uint32(0),) * 4,
        "load_float": lambda at: number(memory.load(at, 1)[0]),
        "prefetch": lambda at: None, "store1": memory.store, "store2": memory.store,
        "store4": lambda at, *values: _store_to(at, *values) if len(values) == 5 else memory.store(at, *values),
        "store_half": memory.store_half, "store_float": lambda at, value: memory.store(at, bits(value)),
        "low_bf16": lambda word: number((int(word) & 0xFFFF) << 16),
        "high_bf16": lambda word: number(int(word) & 0xFFFF0000),
        "permute": permute, "bits_to_float": number, "float_to_bits": bits,
        "shift_pair": lambda low, high, bits: np.uint32((int(high) << 32 | int(low)) >> int(bits) & 0xFFFFFFFF),
        "byte_to_float": lambda word, chosen: np.float32(int(word) >> 8 * (int(chosen) & 3) & 255),
        "fma_bf16": lambda a, b, c: np.uint32(sum(
            round_bf16(number(int(a) << s & 0xFFFF0000) * number(int(b) << s & 0xFFFF0000)
                       + number(int(c) << s & 0xFFFF0000)) << 16 - s for s in (0, 16)
        )),
        **{f"{kind.__name__}_bf16": lambda a, b, kind=kind: np.uint32(sum(
            int(bits(kind(number(int(a) << s & 0xFFFF0000), number(int(b) << s & 0xFFFF0000)))) >> s for s in (0, 16)
        )) for kind in (max, min)},
        "pack_bf16": lambda low, high: np.uint32(round_bf16(high) << 16 | round_bf16(low)),
        "fma_clamped": lambda a, b, c: np.float32(min(max(np.float64(a) * np.float64(b) + np.float64(c), 0.0), 1.0)),
        "divide_fast": lambda n, m, s: np.uint32(((int(n) * int(m) >> 32) + int(n) & 0xFFFFFFFF) >> int(s)),
    }


class Warps:
    """What the 32 threads of a warp do together; every thread hands in its part and takes its result."""

    def __init__(self, machine):
        self.machine, self.rounds = machine, {}

    def gather(self, part, work=list):
        """What `work`, done once, makes of the parts of all lanes, in order; and this lane's number."""
        number = self.machine.here.thread[0]
        warp, lane = number // 32, number % 32
        if warp not in self.rounds:
            self.rounds[warp] = SimpleNamespace(parts={}, made=None, gate=Gate(self.machine.turns))
        mine = self.rounds[warp]
        mine.parts[lane] = part
        if len(mine.parts) < 32:
            mine.gate.wait()
        else:
            del self.rounds[warp]
            mine.made = work([mine.parts[i] for i in range(32)])
            mine.gate.open()
        return mine.made, lane

    def load_matrices(self, count, transposed):
        """`ldmatrix`: lane i gives the address of row i % 8 of matrix i // 8."""

        def read(addresses):
            rows = [self.machine.shared_bytes(a, 16) for a in addresses[: 8 * count]]
            found = np.array(rows).view(np.uint16).reshape(count, 8, 8)
            found = found.transpose(0, 2, 1) if transposed else found
            return np.ascontiguousarray(found).view(np.uint32).reshape(count, 32)

        def load(address):
            found, lane = self.gather(int(address), read)
            return tuple(found[:, lane])

        return load

    def multiply(self, *registers):
        """`mma.m16n8k16` of bf16: four registers of a, two of b, four sums."""
        (sums, lane) = self.gather(registers[:6], _multiply)
        g, t = lane // 4, lane % 4 * 2
        four = (sums[g, t], sums[g, t + 1], sums[g + 8, t], sums[g + 8, t + 1])
        return tuple(np.float32(registers[6 + i] + four[i]) for i in range(4))

    def shuffle(self, value, mask):
        found, lane = self.gather(value)
        return found[lane ^ int(mask)]


def _multiply(registers):
    """The product, ``(16, 8)``, of the factors that 32 lanes hold."""
    words = np.array(registers, np.uint32).reshape(8, 4, 6)  # lane = 4 g + t
    pairs = np.stack([words << 16, words & 0xFFFF0000], -1).view(np.float32).astype(np.float64)  # g, t, register, half
    corners = pairs.transpose(0, 2, 1, 3).reshape(8, 6, 8)
    a = np.block([[corners[:, 0], corners[:, 2]], [corners[:, 1], corners[:, 3]]])
    return a @ np.concatenate([corners[:, 4], corners[:, 5]], -1).T


class Cast:
    """A numba type as a conversion that wraps around like the GPU's."""

    def __init__(self, kind):
        self.dtype = np.dtype(str(kind))
        self._ones = (1 << 8 * self.dtype.itemsize) - 1
        self._below = 0 if self.dtype.kind == "u" else self._ones // 2 + 1  # the first number that wraps around

    def __call__(self, value):
        if self.dtype.kind == "f":
            return self.dtype.type(value)
        return self.dtype.type((int(value) + self._below & self._ones) - self._below)

    def __str__(self):
        return str(self.dtype)


class Machine:
    """One GPU: runs a kernel's blocks one after another, each with a greenlet for every thread."""

    def __init__(self, memory):
        self.memory, self.known = memory, {**instructions(memory), **self._block_instructions()}
        self.turns, self.shared, self.barrier = Turns(), {}, None
        self.cuda = SimpleNamespace(
            local=SimpleNamespace(array=lambda size, dtype: np.zeros(size, str(dtype))),
            shared=SimpleNamespace(array=self._shared_array),
            syncthreads=lambda: self.barrier.wait(),
            libdevice=SimpleNamespace(sqrt=np.sqrt, sqrtf=np.sqrt, expf=np.exp, logf=np.log),
            grid=lambda _: self.here.block[0] * self.block[0] + self.here.thread[0],
            gridsize=lambda _: self.grid[0] * self.block[0],
        )  # fmt: skip

    def run(self, launch):
        kernel = self._adapt(launch.recipe.function())
        given = iter(launch.values)
        values = [self._argument(kind, [next(given) for _ in words(kind)]) for kind in launch.recipe.types]
        assert next(given, None) is None, "more values than arguments"
        self.block, self.grid, self.dynamic = launch.block, launch.grid, launch.shared
        for z, y, x in np.ndindex(*launch.grid[::-1]):
            self._run_block(kernel, values, (x, y, z))

    def _argument(self, kind, given):
        """An argument of a kernel from its words (`core.gpu.compilation.arrays`)."""
        dimensions = getattr(KINDS.get(kind), "ndim", 0)
        if ":" in kind:
            fields, given = (field.split(":")[1] for field in kind.split()), iter(given)
            values = [self._argument(field, [next(given) for _ in words(field)]) for field in fields]
            return type_of(kind).instance_class(*values)
        if kind not in KINDS:
            return Cast(getattr(numba_types, kind))(*given)
        if not dimensions:
            return given[0] if len(given) == 1 else tuple(given)
        count, size, address, *sides = given[2:]
        assert self.memory.allowed[address : address + count * size].all(), "an array leaves its memory"
        raw = self.memory.bytes[address : address + count * size]
        return raw.view(str(KINDS[kind].dtype)).reshape(sides[:dimensions])

    @property
    def here(self):
        """The thread that runs, with what is its own."""
        return getcurrent()

    def _run_block(self, kernel, values, block):
        self.shared, self.warps.rounds = {}, {}
        self.bytes = np.full(self.dynamic, 0xFF, np.uint8)
        places = [(x, y, 0) for y in range(self.block[1]) for x in range(self.block[0])]
        self.barrier = Barrier(self.turns, len(places))

        def body(place):
            self.here.thread, self.here.block, self.here.arrays, self.here.waited = place, block, 0, False
            with np.errstate(all="ignore"):
                kernel(*values)

        self.turns.run([partial(body, place) for place in places])

    def _block_instructions(self):
        """Those that need to know the thread, its warp or its block's shared memory, which starts at address 0."""
        self.warps, self.bytes = Warps(self), np.zeros(0, np.uint8)

        def load_after_waiting(at, real):
            assert self.here.waited, "a load of what the kernel in front may still write"
            return self.memory.load(at, 4) if real else (np.uint32(0),) * 4

        def copy(to, source, real):
            self.shared_bytes(to, 16)[:] = 0
            words = self.memory.load(source, 4) if real else (0, 0, 0, 0)
            self.shared_bytes(to, 16)[:] = np.array(words, np.uint32).view(np.uint8)

        def store(to, *words):
            self.shared_bytes(to, 4 * len(words))[:] = np.array(words, np.uint32).view(np.uint8)

        return {
            "wait_for_previous": lambda: setattr(self.here, "waited", True), "load4_where": load_after_waiting,
            "shared_address": lambda array: np.uint32(0), "copy_async16": copy, "copy_async16_cached": copy,
            "commit_copies": lambda: None, "wait": lambda: None, "hold32": lambda v: v, "hold64": lambda v: v,
            "shared_load1": lambda at: self.shared_bytes(at, 4).view(np.uint32)[0],
            "shared_load4": lambda at: tuple(self.shared_bytes(at, 16).view(np.uint32)),
            "shared_store1": store, "shared_store2": store, "shared_store4": store,
            "ldmatrix2": self.warps.load_matrices(2, False), "ldmatrix4": self.warps.load_matrices(4, False),
            "ldmatrix2_transposed": self.warps.load_matrices(2, True),
            "ldmatrix4_transposed": self.warps.load_matrices(4, True),
            "mma_bf16": self.warps.multiply, "shuffle_xor": self.warps.shuffle,
        }  # fmt: skip

    def shared_bytes(self, at, count):
        at = int(at)
        assert at % count == 0, "misaligned"
        assert at + count <= len(self.bytes), "an access leaves shared memory"
        return self.bytes[at : at + count]

    def _shared_array(self, shape, dtype):
        if shape == 0:
            return self.bytes.view(str(dtype))
        self.here.arrays += 1
        return self.shared.setdefault(self.here.arrays, np.full(shape, np.nan, str(dtype)))

    def _place(self, name):
        sizes = {
            "threadIdx": self.here.thread, "blockIdx": self.here.block, "blockDim": self.block, "gridDim": self.grid,
        }  # fmt: skip
        x, y, z = sizes[name]
        return SimpleNamespace(x=x, y=y, z=z)

    def _adapt(self, thing):
        """A function, dispatcher, instruction or type of a kernel as something Python runs."""
        function = getattr(thing, "py_func", thing)
        if isinstance(thing, numba_types.Type):
            return Cast(thing)
        if isinstance(thing, ModuleType) and thing.__name__ == "numba.cuda":
            return _Cuda(self)
        if isinstance(thing, ModuleType) and thing.__name__.startswith("core.gpu"):
            return _Module(self, thing)
        if getattr(thing, "_name", None) in self.known:
            return self.known[thing._name]
        if not isinstance(function, FunctionType) or not function.__module__.startswith("core.gpu"):
            return thing
        names = {name: self._adapt(value) for name, value in function.__globals__.items()
                 if name in _names(function.__code__) and not isinstance(value, TeachingKernel)}  # fmt: skip
        cells = tuple(CellType(self._adapt(c.cell_contents)) for c in function.__closure__ or ())
        return FunctionType(function.__code__, {**names, "__builtins__": __builtins__}, closure=cells)


class _Cuda:
    """`numba.cuda` as seen from one thread."""

    def __init__(self, machine):
        self._machine = machine

    def __getattr__(self, name):
        if name in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
            return self._machine._place(name)
        return getattr(self._machine.cuda, name)


class _Module:
    """A module of instructions, each adapted when it is first used."""

    def __init__(self, machine, module):
        self._machine, self._module = machine, module

    def __getattr__(self, name):
        adapted = self._machine._adapt(getattr(self._module, name))
        setattr(self, name, adapted)
        return adapted


def _names(code):
    found = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            found |= _names(constant)
    return found
