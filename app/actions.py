"""Every action of the program with its text, shortcut and tooltip, in one table."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Final

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMainWindow

from app.translation import LANGUAGES, tr

Keys = QKeySequence.StandardKey


class Actions(SimpleNamespace):
    """The actions by their names in the table below."""

    def connect(self, **functions: Callable[[], object]) -> None:
        for name, function in functions.items():
            getattr(self, name).triggered.connect(lambda _=False, function=function: function())


def _rows() -> dict[str, tuple[str, object, str]]:
    """Name to (text, shortcut, tooltip)."""
    return {
        "open_folder": (tr("&Open folder…"), Keys.Open, tr("A folder whose subfolders are the classes")),
        "open_manifest": (tr("Open &manifest…"), "Ctrl+Shift+O", tr("A CSV file with a photo and its class per line")),
        "open_demo": (tr("Open s&ynthetic leaves"), "Ctrl+Shift+D", tr("Synthetic leaves to try the program with")),
        "quit": (tr("&Quit"), "Ctrl+Q", tr("End LeafClinic")),
        "undo": (tr("&Undo"), Keys.Undo, tr("Undo the last change")),
        "redo": (tr("&Redo"), "Ctrl+Shift+Z", tr("Redo the change that was undone")),
        "find": (tr("&Search"), Keys.Find, tr("Search the photos or results on this page")),
        "exclude": (tr("E&xclude photos"), "Del", tr("Exclude the selected photos from training")),
        "include": (tr("&Include photos again"), "Ctrl+Del", tr("Include the selected photos again")),
        "start": (tr("&Start training"), "Ctrl+R", tr("Train with these settings")),
        "pause": (tr("&Pause"), "Ctrl+P", tr("Pause the training; the computer is free until you resume")),
        "stop": (tr("S&top"), "Ctrl+.", tr("Save and stop; you can resume the run later")),
        "diagnose_photos": (tr("Diagnose &photos…"), "Ctrl+D", tr("Choose photos of leaves")),
        "diagnose_folder": (tr("Diagnose a &folder…"), "Ctrl+Shift+F", tr("All photos of a folder")),
        "paste": (tr("P&aste a picture"), Keys.Paste, tr("Diagnose the picture in the clipboard")),
        "camera": (tr("Take a photo with the &camera…"), "Ctrl+K", tr("Diagnose a leaf held to the camera")),
        "choose_model": (tr("&Models…"), "Ctrl+M", tr("The list of models to diagnose with")),
        "export_model": (tr("Export the m&odel as ONNX…"), "Ctrl+Shift+M", tr("For use in other programs")),
        "export_csv": (tr("Export &CSV…"), "Ctrl+E", tr("Listed results as a table")),
        "export_html": (tr("Export &report…"), "Ctrl+Shift+E", tr("Listed results with pictures, as one HTML page")),
        "export_pdf": (tr("Export P&DF…"), "Ctrl+Alt+E", tr("Listed results with pictures, to print or to send")),
        "run_report": (tr("Open the r&un's report"), "Ctrl+Shift+R", tr("The report of the run shown, in the browser")),
        "run_pdf": (tr("Save the report as PD&F…"), "Ctrl+Alt+R", tr("The report of the run shown, to print")),
        **_view_rows(),
    }


def _view_rows() -> dict[str, tuple[str, object, str]]:
    """The same for pages, colours, languages, storage and help."""
    return {
        "go_dataset": (tr("&Dataset"), "Ctrl+1", tr("Photos, classes, quality, split")),
        "go_train": (tr("&Train"), "Ctrl+2", tr("Settings, live curves, kernels, runs")),
        "go_diagnose": (tr("D&iagnose"), "Ctrl+3", tr("What is wrong with these leaves?")),
        "go_kernels": (tr("&Kernels"), "Ctrl+4", tr("Every kernel, verified and timed")),
        "theme_system": (tr("As the &system"), None, tr("Light or dark, as set in the system")),
        "theme_light": (tr("&Light"), None, tr("Always light")),
        "theme_dark": (tr("D&ark"), None, tr("Always dark")),
        "language_system": (tr("Language of the system"), None, tr("Language of the user interface")),
        **{f"language_{code}": (name, None, tr("Language of the user interface")) for code, name in LANGUAGES.items()},
        "open_log": (tr("Open the &log"), None, tr("The messages of the program")),
        "storage": (tr("Sto&rage…"), None, tr("Decoded photos and compiled kernels: size, limit, clearing")),
        "guide": (tr("User &guide"), "F1", tr("How to diagnose, train and read the results")),
        "about": (tr("&About LeafClinic"), None, tr("Version, privacy, licence")),
    }


GROUPS: Final = (
    ("go_dataset", "go_train", "go_diagnose", "go_kernels"),
    ("theme_system", "theme_light", "theme_dark"),
    ("language_system", *(f"language_{code}" for code in LANGUAGES)),
)
"""Actions of which one is checked; the first group is the pages, in their order."""
MENUS: Final = {
    "&File": ("open_folder", "open_manifest", "open_demo", "", "export_csv", "export_html", "export_pdf", "", "quit"),
    "&Edit": ("undo", "redo", "", "find", "", "exclude", "include", "", "paste"),
    "&Training": ("start", "pause", "stop", "", "run_report", "run_pdf"),
    "&Diagnosis": ("diagnose_photos", "diagnose_folder", "paste", "camera", "", "choose_model", "export_model"),
    "&View": (*GROUPS[0], "", *GROUPS[1], "", *GROUPS[2], "", "storage"),
    "&Help": ("guide", "", "open_log", "about"),
}


def build_actions(window: QMainWindow) -> Actions:
    """Create all actions and add them to the window, so that their shortcuts work on every page."""
    made = {}
    for name, (text, keys, tip) in _rows().items():
        action = QAction(text, window, toolTip=tip, statusTip=tip)
        action.setObjectName(name)
        if keys is not None:
            action.setShortcut(QKeySequence(keys))  # type: ignore[call-overload]
        window.addAction(action)
        made[name] = action
    for names in GROUPS:
        group = QActionGroup(window)
        for name in names:
            made[name].setCheckable(True)
            group.addAction(made[name])
    return Actions(**made)


def build_menus(window: QMainWindow, actions: Actions) -> None:
    for title, names in MENUS.items():
        menu = window.menuBar().addMenu(tr(title))
        for name in names:
            if name:
                menu.addAction(getattr(actions, name))
            else:
                menu.addSeparator()
