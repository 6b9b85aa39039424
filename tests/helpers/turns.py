"""The threads of a GPU's block as greenlets: one runs at a time, until it has to wait for another.

Who goes next is drawn, always the same: a kernel must be right in any order.
"""

import random

from greenlet import getcurrent, greenlet


class Thread(greenlet):
    """One thread of the block; what belongs to it are its attributes."""


class Turns:
    """Runs the threads of a block, one at a time."""

    def __init__(self):
        self._random, self._ready = random.Random(0), []

    def run(self, bodies, kind=Thread):
        """Every body to its end. The first error of one ends all; so does waiting for what never comes."""
        threads = [kind(body) for body in bodies]
        self._ready = list(threads)
        try:
            while self._ready:
                self._draw().switch()
            assert all(thread.dead for thread in threads), "threads wait for what never comes"
        finally:
            for thread in threads:
                thread.throw()

    def _draw(self):
        at = self._random.randrange(len(self._ready))
        self._ready[at], self._ready[-1] = self._ready[-1], self._ready[at]
        return self._ready.pop()

    def wake(self, threads):
        self._ready += threads


class Gate:
    """Where threads wait until another opens."""

    def __init__(self, turns):
        self._turns, self.waiting = turns, []

    def wait(self):
        thread = getcurrent()
        self.waiting.append(thread)
        thread.parent.switch()

    def open(self):
        self._turns.wake(self.waiting)
        self.waiting = []


class Barrier:
    """Where so many threads wait for each other, again and again."""

    def __init__(self, turns, parties):
        self.parties, self._gate = parties, Gate(turns)

    def wait(self):
        if len(self._gate.waiting) + 1 < self.parties:
            self._gate.wait()
        else:
            self._gate.open()
