"""Numba's CUDA simulator with greenlets for its threads: its own hand each other Python's lock.

All rungs of the ladder took 140 s of processor time with those, 64 with these.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
from greenlet import getcurrent
from numba.cuda.simulator import kernel, kernelapi

from tests.helpers.turns import Barrier, Thread, Turns


class SimulatedThread(Thread):
    """What the simulator asks of the thread that runs."""

    def place(self, barrier, block, thread, block_dim):
        self.barrier, self.blockIdx, self.threadIdx = barrier, kernelapi.Dim3(*block), kernelapi.Dim3(*thread)
        x, y, z = thread
        self.thread_id = x + block_dim[0] * (y + block_dim[1] * z)

    def syncthreads(self):
        self.barrier.wait()


class Block:
    """Takes the place of the simulator's manager of one block's threads."""

    def __init__(self, function, grid_dim, block_dim, debug):
        self.function, self.block_dim = function, block_dim

    def run(self, block, *arguments):
        places = list(np.ndindex(*self.block_dim))
        turns = Turns()
        barrier = Barrier(turns, len(places))

        def body(place):
            getcurrent().place(barrier, block, place, self.block_dim)
            self.function(*arguments)

        turns.run([lambda place=place: body(place) for place in places], SimulatedThread)


def install():
    """For all kernels that this process simulates."""
    kernel.BlockManager = Block
    kernelapi.threading = SimpleNamespace(Lock=threading.Lock, current_thread=getcurrent)
