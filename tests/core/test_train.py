"""The second Ctrl-C: nobody has to wait for it."""

import pytest

from core import train
from core.config import RunConfig
from core.errors import EXIT_INTERRUPTED, EXIT_STOPPED
from core.training.commands import Commands
from core.training.trainer import Trainer


@pytest.mark.parametrize(("resume", "code", "said"), [
    (True, EXIT_STOPPED, "after saving this step"), (False, EXIT_INTERRUPTED, "before the training begins"),
])  # fmt: skip
def test_the_first_ctrl_c_asks_and_the_second_ends_at_once(monkeypatch, capsys, resume, code, said):
    ended = []
    monkeypatch.setattr(train.os, "_exit", ended.append)
    commands = Commands()
    handler = train._stopper(commands, Trainer(RunConfig(data="photos"), resume=resume))
    handler(2, None)
    assert commands.stopped()
    assert not ended
    assert f"Stopping {said}. Press Ctrl-C again to stop immediately" in capsys.readouterr().err
    handler(2, None)
    assert ended == [code]


def test_a_batch_size_may_be_left_to_the_program():
    for text, wanted in (("auto", 0), ("48", 48)):
        arguments = train.make_parser().parse_args(["--data", "photos", "--batch-size", text])
        assert train.configure(arguments, []).batch_size == wanted
