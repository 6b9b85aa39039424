"""What a terminal shows: a bar that replaces itself, plain lines elsewhere, sentences at the end."""

import io
import re

import pytest

from core.training import terminal
from core.training.events import EpochDone, Progress, RunEvaluated, RunFinished, RunStarted, StepDone, Warned
from core.training.terminal import TerminalReader, describe_seconds

STARTED = RunStarted("runs/x", "cnn", "cpu", ("a", "b"), 100, 20, 20, 3, 10, 0, 5 << 20, ("tiled",))
EVENTS = [Progress("scan", 120, 120), STARTED, Warned("2 photos are left out."),
          *(StepDone(i + 1, 0, 1.0 / (i + 1), 0.5, 1e-3, 10, 0.1, 0.0) for i in range(10)),
          EpochDone(0, 10, 0.3, 0.8, 0.25, 0.9, True, ((9, 1), (1, 9)), 1.0, 100.0, 5 << 20),
          RunFinished("completed", 30, 0, 0.9, 0.85, "runs/x/best.safetensors", "runs/x/report.html", 65.0)]


def shown(moving, events=EVENTS):
    stream = io.StringIO()
    reader = TerminalReader(stream, moving)
    for event in events:
        reader.show(event)
    return stream.getvalue()


def test_where_nobody_watches_there_are_plain_lines(monkeypatch):
    monkeypatch.setattr(terminal, "REDRAW_SECONDS", 0.0)
    text = shown(False, [EVENTS[0], *EVENTS])
    assert "epoch 1/3 [" not in text, "no bar for each step"
    assert text.count("120 of 120") == 1
    assert "\r" not in text
    assert "\x1b" not in text
    for words in ("Listing photos: 120 of 120", "cnn on cpu, 2 classes, 100 training", "step needs 5 MB.",
                  "Note: 2 photos", "validation loss 0.250, accuracy 90.0 % (best so far)",
                  "Model saved to runs/x/best.safetensors", "Done after 1:05"):
        assert words in text


def test_the_end_says_what_the_figure_rests_on_or_that_nothing_was_saved():
    words = ("Right: 85.0 %.", "The border: 60 %.")
    judged = RunEvaluated("test", (("test", 20, 17),), 0.6, 0.5, 0.9, 0.8, 0.7, words)
    text = shown(False, [STARTED, judged, EVENTS[-1]])
    assert "Right: 85.0 %.\nThe border: 60 %.\nModel saved to" in text
    out = io.StringIO()
    TerminalReader(out, False).show(RunFinished("stopped", 0, -1, 0.0, None, "", "", 0.0))
    assert out.getvalue() == "Stopped before the first step. Nothing was changed.\n"


def test_in_a_terminal_the_bar_moves_and_is_wiped_before_lines(monkeypatch):
    monkeypatch.setattr(terminal, "REDRAW_SECONDS", 0.0)
    text = shown(moving=True)
    assert re.search(r"1/10 loss 1\.000 .*\[####\.{16}\] 2/10 loss 0\.9\d\d accuracy 50\.0 % 100 photos/s", text)
    assert "left" in text
    last_bar, line = text.split("[####################] 10/10")[1].split("epoch 1/3:")
    assert last_bar.endswith("\r\x1b[2K")
    assert line.startswith(" loss 0.300")


@pytest.mark.parametrize(("seconds", "words"), [(0, "0:00"), (65.4, "1:05"), (7389, "2:03:09")])
def test_seconds_are_read_as_a_clock(seconds, words):
    assert describe_seconds(seconds) == words
