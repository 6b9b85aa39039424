"""The training process of the window: commands come in as lines on stdin, events go out as JSON lines on stdout.

The first line is a JSON object ``{"config": {...}, "resume": false, "overwrite": false}``; then come
``pause``, ``resume`` and ``stop``. The end of stdin means the window is gone: the run saves and ends.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final, TextIO

from core.child_process import command, take_stdout
from core.config import from_dict
from core.distributed.launch import end_rank, read_request, run_rank, run_ranks
from core.distributed.rank_environment import RankEnvironment, choose_gpu
from core.errors import EXIT_FAILED, EXIT_WRONG_INPUT, LeafClinicError
from core.training.commands import Commands
from core.training.events import Event, RunFailed, StepDone, to_line
from core.training.setup import check_gpus
from core.training.trainer import Trainer

STEPS_SECONDS: Final = 0.2
"""Interval at which steps are sent: each time the window wakes up and takes a core from the training."""


def main() -> int:
    """Run one training; the exit code is that of the command line."""
    return end_rank(train)


def train() -> int:
    """Run one training, or one rank of it, and write its events."""
    events = take_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the window handles Ctrl-C

    def send(event: Event) -> None:
        events.write(to_line(event) + "\n")
        if not isinstance(event, StepDone) or time.monotonic() >= last_sent[0] + STEPS_SECONDS:
            events.flush()
            last_sent[0] = time.monotonic()

    last_sent = [0.0]
    try:
        return run_rank(lambda environment: serve(sys.stdin, send, environment, events))
    except LeafClinicError as error:
        send(RunFailed(str(error), traceback.format_exc(), error.exit_code))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the window must learn of every failure
        send(RunFailed(f"{type(error).__name__}: {error}", traceback.format_exc(), EXIT_FAILED))
        return EXIT_FAILED


def serve(lines: TextIO, send: Callable[[Event], None], environment: RankEnvironment, events: TextIO) -> int:
    """Read the first line, train, and obey the other lines (rank 0). Raises LeafClinicError."""
    first = read_request(environment) if environment.rendezvous else lines.readline()
    if not first.strip():
        return EXIT_WRONG_INPUT
    asked = json.loads(first)
    config = from_dict(asked["config"])
    if config.gpus > 1 and environment.size == 1:
        check_gpus(config)
        return run_ranks(command("training"), config.gpus, first, events)
    choose_gpu(environment)
    commands = Commands()
    if environment.rank == 0:
        threading.Thread(target=_obey, args=(lines, commands), daemon=True).start()
    trainer = Trainer(
        config, resume=bool(asked.get("resume")), overwrite=bool(asked.get("overwrite")), environment=environment,
        profiled=True,  # the window shows kernel times from the first steps on
    )  # fmt: skip
    return trainer.follow(commands, send)


def _obey(lines: TextIO, commands: Commands) -> None:
    known = {"pause": commands.pause, "resume": commands.resume, "stop": commands.stop}
    for line in lines:
        if do := known.get(line.strip()):
            do()
    commands.stop()


if __name__ == "__main__":
    sys.exit(main())
