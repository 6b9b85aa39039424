"""The page of a run: complete without other files, and its commands lead to the run that it describes."""

import re
import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest

from core.command_line import read_arguments
from core.config import RunConfig
from core.device import KernelTime
from core.diagnosis.background_dependence import BackgroundDependence, Baseline
from core.diagnosis.evaluation import Evaluation
from core.diagnosis.metrics import Metrics, Subset, compute_metrics
from core.percent import keep_percents
from core.train import configure, make_parser
from core.training import report
from core.training.charts import MOST_POINTS, ChartSeries, draw_bars, draw_confusion, draw_interval, draw_lines
from core.training.conditions import Conditions
from core.training.events import EpochDone, History, KernelTimes, StepDone, from_line, read_history, to_line
from core.training.presets import PRESETS
from core.training.report import ReportData, describe_reproducibility, render_report
from core.training.run_evaluation import GUESS_NOTE, VALIDATION_NOTE, RunEvaluation
from tests.helpers.browser import look_at
from tests.helpers.models import small_model

CPU = Conditions("1.2", "0.60", "cpu", "avx2", 3)
GPU = Conditions("1.2", "0.60", "cuda", "NVIDIA H200", 0)


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
    history = History(
        None, [StepDone(step + 1, step // 4, 2.0 / (step + 1), 0.5, 1e-3, 4, 0.1, 0.002) for step in range(8)],
        [EpochDone(epoch, 4 * epoch + 4, 1.0, 0.5, 0.9, 0.75, epoch == 1, ((3, 1), (0, 4)), 1.0, 40.0, 99)
         for epoch in range(2)], ["1 photo is excluded."],
    )  # fmt: skip
    logits, labels = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 1]], np.array([0, 0, 0, 0, 1, 1, 1, 1])
    figures = compute_metrics(logits, labels, ("<rust>", "healthy"))
    places = Subset("lab photos", 4, 4), Subset("field photos", 4, 3)
    result = Evaluation(figures, "test photos", places, calibration_error=0.02, chance_error=0.013)
    reading = BackgroundDependence(8, 0.4, 0.5, 0.9, 0.8, 0.7, 0.5)
    evaluation = RunEvaluation("test", result, Baseline(0.4, 0.5), reading)
    bins = [{"photos": 8, "stated": 0.8, "right": 0.9}]
    curve = [[1.0, 0.2, 0.9, 0.0], [0.5, 0.6, 1.0, 0.4]]
    model = small_model(figures.classes, sections={
        "calibration": {"error": 0.02, "chance": 0.013, "bins": bins},
        "rejection": {"score": "energy", "far": 1.0, "no_leaf_class": -1, "no_leaf": 1.0, "curve": curve},
        "data": {"sources": ["Eight photos."]},
    })  # fmt: skip
    return ReportData(RunConfig(model="mlp", epochs=2), history, evaluation, model, CPU, 90.0)


def test_crops_that_are_less_sure_are_named_with_the_reason(data):
    crops = replace(data.model, classes=("<bean>/rust", "rose/healthy"), class_temperatures=(2.0, 0.5))
    page = render_report(replace(data, model=crops))
    assert f"LeafClinic: {crops.graph.name} on" in page, "which a pretrained model sets, not the settings"
    checker = Checker()
    checker.feed(page)
    assert checker.text.count("lowers the confidence of predictions about <bean> (2.000)") == 1
    assert "temperature of its own" not in render_report(data)


def test_the_page_is_whole_and_needs_nothing_else(data):
    checker = Checker()
    checker.feed(render_report(data))
    assert (checker.open, checker.links) == ([], [])
    for words in ("Accuracy 87.5 %: 7 of 8 test photos correct", "<rust>", "1 photo is excluded.", "1.5 minutes",
                  "Eight photos.", "lab photos 100.0 %", "field photos 75.0 %", "Border baseline: 40.0 %",
                  "47.5 points better", "changes from 90.0 % to 70.0 %", "Model card", "leafclinic evaluate",
                  "<rust> was predicted as healthy: 1 of 4 photos", "--epochs 2 --split",
                  "Expected calibration error: 2.0 points (a perfectly calibrated model would have 1.3 by chance)"):
        assert keep_percents(words) in checker.text
    assert "would have 1.3 by chance" in data.evaluation.words()[-1]
    assert max(map(float, re.findall(r'<circle[^>]* r="([\d.]+)"', render_report(data)))) <= 9
    assert checker.text.count("<svg") == 0
    assert keep_percents("validation photos, unchanged 90.0 %; background blurred 80.0 %") in render_report(data)
    table = render_report(data).partition("Settings and run")[2].partition("</table>")[0]
    names = re.findall(r"<tr[^>]*>\s*<td[^>]*>([^<]*)", table)
    assert len(names) == len(set(names)) > 5, names


