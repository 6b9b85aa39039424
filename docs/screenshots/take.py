"""Takes the screenshots of README and user guide from the real program, in light and dark.

    make screenshots                                               of the program's synthetic leaves, into this folder
    python docs/screenshots/take.py PHOTOS --out FOLDER [--model FILE] [--epochs 3]      of your photos

PHOTOS is a folder of classes; pictures that show them go into a folder of yours, because photos are not committed.
With a display (or under xvfb-run) set QT_QPA_PLATFORM=xcb; without, it runs offscreen.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEventLoop, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app.application import Application, start
from app.panels.diagnose.brush import BrushDialog
from app.theme import current_theme

SIZE = (1280, 820)
FOLDER = Path(__file__).parent
GUIDE = FOLDER.parents[1] / "resources" / "guide"
GUIDE_WIDTH = 760
"""Pixels: the width of the guide's page."""
SMOOTH = Qt.TransformationMode.SmoothTransformation


def wait(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def until(done: Callable[[], bool], seconds: int = 600) -> None:
    for _ in range(seconds * 10):
        if done():
            return
        wait(100)
    raise SystemExit(f"Not done after {seconds} seconds.")


def shoot(program: Application, out: Path, name: str) -> None:
    """The window as it is, in light and in dark; the user guide gets a smaller picture."""
    for side in ("light", "dark"):
        current_theme().set(side)
        wait(400)
        picture = program.window.grab()
        picture.save(str(out / f"{name}-{side}.png"))
        if out == FOLDER and side == "light" and (GUIDE / f"{name}.jpg").exists():
            picture.toImage().scaledToWidth(GUIDE_WIDTH, SMOOTH).save(str(GUIDE / f"{name}.jpg"), quality=85)


def open_photos(program: Application, photos: str, out: Path) -> None:
    """The Dataset page, examined."""
    panel = program.window.go("dataset")
    if photos:
        program.commands.open([photos])
    else:
        program.window.actions_.open_demo.trigger()
    until(lambda: program.document.table is not None)
    panel.side.setCurrentWidget(panel.health)
    panel.health.check.click()
    until(lambda: not program.examination.has_process)
    panel.side.setCurrentWidget(panel.split)
    wait(300)
    shoot(program, out, "dataset")


def train(program: Application, epochs: int, out: Path) -> None:
    """The Train page: curves before the end, kernels, mistakes, and what the run reached."""
    panel = program.window.go("train")
    for name, value in {"epochs": epochs, "time_every": 10}.items() if epochs else ():
        panel.setup.form.fields[name].set_value(value)
    program.window.actions_.start.trigger()
    view = program.training.view
    until(lambda: view.epoch is not None and view.started is not None and view.epoch.epoch >= view.started.epochs - 2)
    shoot(program, out, "train")
    until(lambda: not program.training.busy)
    for pane, name in ((panel.outcome, "result"), (panel.kernels, "kernel-times")):
        panel.tabs.setCurrentWidget(pane)
        wait(200)
        shoot(program, out, name)


def diagnose(program: Application, model: str, out: Path) -> None:
    """The Diagnose page with a dozen photos: the class map, then the diseased area in the brush's window."""
    finished, table = program.training.view.finished, program.document.table
    assert finished is not None
    assert table is not None
    program.photo_commands.use_model(model or finished.model_path)
    until(lambda: bool(program.diagnosis.ready))
    dataset = table.dataset
    rows = range(0, len(dataset), max(len(dataset) // 12, 1))
    program.photo_commands.diagnose([dataset.path(row) for row in rows])
    until(lambda: bool(program.diagnosis.rows.rows) and not program.diagnosis.working)
    panel = program.window.page("diagnose")
    sick = [row.id for row in program.diagnosis.rows.rows if row.shown_percent]
    panel.table.selectRow(sick[0] if sick else 0)
    wait(1000)
    shoot(program, out, "diagnose")
    if panel.detail.correct.isVisible():
        panel.detail.correct.click()
        wait(500)
        dialog: BrushDialog = panel.findChild(BrushDialog)
        for side in ("light", "dark"):
            current_theme().set(side)
            wait(300)
            dialog.grab().save(str(out / f"brush-{side}.png"))
        dialog.reject()


def benchmark(program: Application, out: Path) -> None:
    """The Kernels page after a benchmark, with its roofline."""
    panel = program.window.go("kernels")
    until(lambda: bool(program.benchmark.kernels))
    panel.run.click()
    until(lambda: not program.benchmark.running)
    panel.table.selectRow(len(program.benchmark.rows.rows) // 2)
    shoot(program, out, "kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="?", default="")
    parser.add_argument("--model", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=0, help="fewer than the recipe's")
    options = parser.parse_args()
    if options.photos and options.out is None:
        parser.error("name a folder of yours for pictures of your photos with --out")
    out = options.out or FOLDER
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["LEAFCLINIC_HOME"] = home
        program = start(QApplication([]), [])
        assert program is not None
        program.window.resize(*SIZE)
        open_photos(program, options.photos, out)
        train(program, options.epochs, out)
        diagnose(program, options.model, out)
        benchmark(program, out)
        program.window.hide()
        program.close()


if __name__ == "__main__":
    main()
