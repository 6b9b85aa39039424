"""The second Ctrl-C: nobody has to wait for it."""

from __future__ import annotations

from core import train
from core.errors import EXIT_STOPPED
from core.training.commands import Commands


def test_the_first_ctrl_c_asks_and_the_second_ends_at_once(monkeypatch, capsys):
    ended = []
    monkeypatch.setattr(train.os, "_exit", ended.append)
    commands = Commands()
    handler = train._stopper(commands)
    handler(2, None)
    assert commands.stopped()
    assert not ended
    assert "Once more to stop at once" in capsys.readouterr().err
    handler(2, None)
    assert ended == [EXIT_STOPPED]


def test_a_batch_size_may_be_left_to_the_program():
    for text, wanted in (("auto", 0), ("48", 48)):
        arguments = train.make_parser().parse_args(["--data", "photos", "--batch-size", text])
        assert train.configure(arguments, []).batch_size == wanted
