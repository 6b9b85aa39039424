"""The page of a run: whole without any other file, and its words follow from the figures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from core.config import RunConfig
from core.device import KernelTime
from core.diagnosis.figures import judge
from core.training.chart import MOST_POINTS, Series, draw_lines
from core.training.events import EpochDone, KernelTimes, StepDone, from_line, to_line
from core.training.history import History, read_history
from core.training.report import ReportData, Section, describe_border, render_report


class Checker(HTMLParser):
    """Refuses tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def data():
    history = History()
    for step in range(8):
        history.add(StepDone(step + 1, step // 4, 2.0 / (step + 1), 0.5, 1e-3, 4, 0.1, 0.002))
    for epoch in range(2):
        history.add(EpochDone(epoch, 4 * epoch + 4, 1.0, 0.5, 0.9, 0.75, epoch == 1, ((3, 1), (0, 4)), 1.0, 40.0, 99))
    figures = judge(np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 1]], np.array([0, 0, 0, 0, 1, 1, 1, 1]), ("<rust>", "healthy"))
    return ReportData(
        config=RunConfig(model="cnn", epochs=2), history=history, figures=figures, judged_on="test", device="cpu",
        parameters=1234, seconds=90.0, warnings=("1 photo is left out.",), border_accuracy=0.6,
        sections=(Section("Calibration", "<p>even</p>"),),
    )


def test_the_page_is_whole_and_needs_nothing_else(data):
    checker = Checker()
    checker.feed(render_report(data))
    assert checker.open == []
    assert checker.links == []
    for words in ("7 of 8 test photos right: 87.5 %", "<rust>", "1 photo is left out.", "1.5 minutes", "Calibration"):
        assert words in checker.text


def test_without_a_test_split_the_page_says_that_the_figure_is_too_kind(data):
    from dataclasses import replace

    assert "too kind" in render_report(replace(data, judged_on="validation"))
    assert "too kind" not in render_report(data)


def test_the_border_baseline_is_put_into_words(data):
    assert "27.5 points better" in describe_border(data.figures, 0.6)
    assert "nothing shows that it looks at the leaves" in describe_border(data.figures, 0.85)


def test_charts_are_sound_and_thin_out_long_curves():
    points = tuple((float(i), float(i % 7)) for i in range(10 * MOST_POINTS))
    svg = draw_lines("A & B", [Series("one", points), Series("flat", ((1.0, 5.0), (2.0, 5.0)))], "x", "y")
    root = ET.fromstring(svg)
    lines = root.findall("polyline")
    assert [len(line.get("points").split()) <= MOST_POINTS for line in lines] == [True, True]
    coordinates = [float(c) for line in lines for pair in line.get("points").split() for c in pair.split(",")]
    assert min(coordinates) >= 0
    assert max(coordinates) <= 460
    assert draw_lines("empty", [Series("none", ())], "x", "y") == ""


def test_a_history_is_read_from_its_log_up_to_a_line_cut_short(tmp_path, data):
    log = tmp_path / "events.jsonl"
    times = KernelTimes(3, (KernelTime("conv", "forward", "tiled", 0.5, 10, 20, 0.1),))
    lines = [to_line(e) for e in (*data.history.steps, *data.history.epochs, times)]
    log.write_text("\n".join(lines) + '\n{"event": "StepDone", "st', "utf-8")
    history = read_history(log)
    assert history.steps == data.history.steps
    assert history.epochs == data.history.epochs
    assert history.kernels == times == from_line(lines[-1])
    assert history.best == data.history.epochs[1]
    assert history.waiting_share() == pytest.approx(0.02)