def test_a_run_without_the_tests_of_the_leaf_says_so(data):
    result = data.evaluation.result
    bare = RunEvaluation("test", replace(result, places=()))
    said = [text in render_report(replace(data, evaluation=bare)) for text in ("Not tested in this", "Border baseline")]
    assert said == [True, False]
    few, bare = (RunEvaluation("test", replace(result, calibration_error=error), data.evaluation.baseline).doubts()
                 for error in (None, 0.02))  # fmt: skip
    assert ("too few validation photos" in few[-1], "no leaf was found" in bare[-1]) == (True, True)
    assert "47.5 points better" in " ".join(few)


def test_a_network_that_is_never_surer_of_one_photo_than_of_another_has_no_curve(data):
    section = {**data.model.sections["rejection"], "curve": 16 * [[1.0, 0.25, 0.4, 0.0]]}
    page = render_report(replace(data, model=replace(data.model, sections={"rejection": section})))
    assert "The model diagnoses every photo" in page
    assert "Minimum confidence" not in page
    assert "Minimum confidence" in render_report(data)


def test_bars_intervals_confusion_and_charts_are_sound_and_long_curves_thinned_out(data):
    figures = data.evaluation.result.figures
    bars = draw_bars("A & B", [("<x>", 0.5, "#000")])
    for drawing in (bars, draw_interval(0.5, (0.2, 0.8)), draw_confusion(figures), draw_lines("t", HALF, "x", "y")):
        root = ET.fromstring(drawing)
        width, height = map(float, root.get("viewBox").split()[2:])
        for part in root.iter():
            assert 0 <= float(part.get("x", 0)) <= width
            assert 0 <= float(part.get("y", 0)) + float(part.get("height", 0) if part is not root else 0) <= height
    assert {">x<", ">y<"} <= set(re.findall(r">[xy]<", drawing))
    assert draw_confusion(figures).count("<rect") == 4  # three counts that are not zero, and the frame
    points = tuple((float(i), float(i % 7)) for i in range(10 * MOST_POINTS))
    svg = draw_lines("A & B", [ChartSeries("one", points), ChartSeries("flat", ((1.0, 5.0), (2.0, 5.0)))], "x", "y")
    root = ET.fromstring(svg)
    lines = root.findall("{*}polyline")
    assert [len(line.get("points").split()) <= MOST_POINTS for line in lines] == [True, True]
    coordinates = [float(c) for line in lines for pair in line.get("points").split() for c in pair.split(",")]
    assert min(coordinates) >= 0
    assert max(coordinates) <= 460


def test_a_history_is_read_from_its_log_without_lines_that_are_no_events_or_cut_short(tmp_path, data):
    log = tmp_path / "events.jsonl"
    times = KernelTimes(3, (KernelTime("conv", "forward", "tiled", 0.5, 10, 20, 0.1),))
    lines = [to_line(e) for e in (*data.history.steps, *data.history.epochs, times)]
    assert from_line(lines[-1]) == times
    odd = ["null", "3", "[]", "{}", '{"event": "EpochDone"}', '{"event": []}']
    odd += [lines[0].replace("0.5", value) for value in ("null", "true", '"1"', "[]", "{}")]
    log.write_text("\n".join([*odd, *lines]) + '\n{"event": "StepDone", "st', "utf-8")
    history = read_history(log)
    assert (history.steps, history.epochs) == (data.history.steps, data.history.epochs)
    assert history.waiting_share() == pytest.approx(0.02)


