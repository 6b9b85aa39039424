"""How the window feels: start, event-loop gaps while a network trains on all cores, 50,000 photos, diagnoses.

    python -m benchmarks.gui_latency [--only start,folder,million,results,reports,train,diagnose] [--seconds 75]

With 75 seconds it takes five minutes and wants the machine for itself. What the window costs the training is measured
interleaved (headless, with the window, headless ...), with the same priority (the window's process gives way to all
others) and without the clock that finds gaps. Each row's ratio is allowed over
measured (or measured over wanted for rates): above 1 holds. The window runs offscreen, so drawing is done by the
processor, as on a machine without a GPU; give QT_QPA_PLATFORM to change that.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from app import collector
from app.application import Application, start
from app.main_window import FIRST_SIZE
from app.mask import encode_mask
from app.processes.entry import NICE
from app.viewmodels.result import PhotoResult
from app.viewmodels.training import start_request
from benchmarks.event_loop import Gaps, until, wait
from benchmarks.record import Row, write_results
from core.data.photo_format import EXTENSIONS
from core.data.synthetic import write_demo
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.severity import Severity
from core.diagnosis.thresholds import CoveragePoint, Thresholds

FOLDER = 50_000
MILLION = 1_000_000
RESULTS = 100_000
REPORT = 800
"""Photos of the reports that are timed."""
PARTS = "start,folder,million,results,reports,train,diagnose"
TURNS = 4
"""Headless and with the window each; one more headless at the end."""
TURNS_PART = 5
"""The turns that only compare speeds last so much shorter than the one in which gaps are measured."""
NAP_MS = 3000
"""Before measuring: what the window does once after it was shown is over."""


def at_most(name: str, measured: float, allowed: float, unit: str) -> Row:
    return Row(name, measured, {}, unit, allowed / max(measured, 1e-9))


def at_least(name: str, measured: float, wanted: float, unit: str) -> Row:
    return Row(name, measured, {}, unit, measured / wanted)


def time_start(home: Path) -> list[Row]:
    """From the command to a window that has been drawn and reacts; median of five."""
    code = (
        "import sys; from PySide6.QtWidgets import QApplication; from app.application import start; "
        "a = QApplication([]); p = start(a, []); a.processEvents(); a.processEvents(); print('shown', flush=True); "
        "p.close()"
    )
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "LEAFCLINIC_HOME": str(home / "s")}
        )
        assert process.stdout is not None
        process.stdout.readline()
        found.append(time.perf_counter() - begin)
        process.communicate()
    return [at_most("start to a usable window", float(np.median(found)), 2.0, "s")]


def write_many(folder: Path) -> None:
    """50,000 photo files of ten classes; the contents repeat."""
    random = np.random.default_rng(0)
    pictures = [cv2.imencode(".jpg", random.integers(0, 255, (96, 96, 3), np.uint8))[1].tobytes() for _ in range(50)]
    for number in range(FOLDER):
        if number < 10:
            (folder / f"class{number}").mkdir(parents=True)
        (folder / f"class{number % 10}" / f"{number:05d}.jpg").write_bytes(pictures[number % 50])


def time_folder(program: Application, home: Path) -> list[Row]:
    """Open a folder of 50,000 photos, wait for the first thumbnails, scroll through."""
    folder = home / "many"
    write_many(folder)
    panel = program.window.go("dataset")
    wait(NAP_MS)
    gaps = Gaps()
    gaps.start()
    first = []
    program.thumbnails.ready.connect(lambda _: first.append(time.perf_counter()) if not first else None)
    begin = time.perf_counter()
    program.commands.open([str(folder)])
    until(lambda: bool(first))
    wait(1000)
    bar = panel.grid.verticalScrollBar()
    for step in range(200):
        bar.setValue(bar.maximum() * step // 200)
        wait(20)
    found = gaps.stop()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        at_most("first thumbnails of 50,000 photos", first[0] - begin, 1.0, "s"),
        at_most("worst gap while opening and scrolling 50,000 photos", float(found.max()), 100.0, "ms"),
        at_most("memory of the window with 50,000 photos", memory, 600.0, "MB"),
    ]


def time_million(program: Application, home: Path) -> list[Row]:
    """A manifest of a million photos: search, select all, and Start after one of them was left out, so that a manifest
    of the others has to be written."""
    manifest = home / "million.csv"
    with manifest.open("w") as file:
        file.write("path,label\n")
        file.writelines(f"Photos/farm{n % 37:02d}/IMG_{n:07d}.jpg,class{n % 10}\n" for n in range(MILLION))
    panel = program.window.go("dataset")
    program.commands.open([str(manifest)])
    until(lambda: program.document.table is not None and len(program.document.table.dataset) == MILLION)
    wait(NAP_MS)
    gaps, worst = Gaps(), {}

    def act(name: str, do: Callable[[], object], done: Callable[[], bool]) -> None:
        gaps.start()
        do()
        until(done)
        wait(500)
        worst[name] = float(gaps.stop().max())

    act("search, few found", lambda: panel.search.setText("_00077"), lambda: panel.photos.rowCount() == 100)
    act("search, all found", lambda: panel.search.setText("farm"), lambda: panel.photos.rowCount() == MILLION)
    act("all selected", panel.grid.selectAll, lambda: len(panel.selection()) == MILLION)
    program.document.exclude(np.array([0]), True)
    program.window.go("train")
    wait(NAP_MS)
    act("Start", program.window.actions_.start.trigger, lambda: program.training.busy)
    program.training.stop()
    until(lambda: not program.training.busy)
    program.window.go("dataset")
    program.document.exclude(np.arange(0, MILLION, 100), True)
    wait(2 * NAP_MS)
    opened = list[bool]()
    program.document.opened.connect(lambda: opened.append(True))
    act("reopened with 10,000 edits", lambda: program.commands.open([str(manifest)]), lambda: bool(opened))
    return [at_most(f"worst gap with a million photos: {name}", found, 100.0, "ms") for name, found in worst.items()]


def time_results(program: Application) -> list[Row]:
    """100,000 diagnosed photos in the table: sort them by a click, search them, move the slider."""
    random, classes = np.random.default_rng(0), ("tomato/late_blight", "tomato/healthy", "bean/rust")
    until(lambda: bool(program.diagnosis.ready))  # the model of the first start; its classes would replace these
    model = ModelIdentity(**program.diagnosis.ready["model"])
    program.diagnosis.ready = {"classes": classes}
    curve = tuple(CoveragePoint(c, t, 0.99, 0.02) for c, t in ((1.0, 0.5), (0.95, 0.56), (0.5, 0.74)))
    program.diagnosis.verdicts.thresholds = Thresholds("energy", -10.0, -1, 1.0, curve)
    shares = random.dirichlet((8.0, 2.0, 1.0), RESULTS)
    order = np.argsort(-shares, axis=1)
    rows = [
        PhotoResult(n, f"/photos/farm{n % 37:02d}/IMG_{name:06d}.jpg", True, classes[best[0]],
               tuple((classes[at], share[at]) for at in best), diseased=100 * share[0],
               probabilities=tuple(share), model=model)
        for n, (name, best, share) in enumerate(
            zip(random.permutation(RESULTS).tolist(), order.tolist(), shares.tolist(), strict=True))
    ]  # fmt: skip
    panel = program.window.go("diagnose")
    program.diagnosis.rows.append(rows)
    gc.collect()
    collector.freeze_many()  # as it happens bit by bit while photos are diagnosed
    panel.coverage._on_model()
    wait(NAP_MS)
    table, gaps, found, down = panel.table.model(), Gaps(), [], Qt.SortOrder.DescendingOrder

    def act(name: str, do: Callable[[], object], done: Callable[[], bool]) -> None:
        gaps.start()
        took = gaps.until(do, done)
        wait(300)
        found.append(at_most(f"100,000 results: {name}", took, 0.3, "s"))
        found.append(at_most(f"100,000 results: {name}, worst gap", float(gaps.stop().max()), 50.0, "ms"))

    highest = Path(max(rows, key=lambda row: row.probability).path).stem
    act("sort by name", lambda: panel.table.sortByColumn(0, down), lambda: table.index(0, 0).data() == "IMG_099999")
    act("sort by probability", lambda: panel.table.sortByColumn(2, down), lambda: table.index(0, 0).data() == highest)
    act("search, few found", lambda: panel.search.setText("IMG_0007"), lambda: table.rowCount() == 100)
    act("search, all found", lambda: panel.search.setText("IMG"), lambda: table.rowCount() == RESULTS)
    act("search given up", lambda: panel.search.setText(""), lambda: table.rowCount() == RESULTS)
    act("slider", lambda: panel.coverage.slider.setValue(1), lambda: "not diagnosed" in panel.state.text())
    return found


def time_reports(program: Application, home: Path, folder: Path) -> list[Row]:
    """Reports of 800 diagnosed photos, from the click to the file; half of the leaves are diseased."""
    photos = sorted(str(p) for p in folder.rglob("*") if p.suffix.lower() in EXTENSIONS)
    leaf, lesions = (np.zeros((224, 224), bool) for _ in range(2))
    leaf[30:200, 30:200], lesions[60:90, 60:90] = True, True
    area = encode_mask(Severity(leaf, lesions), (0.0, 0.0, 1.0, 1.0))
    step = max(len(photos) // REPORT, 1)
    results = [
        PhotoResult(n, photos[n * step % len(photos)], True, name, ((name, 0.97), ("bean/rust", 0.02)), diseased=3.1,
               measured=area, model=ModelIdentity("leaves", "0" * 64, "2026-11-22"))
        for n, name in enumerate(("tomato/late_blight", "tomato/healthy") * (REPORT // 2))
    ]  # fmt: skip
    found, allowed = [], {"html": 5.0, "pdf": 8.0}
    for kind, seconds in allowed.items():
        target = home / f"report.{kind}"
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        program.exports.start(kind, str(target), results, remarks=[])
        took = until(lambda: not program.exports.has_process)
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used
        print(f"{kind}: {used:.1f} s of processor time")
        found.append(at_most(f"report of 800 photos: {kind}", took, seconds, "s"))
        if kind == "html":
            found.append(at_most("report of 800 photos: size of html", 1e-6 * target.stat().st_size, 10.0, "MB"))
    return found


def train_settings(data: Path, out: Path, seconds: float) -> dict[str, Any]:
    return {
        "data": str(data), "out": str(out), "model": "squeezenet1_1", "image_size": 128, "batch_size": 32,
        "epochs": 10_000, "minutes": seconds / 60, "checkpoint_seconds": 15.0, "device": "cpu", "leaf_tests": False,
    }  # fmt: skip


def speed(folder: Path) -> float:
    """Photos per second over all steps of a run but the first ten, from its log: a redraw slows few steps, so that the
    median step would not show it."""
    lines = (folder / "events.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines if '"StepDone"' in line[:24]]
    if len(steps) < 20:
        raise SystemExit(f"only {len(steps)} steps in {folder}: give more --seconds")
    return sum(s["photos"] for s in steps[10:]) / sum(s["seconds"] for s in steps[10:])


def train_headless(data: Path, folder: Path, seconds: float) -> float:
    """Speed of the same training from the command line, without any window, as ready to give way as the window's."""
    options = train_settings(data, folder, seconds)
    said = {True: "yes", False: "no"}
    command = [f"--{name.replace('_', '-')}={said.get(value, value)}" for name, value in options.items()]
    process = subprocess.Popen([sys.executable, "-m", "core.train", *command], stdout=subprocess.DEVNULL)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    if process.wait():
        raise SystemExit(f"the training in {folder} failed")
    return speed(folder)


