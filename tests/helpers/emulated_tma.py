"""TMA, barriers and warpgroup products for kernels that run as plain Python (`emulated_gpu`).

Copies happen early, as soon as they are sent for, or late: those to shared memory when somebody waits for their
barrier, those from it when their group is waited for; products early or late, too. A kernel must be right either way.
"""

from functools import cache, partial

import numpy as np

from core.gpu.sm90 import tma, wgmma
from tests.helpers.emulated_gpu import Machine
from tests.helpers.turns import Barrier, Gate


class Mailbox:
    """A barrier of eight bytes in shared memory that threads and copies report to."""

    def __init__(self, turns, arrivals):
        self.wanted, self.left, self.bytes, self.phase = arrivals, arrivals, 0, 0
        self.gate, self.copies = Gate(turns), []

    def report(self, arrivals, size):
        """So many arrivals, and bytes expected (or, below zero, come)."""
        self.left, self.bytes = self.left - arrivals, self.bytes + size
        assert self.left >= 0, "more arrivals than the phase has"
        if self.left == 0 and self.bytes == 0:
            self.phase, self.left = self.phase + 1, self.wanted
            self.gate.open()


class TmaMachine(Machine):
    """A machine with TMA."""

    def __init__(self, memory, late):
        super().__init__(memory)
        self.late, self.works = late, {}
        self.cuda.syncwarp = lambda: self.warps.gather(None)
        self.known |= {
            "copy_tile": self._copy_tile, "copy_activation_tile": self._copy_tile,
            "copy_bytes": self._copy_bytes, "store_tile": self._store_tile, "commit_stores": self._commit,
            "prefetch_map": lambda at: None, "show_barriers": lambda: None, "fence_async_proxy": lambda: None,
            "make_barrier": lambda at, n: self.barriers.__setitem__(int(at), Mailbox(self.turns, int(n))),
            "expect_bytes": lambda at, size: self.barriers[int(at)].report(1, int(size)),
            "arrive": lambda at: self.barriers[int(at)].report(1, 0), "wait_for": self._wait_for,
            "uniform": lambda value: value, "named_barrier": self._meet,
            "warpgroup_barrier": lambda number: self._meet(number, 128),
            "shared_load2": lambda at: tuple(self.shared_bytes(at, 8).view(np.uint32)),
        }  # fmt: skip

    def _argument(self, kind, given):
        return given[0] if kind == "tensor_map" else super()._argument(kind, given)

    def _run_block(self, kernel, values, block):
        self.barriers, self.meetings, self.works = {}, {}, {}
        super()._run_block(kernel, values, block)

    def patch(self, monkeypatch, module):
        """Put what is made outside of the kernel's functions into its module and those of instructions it names."""
        replaced = {
            "make_products": self._make_products,
            "make_wait": lambda count, pending: lambda sums: self._finish(pending),
            "WAIT_READ": {n: lambda n=n: self._wait_stores(n) for n in (0, 1)},
            "wait_stored": lambda: self._wait_stores(0),
        }
        named = [holder for holder in (tma, wgmma) if holder in vars(module).values()]
        for holder in (module, *named):
            for name in filter(partial(hasattr, holder), replaced):
                monkeypatch.setattr(holder, name, replaced[name])

    def _meet(self, number, threads):
        barrier = self.meetings.setdefault(int(number), Barrier(self.turns, int(threads)))
        assert barrier.parties == threads
        barrier.wait()

    def _wait_for(self, at, parity):
        barrier = self.barriers[int(at)]
        while barrier.phase & 1 == parity:
            if barrier.copies:
                self._arrive_copies(barrier)
            else:
                barrier.gate.wait()

    def _arrive_copies(self, barrier):
        copies, barrier.copies = barrier.copies, []
        for lines, size in copies:
            for address, at in lines:
                words = (0, 0, 0, 0) if at is None else self.memory.load(at, 4)
                self.shared_bytes(address, 16)[:] = np.array(words, np.uint32).view(np.uint8)
            barrier.report(0, -size)

    def _copy_tile(self, place, seen, *more):
        *first, at = map(int, more)
        self._send(self._lines(int(place), seen, *first), 2 * np.prod(seen.tile), self.barriers[at])

    def _copy_bytes(self, place, source, size, at):
        assert place % 16 == source % 16 == size % 16 == 0
        lines = ((int(place) + i, int(source) + i) for i in range(0, int(size), 16))
        self._send(lines, int(size), self.barriers[int(at)])

    def _send(self, lines, size, barrier):
        barrier.copies.append((lines, size))
        barrier.gate.open()
        if not self.late:
            self._arrive_copies(barrier)

    def _lines(self, place, seen, column, *others):
        """Where each 16 bytes of a tile are in shared memory and, unless beyond the tensor, in memory."""
        assert seen.sizes[0] % 8 == column % 8 == 0
        assert not any(pitch % 8 for pitch in seen.pitches)
        line = 2 * seen.tile[0]
        assert place % (8 * line) == 0, "the swizzle begins anew"
        for r, (*tile, c) in enumerate(np.ndindex(*seen.tile[:0:-1], seen.tile[0] // 8)):
            here = (column + 8 * c, *(at + i for at, i in zip(others, reversed(tile), strict=True)))
            inside = all(0 <= at < size for at, size in zip(here, seen.sizes, strict=True))
            at = seen.address + 2 * sum(i * pitch for i, pitch in zip(here, (1, *seen.pitches), strict=True))
            yield swizzled(place + 16 * r, line), at if inside else None

    def _store_tile(self, seen, column, row, place):
        self.here.begun = [*getattr(self.here, "begun", []), (int(place), seen, int(column), int(row))]

    def _commit(self):
        self.here.stores = [*getattr(self.here, "stores", []), self.here.begun]
        self.here.begun = []
        if not self.late:
            self._wait_stores(0)

    def _wait_stores(self, pending):
        stores = getattr(self.here, "stores", [])
        while len(stores) > pending:
            for place, seen, column, row in stores.pop(0):
                for address, at in self._lines(place, seen, column, row):
                    if at is not None:
                        self.memory.store(at, *self.shared_bytes(address, 16).view(np.uint32))

    def _make_products(self, columns, tiles, across=(False, False), first_only=0, narrow=()):
        def start(sums, a_low, a_high, a_step, b_low, b_high, every):
            def multiply():
                found = []
                whole = int(every) == 1
                found_in = [(columns, t if whole or not first_only else t[:first_only]) for t in tiles]
                for wide, places in found_in + [(8, t if whole else ()) for t in narrow]:
                    product = np.zeros((64, wide))
                    for first, steps, other in places:
                        a = self._factor(int(a_low) + first + steps * int(a_step), int(a_high), 64, across[0])
                        b = self._factor(int(b_low) + other, int(b_high), wide, across[1])
                        product += a @ b.T
                    found.append(product)
                return found

            self.warps.gather(None)  # a warp is one: none of its lanes goes on before all are here
            self.here.products = [*getattr(self.here, "products", []), (sums, self._shared_work(multiply))]
            if not self.late:
                self._finish(0)

        return start

    def _factor(self, low, high, rows, across):
        """``(rows, 16)`` of a factor from its descriptor; `across`: its rows run along the lines."""
        start, along, down = 16 * (low & 0x3FFF), 16 * (low >> 16 & 0x3FFF), 16 * (high & 0x3FFF)
        line = {0: 0, 1: 128, 2: 64, 3: 32}[high >> 30]
        r, k = np.indices((rows, 16))
        if not line and across:
            places = start + r // 8 * down + k // 8 * along + k % 8 * 16 + r % 8 * 2
        elif not line:
            places = start + r // 8 * down + k // 8 * along + r % 8 * 16 + k % 8 * 2
        elif across:
            block, column = np.divmod(r, line // 2)
            places = swizzled(start + block * along + k // 8 * down + k % 8 * line + 2 * column, line)
        else:
            places = swizzled(start + r // 8 * down + r % 8 * line + 2 * k, line)
        assert not (places % 2).any(), "misaligned"
        found = self.bytes.view(np.uint16)[places // 2].astype(np.uint32)
        return (found << 16).view(np.float32).astype(np.float64)

    def _shared_work(self, work):
        """The result of `work`, done once for all threads of a warpgroup, by the first that asks."""
        self.here.number = getattr(self.here, "number", -1) + 1
        return self.works.setdefault((self.here.thread[0] // 128, self.here.number), cache(work))

    def _finish(self, pending):
        products = getattr(self.here, "products", [])
        self.warps.gather(None)
        while len(products) > pending:
            sums, result = products.pop(0)
            thread = self.here.thread[0] % 128
            lane, warp, at = thread % 32, thread // 32, 0
            for product in result():
                for i in range(product.shape[1] // 8):
                    for half in range(2):
                        row, column = warp * 16 + lane // 4 + half * 8, i * 8 + lane % 4 * 2
                        sums[at + i * 4 + half * 2 : at + i * 4 + half * 2 + 2] += product[row, column : column + 2]
                at += product.shape[1] // 2


def swizzled(address, line):
    """Where TMA and `wgmma` find a byte, from its place without swizzle."""
    return address ^ ((address >> 7) & {128: 7, 64: 3, 32: 1}[line]) << 4