def test_a_browser_without_network_shows_the_page(data, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(render_report(data), "utf-8")
    dom, shot = look_at(page, tmp_path)
    assert dom.count("<svg") >= 8
    assert "47.5 points better" in dom
    pixels = cv2.imread(str(shot)).reshape(-1, 3)
    assert (np.abs(pixels.astype(int) - (77, 122, 31)).max(axis=1) < 8).sum() > 1000  # bars in green, BGR


FIGURES = Metrics(("rust", "healthy"), ((8, 2), (1, 9)), 0.5)


def test_an_event_tells_every_figure_that_was_measured_and_of_others_none(data):
    told = data.evaluation.to_event()
    assert (told.border, told.commonest, told.plain, told.blurred, told.swapped) == (0.4, 0.5, 0.9, 0.8, 0.7)
    assert told.parts[0] == ("test", 8, 7)
    told = RunEvaluation("test", Evaluation(FIGURES)).to_event()
    assert {told.border, told.commonest, told.plain, told.blurred, told.swapped} == {None}


def test_figures_on_photos_that_chose_the_epoch_and_figures_of_guessing_say_so(data):
    assert RunEvaluation("test", Evaluation(FIGURES)).cautions() == ()
    (said,) = RunEvaluation("test", Evaluation(FIGURES, unseen=Metrics(("a", "b"), ((3, 1), (0, 0)), 0.5))).cautions()
    assert said.startswith("Without known data leakage: photos unseen in training 75.0 % (3 of 4")
    guessed = RunEvaluation("validation", Evaluation(replace(FIGURES, confusion=((7, 3), (7, 3)))), Baseline(0.1, 0.45))
    assert guessed.words()[1:3] == guessed.cautions() == (GUESS_NOTE.format(percent=45), VALIDATION_NOTE)
    assert "points better than the border" not in " ".join(guessed.words())
    few = RunEvaluation("test", Evaluation(Metrics(("a", "b"), ((1, 0), (1, 0)), 0.5)), Baseline(1.0, 0.5))
    assert "reveal the class" not in " ".join(few.words()), "of two photos, also where the network guesses"
    assert all(note.split(" (")[0] in render_report(replace(data, evaluation=guessed)) for note in guessed.cautions())


HALF = [ChartSeries("a", ((0.0, 0.0), (1.0, 0.5)))]


def test_charts_label_shares_in_per_cent_cut_no_number_off_and_need_a_point():
    assert ">50 %<" in draw_lines("shares", HALF, "x", percent=True)
    assert ">0.5<" not in draw_lines("shares", HALF, "x", percent=True)
    assert ">0.5<" in draw_lines("figures", HALF, "x")
    assert "%" not in draw_lines("figures", HALF, "x").replace("100%", "")
    chart = draw_lines("shares", [ChartSeries("a", ((0.0, 0.0), (1.0, 1.0)))], "x", percent=True)
    width = float(re.search(r'viewBox="0 0 (\d+)', chart)[1])
    middles = [float(x) for x in re.findall(r'x="([\d.]+)"[^>]*text-anchor="middle">100 %<', chart)]
    assert middles
    assert all(x + 5 * 7 / 2 <= width for x in middles), "five letters of seven pixels"
    assert draw_lines("nothing", [ChartSeries("a", ())], "x") == ""
    assert draw_lines("nothing", [ChartSeries("a", ((0.0, float("nan")),))], "x") == ""


ODD = RunConfig(data="/my photos/it's", where=("crop=rice", "crop=bean"), start="/w/leaves.safetensors",
                leaf_tests=False, seed=7, learning_rate=2e-4, cache="/tmp/c", out="/runs/a b", epochs=3, model="cnn",
                nesterov=False)  # fmt: skip


@pytest.mark.parametrize("preset", ["", *PRESETS])
def test_the_training_command_is_read_as_the_run_that_was(preset):
    config = replace(ODD, preset=preset)
    recipe = PRESETS[preset].values if preset else {}
    wanted = replace(config, cache="", out="/runs/a b-again", split="/runs/a b/split.csv", device="cpu", threads=3)
    for start, model in (("", "cnn"), (ODD.start, recipe.get("model", RunConfig().model))):  # that of the file later
        words = shlex.split(report.training_command(replace(config, start=start), CPU))
        assert words[:2] == ["leafclinic", "train"]
        assert configure(*read_arguments(make_parser(), words[2:])) == replace(wanted, start=start, model=model)
    plain = RunConfig(data="/p", preset=preset, out="/r", **recipe)
    assert len(shlex.split(report.training_command(plain, GPU))) == (12 if preset else 10), "nothing but what differs"


def test_the_split_of_the_figure_and_what_the_bits_depend_on_are_said():
    assert report.evaluation_command(ODD, "validation") == "leafclinic evaluate '/runs/a b' --split val"
    assert report.evaluation_command(ODD, "test").endswith("--split test")
    assert describe_reproducibility(ODD, CPU).startswith(
        "Computed with seed 7 on LeafClinic 1.2, Numba 0.60, device cpu, processor avx2, threads 3. Under "
        "the same conditions"
    )
    assert "device cuda, processor NVIDIA H200. Under the same" in describe_reproducibility(ODD, GPU)
    assert "minutes" in describe_reproducibility(replace(ODD, minutes=2), CPU)