def train_in_window(program: Application, data: Path, folder: Path, seconds: float, gaps: Gaps | None = None) -> float:
    """The same from the window with its curves in sight, from the tenth step to the end: the share of a core that the
    window itself took, and the gaps of its event loop where they are wanted."""
    from core.config import from_dict, to_dict

    panel = program.window.go("train")
    panel.tabs.setCurrentWidget(panel.curves)
    panel.setup.form.take_over(to_dict(from_dict(train_settings(data, folder, seconds))))
    config = panel.setup.config(str(data), str(folder))
    assert config is not None
    program.training.start(start_request(config))
    until(lambda: program.training.view.step > 10, every_ms=100)
    if gaps is not None:
        gaps.start()
    begin, used = time.perf_counter(), time.process_time()
    until(lambda: not program.training.busy, seconds + 120, every_ms=500)
    return (time.process_time() - used) / (time.perf_counter() - begin)


def time_training(program: Application, home: Path, data: Path, seconds: float) -> list[Row]:
    """Gaps while SqueezeNet trains on all cores with the curves in sight, and what the window costs the training."""
    program.window.go("dataset")
    program.document.open(str(data))
    until(lambda: program.document.table is not None)
    gaps = Gaps()
    train_in_window(program, data, home / "gaps", seconds, gaps)
    found = gaps.stop()
    turn = seconds / TURNS_PART
    headless = [train_headless(data, home / "h0", turn)]
    windowed, shares = [], []
    for number in range(1, TURNS + 1):
        shares.append(train_in_window(program, data, home / f"w{number}", turn))
        windowed.append(speed(home / f"w{number}"))
        headless.append(train_headless(data, home / f"h{number}", turn))
    beside = [2 * w / (a + b) for w, a, b in zip(windowed, headless, headless[1:], strict=False)]
    print("photos/s headless", *(f"{s:.0f}" for s in headless), "with the window", *(f"{s:.0f}" for s in windowed))
    return [
        at_most("event loop gap p99", float(np.percentile(found, 99)), 20.0, "ms"),
        at_most("event loop gap worst", float(found.max()), 100.0, "ms"),
        at_most("the window's share of a core while training", float(np.median(shares)), 0.06, "core"),
        Row("training with the window open", float(np.median(windowed)), {"headless": float(np.median(headless))},
            "photos/s", float(np.median(beside))),
    ]  # fmt: skip


