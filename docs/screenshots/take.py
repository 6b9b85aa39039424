"""Takes the README's screenshots from the real program on real photos, in light and dark.

    python docs/screenshots/take.py PHOTOS [--model FILE] [--out docs/screenshots] [--epochs 3]

PHOTOS is a folder of classes. With a display (or under xvfb-run) set QT_QPA_PLATFORM=xcb; without, it runs offscreen.
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

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.application import Program, start

SIZE = (1280, 820)


def wait(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def until(done: Callable[[], bool], seconds: int = 600) -> None:
    for _ in range(seconds * 10):
        if done():
            return
        wait(100)
    raise SystemExit("nothing came of it")


def shoot(program: Program, out: Path, name: str) -> None:
    """The window as it is, in light and in dark."""
    for side in ("light", "dark"):
        program.theme.set(side)
        wait(400)
        program.window.grab().save(str(out / f"{name}-{side}.png"))


def train(program: Program, epochs: int, out: Path) -> None:
    panel = program.window.go("train")
    for name, value in {"model": "squeezenet1_1_bn", "image_size": 96, "epochs": epochs, "batch_size": 32,
                        "learning_rate": 0.003, "time_every": 10}.items():  # fmt: skip
        panel.setup.form.fields[name].set_value(value)
    program.window.actions_.start.trigger()
    until(lambda: program.training.view.epoch is not None and program.training.view.epoch.epoch >= epochs - 1)
    shoot(program, out, "train")
    until(lambda: not program.training.session.busy)
    panel.notice.hide()
    for pane, name in ((panel.kernels, "kernel-times"), (panel.confusion, "confusion")):
        panel.tabs.setCurrentWidget(pane)
        shoot(program, out, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", default="")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["LEAFCLINIC_HOME"] = home
        program = start(QApplication([]), [str(options.photos)])
        assert program is not None
        program.window.resize(*SIZE)
        until(lambda: program.document.table is not None)
        wait(1500)
        shoot(program, options.out, "dataset")
        train(program, options.epochs, options.out)
        program.photo_commands.use_model(options.model or program.training.view.finished.model_path)
        until(lambda: bool(program.diagnosis.ready))
        rows = range(0, len(program.document.table.dataset), max(len(program.document.table.dataset) // 12, 1))
        program.photo_commands.diagnose([program.document.table.dataset.path(row) for row in rows])
        until(lambda: program.diagnosis.rows.rows and not program.diagnosis.working)
        program.window.stack.currentWidget().table.selectRow(1)
        wait(1000)
        shoot(program, options.out, "diagnose")
        kernels = program.window.go("kernels")
        until(lambda: bool(program.ladder.kernels))
        kernels.run.click()
        until(lambda: not program.ladder.running)
        kernels.table.selectRow(len(program.ladder.rows.rows) // 2)
        shoot(program, options.out, "kernels")
        program.window.hide()
        program.close()


if __name__ == "__main__":
    main()
