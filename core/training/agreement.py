"""What the ranks of a run agree on: equal settings and photos, when to save, pause and stop, and the state.

Whatever depends on a clock or on the user is decided together, so that all ranks do the same after the same step.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from typing import Final

from core import __version__
from core.communicator import Communicator
from core.config import to_dict
from core.device import Plan
from core.errors import InputError, LeafClinicError
from core.training.checkpoint import RunState
from core.training.commands import Commands
from core.training.setup import Setup

SECONDS: Final = 0.25
"""Interval between two agreements: after every short step they would cost too much."""
LOCAL: Final = ("cache", "out", "name", "threads", "gpus")
"""Settings that may differ between ranks."""


def check_ranks(setup: Setup) -> None:
    """Raise InputError where a rank has another version, other settings or other photos than rank 0."""
    settings = {name: value for name, value in to_dict(setup.config).items() if name not in LOCAL}
    own = {"version": __version__, "device": setup.device, **settings, "photos and split": setup.fingerprint}
    found = setup.communicator.gather_values(own)
    for rank, other in enumerate(found):
        for name in own:
            if other.get(name) != found[0].get(name):
                raise InputError(
                    f"Rank {rank} has another value of {name!r} than rank 0: {other.get(name)!r} instead of "
                    f"{found[0].get(name)!r}. Start all ranks with the same version, settings and photos."
                )


def check_weights(communicator: Communicator, plan: Plan) -> None:
    """Raise LeafClinicError where ranks have different weights: their steps were not equal."""
    digest = hashlib.sha256()
    for name, array in plan.weights().items():
        if plan.layout.offsets[name][0] < plan.layout.trained:  # running statistics are each rank's own
            digest.update(array.tobytes())
    found = communicator.gather(digest.digest())
    different = [str(rank) for rank, other in enumerate(found) if other != found[0]]
    if different:
        raise LeafClinicError(f"Rank {', '.join(different)} has other weights than rank 0 after the same steps. "
                              "Continue with --resume from the last checkpoint, and check that device.")  # fmt: skip


def share_state(communicator: Communicator, state: RunState) -> RunState:
    return RunState(**communicator.gather_values(asdict(state))[0])


def share_plan(communicator: Communicator, plan: Plan) -> None:
    if communicator.size > 1:
        state = communicator.broadcast_arrays(plan.state())  # before weights are loaded, which start its average
        plan.load(communicator.broadcast_arrays(plan.weights()))
        plan.load_state(state)


class Agreement:
    """What all ranks do after a step.

    `stop`, `save`, `time` (whether rank 0 times kernels) stay until it is done; `seconds`, by the clock of rank 0: of
    the last agreement.
    """

    def __init__(self, communicator: Communicator, commands: Commands, checkpoint_seconds: float) -> None:
        self._communicator, self._commands, self._limit = communicator, commands, checkpoint_seconds
        self._begun = self._saved_at = time.monotonic()
        self._steps = self._left = 1
        self.stop = self.save = self.time = False
        self.seconds = 0.0

    @property
    def requested(self) -> bool:
        return self.stop or self.save or self.time

    def saved(self) -> None:
        self._saved_at, self.save = time.monotonic(), False

    def renew(self, seconds: float, timed: bool = False) -> None:
        """Agree again where it is due. `seconds`: of the run, by the clock of this rank; timed: it times kernels."""
        self._left -= 1
        if self._left:
            return
        now = time.monotonic()
        steps = int(SECONDS * self._steps / max(now - self._begun, 1e-6)) if self._communicator.size > 1 else 1
        wanted = {
            "stop": self._commands.stopped(), "pause": self._commands.paused(), "seconds": seconds,
            "save": now - self._saved_at >= self._limit, "time": timed, "steps": min(max(steps, 1), 2 * self._steps),
        }  # fmt: skip
        found = self._communicator.gather_values(wanted)
        self.stop |= any(one["stop"] for one in found)
        self.save, self.time = self.save or found[0]["save"], found[0]["time"]
        self.seconds = found[0]["seconds"]
        self._steps = self._left = found[0]["steps"]
        if found[0]["pause"]:
            self._pause()
        self._begun = time.monotonic()

    def _pause(self) -> None:
        """Wait until rank 0 resumes or any rank stops; it may take long, so missing ranks are not reported."""
        limited, self._communicator.limited = self._communicator.limited, False
        if self._communicator.rank == 0:
            self._commands.wait_while_paused()
        self.stop |= any(self._communicator.gather(b"stop" if self._commands.stopped() else b""))
        self._communicator.limited = limited
