"""The program's own `main` on a display (Xvfb), with a real window, a real folder and a picture of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from tests.helpers.programs import find_program
from tests.helpers.window import write_folder

pytestmark = [pytest.mark.gui, pytest.mark.styled]

ROOT = Path(__file__).parents[2]
PICTURES = "LEAFCLINIC_SCREENSHOTS"
"""Folder that keeps the pictures, for people who look at what a change did."""

PROGRAM = """
import sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app.__main__ import main
from app.main_window import MainWindow

folder, picture, theme = sys.argv[1:]
application = QApplication(sys.argv[:1])

def look():
    window = next(w for w in application.topLevelWidgets() if isinstance(w, MainWindow))
    getattr(window.actions_, f"theme_{theme}").trigger()
    if window.page("dataset").photos.rowCount() == 0:
        QTimer.singleShot(100, look)
        return
    QTimer.singleShot(600, lambda: finish(window))

def finish(window):
    assert application.platformName() == "xcb"
    application.primaryScreen().grabWindow(window.winId()).save(picture)
    window.actions_.quit.trigger()

QTimer.singleShot(200, look)
sys.exit(main([folder]))
"""


@pytest.fixture(scope="module")
def display():
    """A display of our own; its number."""
    server = find_program("Xvfb")
    reading, writing = os.pipe()
    command = [server, "-displayfd", str(writing), "-screen", "0", "1400x900x24", "-nolisten", "tcp"]
    process = subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as answer:
        yield answer.readline().strip()
    process.terminate()
    process.wait()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_window_opens_a_folder_on_a_real_display(display, tmp_path, theme):
    folder = write_folder(tmp_path / "leaves", {"healthy": 6, "rust": 6})
    place = Path(os.environ.get(PICTURES) or tmp_path)
    place.mkdir(parents=True, exist_ok=True)
    picture = place / f"window-{theme}.png"
    here = {"DISPLAY": f":{display}", "QT_QPA_PLATFORM": "xcb", "LEAFCLINIC_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", PROGRAM, str(folder), str(picture), theme]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **here}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    image = QImage(str(picture))
    assert image.width() >= 960
    background = image.pixelColor(image.width() - 8, image.height() // 2).lightness()
    assert background > 200 if theme == "light" else background < 60