def time_diagnoses(program: Application, home: Path, model: str) -> list[Row]:
    """One 12-megapixel photo when all is warm, from the drop to the drawn answer; then 500 at once."""
    random = np.random.default_rng(0)
    small = random.integers(0, 255, (94, 125, 3), np.uint8)
    large = cv2.imencode(".jpg", cv2.resize(small, (4000, 3000), interpolation=cv2.INTER_CUBIC))[1].tobytes()
    program.photo_commands.use_model(model)
    panel = program.window.go("diagnose")
    until(lambda: bool(program.diagnosis.ready))
    found = []
    for turn in range(9):
        photo = home / f"large{turn}.jpg"  # a photo that is in the list already is not diagnosed again
        photo.write_bytes(large)
        program.photo_commands.diagnose([str(photo)])
        number = len(program.diagnosis.rows.rows) - 1
        panel.table.selectRow(number)
        found.append(until(lambda n=number: panel.detail.shown is not None and panel.detail.shown.id == n
                           and panel.detail.shown.done))  # fmt: skip
        wait(100)
    photos = sorted((home / "demo").rglob("*.jpg"))
    (home / "batch").mkdir()
    for number in range(500):
        shutil.copy(photos[number % len(photos)], home / "batch" / f"{number}.jpg")
    gaps = Gaps()
    gaps.start()
    program.photo_commands.diagnose([str(path) for path in (home / "batch").iterdir()])
    begin = time.perf_counter()
    until(lambda: program.diagnosis.working)  # many are listed in a thread
    until(lambda: not program.diagnosis.working)
    took = time.perf_counter() - begin
    worst = float(gaps.stop().max())
    return [
        at_most("diagnosis of a 12-megapixel photo, warm", 1000 * float(np.median(found[2:])), 300.0, "ms"),
        at_least("diagnoses of 500 photos at once", 500 / took, 20.0, "photos/s"),
        at_most("worst gap during 500 diagnoses", worst, 100.0, "ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=PARTS)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--model", default="", help="model file for the diagnoses (default: the one just trained)")
    parser.add_argument("--photos", type=Path, help="folder of photos for the reports (default: synthetic leaves)")
    options = parser.parse_args()
    parts, begun = options.only.split(","), time.perf_counter()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        os.environ["LEAFCLINIC_HOME"] = str(home / "home")
        if "start" in parts:
            rows += time_start(home)
        program = start(QApplication([]), [])
        assert program is not None
        program.window.resize(FIRST_SIZE)  # an offscreen run's screen has 800 x 800 pixels
        demo = write_demo(home / "demo", 60, 160)
        measures: dict[str, Callable[[], list[Row]]] = {
            "folder": lambda: time_folder(program, home),
            "million": lambda: time_million(program, home),
            "results": lambda: time_results(program),
            "reports": lambda: time_reports(program, home, options.photos or demo.parent),
            "train": lambda: time_training(program, home, demo, options.seconds),
            "diagnose": lambda: time_diagnoses(
                program, home, options.model or program.training.view.finished.model_path
            ),
        }
        for part in (part for part in measures if part in parts):
            print(f"{part} after {time.perf_counter() - begun:.0f} s", flush=True)
            rows += measures[part]()
        program.window.hide()
        program.close()
        print(f"took {time.perf_counter() - begun:.0f} s")
        order = [row.name for row in rows]  # rows of other parts stay in the file
        write_results("gui_latency", rows, order=order, seconds=options.seconds, parts=options.only)


if __name__ == "__main__":
    main()
