"""The composition root: builds all parts of the program and connects them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QApplication, QMessageBox, QTabWidget, QWidget

from app import paths, resources, translation
from app.collector import Collector
from app.commands import WindowCommands
from app.crash import CrashReporter
from app.instance import FirstInstance, hand_over
from app.main_window import PAGES, MainWindow
from app.paths import FIRST_PAGE, Settings
from app.photo_commands import PhotoCommands
from app.processes.entry import command, end_ahead
from app.run_commands import RunCommands
from app.synthetic_leaves import SyntheticTour
from app.task import Task
from app.theme import current_theme
from app.viewmodels import kernel_benchmark, result
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.document import Document
from app.viewmodels.examination import ExaminationModel
from app.viewmodels.kernel_benchmark import KernelBenchmark
from app.viewmodels.memory_estimate import MemoryEstimate
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.review import ReviewModel
from app.viewmodels.thumbnails import Thumbnails
from app.viewmodels.training import TrainingModel
from app.viewmodels.writing import Writing
from app.widgets.fields import SearchField
from app.widgets.notice import follow_writing
from app.widgets.parts import Slot
from app.widgets.table_view import Table
from core.config import to_dict
from core.diagnosis.model_identity import SHIPPED_MODELS
from core.errors import EXIT_FAILED, LeafClinicError
from core.storage import check_writable

SWITCH_INTERVAL_S: Final = 0.0005
"""Seconds after which a computing thread releases the interpreter lock (Python's default is ten times that). Drawing a
table asks for hundreds of texts, and each may wait that long."""
HAND_OVER_S: Final = 5.0
"""Seconds to wait for a window that was started at the same moment to start listening."""


def run(given: Sequence[str]) -> int:
    """Run the program from start to end; a second start hands its paths to the first and ends."""
    application = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(application, QApplication)
    try:
        for name in ("settings", "logs"):
            check_writable(paths.home() / name, paths.OTHER)
        program = start(application, given)
    except LeafClinicError as error:  # the program needs its own folder
        sys.stderr.write(f"{error}\n")
        QMessageBox(QMessageBox.Icon.Critical, "LeafClinic", str(error)).exec()
        return EXIT_FAILED
    if program is None:
        return 0
    signal.signal(signal.SIGINT, lambda number, frame: QTimer.singleShot(0, application.closeAllWindows))
    code = application.exec()
    program.close()
    return code


def start(application: QApplication, given: Sequence[str]) -> Application | None:
    """Build the program without running the event loop; None if another window took over."""
    wanted = [str(Path(p).absolute()) for p in given]
    if hand_over(wanted):
        end_ahead()
        return None
    program = Application(application)
    if not program.first.alone and hand_over(wanted, HAND_OVER_S):
        program.close()
        program.window.deleteLater()
        return None
    program.window.show()
    program.commands.open_named(list(given))
    return program


class Application:
    """Everything that lives as long as the window."""

    def __init__(self, application: QApplication) -> None:
        self.application = application
        application.setApplicationName("leafclinic")
        application.setApplicationDisplayName("LeafClinic")
        QGuiApplication.setDesktopFileName("leafclinic")
        application.setWindowIcon(QIcon(resources.pixmap("leafclinic", "", 128)))
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.collector = Collector(application)
        self.crash = CrashReporter(application)
        self.settings = Settings(paths.settings_store())
        translation.install(application, self.settings.text("language", "system"))
        current_theme().set(self.settings.text("theme", "system"))
        self.document = Document(application)
        self.thumbnails = Thumbnails(application)
        self.photos = Thumbnails(application, side=1400, cached=8, whole=True)
        self.examination = ExaminationModel(self.document, application)
        self.review = ReviewModel(self.document, application)
        self.training = TrainingModel(command("training"), application)
        self.diagnosis = DiagnosisModel(application)
        for changed in (self.document.opened, self.diagnosis.replaced):
            changed.connect(self.photos.forget)
        self.document.opened.connect(self.thumbnails.forget)
        self.benchmark = KernelBenchmark(application)
        self.memory = MemoryEstimate(application)
        self.exports, self.prints = Writing(application), Writing(application)
        self.first = FirstInstance(application)
        self._make_window()
        self._go_back()

    def _make_window(self) -> None:
        self.window = MainWindow()
        self.photo_commands = PhotoCommands(self.window, self.settings, self.diagnosis, self.document, self.exports)
        pictures = (self.thumbnails, self.photos)
        self.run_commands = RunCommands(self.window, self.document, self.training, pictures, self.prints)
        self.tour = SyntheticTour(self.window, self.document, self.training, self.photo_commands)
        self.commands = WindowCommands(
            self.window, self.settings, self.document, self.training, self.photo_commands, self.diagnosis,
            (self.exports, self.prints), self.first, self.crash,
        )  # fmt: skip
        self.window.makers = {name: partial(make, self) for name, make in MAKERS.items()}
        window = self.window
        self.commands.language_chosen.connect(
            lambda name: QTimer.singleShot(0, window, lambda: self.change_language(name))
        )

    def change_language(self, language: str) -> None:
        """Change the language: replace the window by a new one that keeps what is open, listed and running."""
        old, train, diagnose = self.window, self.window.made.get("train"), self.window.made.get("diagnose")
        page = old.current
        translation.remove(self.application)
        translation.install(self.application, language)
        self.diagnosis.rows.set_columns(result.columns(self.diagnosis.plants.of, self.diagnosis.titles))
        self.diagnosis.rows.set_filter("")
        self.benchmark.rows.set_columns(kernel_benchmark.columns())
        self.commands.close()
        self._make_window()
        self.window.restoreGeometry(old.saveGeometry())
        if train is not None:
            self.window.page("train").take_over(train)
        if diagnose is not None:
            self.window.page("diagnose").table.selectRow(diagnose.table.currentIndex().row())
            if not diagnose.notice.isHidden():
                self.photo_commands.offer_again()
        for name, before in old.made.items():
            now = self.window.page(name)
            for tabs, shown in zip(now.findChildren(QTabWidget), before.findChildren(QTabWidget), strict=True):
                tabs.setCurrentIndex(shown.currentIndex())
            for table, sorted_ in zip(now.findChildren(Table), before.findChildren(Table), strict=True):
                table.sortByColumn(*sorted_.model().sorting)
            for field, text in zip(now.findChildren(SearchField), before.findChildren(SearchField), strict=True):
                field.setText(text.text())
        self.window.go(page)
        self.window.show()
        old.hide()
        old.deleteLater()

    def _go_back(self) -> None:
        self.window.restoreGeometry(self.settings.bytes("geometry"))
        page = self.settings.text("page")
        page = page if page in PAGES else FIRST_PAGE
        self.window.go(page)
        if page == "diagnose":
            self.photo_commands.find_model()

    def close(self) -> None:
        self.collector.stop()
        for model in self.application.findChildren(ProcessModel):
            model.close()
        for part in (self.commands, self.document, self.thumbnails, self.photos, self.first):
            part.close()
        for task in self.application.findChildren(Task):
            task.dispose()
        end_ahead()
        reader = sys.modules.get("core.data.photo_reader")
        if reader is not None:  # this process has decoded photos
            reader.READERS.release()
        self.settings.sync()
        self.crash.remove()
        translation.remove(self.application)


def _dataset(program: Application) -> QWidget:
    from app.panels.dataset.panel import DatasetPanel
    from app.panels.dataset.review import ReviewPane

    def split_settings() -> dict[str, Any]:
        """The settings that decide how photos are decoded and split, so that training can reuse the cache."""
        train = program.window.made.get("train")
        values = train.setup.form.values() if train is not None else {}
        names = ("image_size", "use_size", "start", "seed", "validation", "test")
        return {name: values[name] for name in names if name in values}

    model = program.diagnosis
    review = ReviewPane(program.review, program.photos, lambda: model.model_path or next(iter(SHIPPED_MODELS)))
    return DatasetPanel(
        program.document, program.examination, program.review, review, program.window.actions_,
        (program.thumbnails, program.photos), program.settings, split_settings,
    )  # fmt: skip


def _train(program: Application) -> QWidget:
    from app.panels.train.panel import TrainPanel

    panel = TrainPanel(program.training, program.window.actions_, program.settings, lambda: paths.home() / "runs")
    panel.runs.resume_asked.connect(program.run_commands.resume_run)
    for part in (panel.runs, panel.outcome):
        part.diagnose_asked.connect(program.photo_commands.use_model)
    panel.confusion.cell_opened.connect(program.run_commands.open_cell)
    follow_writing(panel.notice, program.prints)
    program.memory.estimated.connect(panel.setup.memory.setText)
    program.memory.device_known.connect(panel.setup.show_device)

    def estimate() -> None:
        table, config = program.document.table, panel.setup.config("")
        if table is None or config is None or program.training.busy:
            program.memory.forget()
        else:
            counts = table.counts()
            program.memory.ask(to_dict(config), counts[counts > 0].tolist())

    def opened() -> None:
        source = program.document.source
        panel.setup.show_data(source, demo=Path(source or ".").is_relative_to(paths.home() / "demo"))
        estimate()

    panel.setup.edited.connect(estimate)
    program.training.state_changed.connect(Slot(panel, lambda _: estimate()).call)
    program.document.opened.connect(Slot(panel, opened).call)
    opened()
    return panel


def _diagnose(program: Application) -> QWidget:
    from app.panels.diagnose.panel import DiagnosePanel

    panel = DiagnosePanel(
        program.diagnosis, program.window.actions_, program.settings, program.photos, program.exports
    )
    panel.start.synthetic_asked.connect(program.tour.start)
    return panel


def _kernels(program: Application) -> QWidget:
    from app.panels.kernels import KernelsPanel

    return KernelsPanel(program.benchmark)


MAKERS: Final = {"dataset": _dataset, "train": _train, "diagnose": _diagnose, "kernels": _kernels}
"""Page name to function. A page's modules and the plotting library are imported on its first visit."""
