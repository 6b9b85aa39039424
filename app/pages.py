"""How each page of the window is created, when it is first visited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from PySide6.QtWidgets import QWidget

from app import paths
from app.main_window import MainWindow
from app.photo_commands import PhotoCommands
from app.run_commands import RunCommands
from app.settings import Settings
from app.synthetic_tour import SyntheticTour
from app.theme import Theme
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.document import Document
from app.viewmodels.examination import ExaminationModel
from app.viewmodels.kernel_benchmark import KernelBenchmark
from app.viewmodels.memory_estimate import MemoryEstimate
from app.viewmodels.review import ReviewModel
from app.viewmodels.thumbnails import Thumbnails
from app.viewmodels.training import TrainingModel
from app.viewmodels.writing import Writing
from core.config import to_dict
from core.diagnosis.model_identity import SHIPPED_MODELS


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """What the pages need. `thumbnails` are small and `photos` large pictures.

    `exports` writes results, `prints` the reports of runs.
    """

    window: MainWindow
    settings: Settings
    theme: Theme
    document: Document
    examination: ExaminationModel
    review: ReviewModel
    thumbnails: Thumbnails
    photos: Thumbnails
    training: TrainingModel
    diagnosis: DiagnosisModel
    benchmark: KernelBenchmark
    memory: MemoryEstimate
    exports: Writing
    prints: Writing
    photo_commands: PhotoCommands
    run_commands: RunCommands
    tour: SyntheticTour


def makers(parts: Parts) -> dict[str, Callable[[], QWidget]]:
    """Page name to function. A page's modules and the plotting library are imported on its first visit."""
    pages = {"dataset": _dataset, "train": _train, "diagnose": _diagnose, "kernels": _kernels}
    return {name: partial(make, parts) for name, make in pages.items()}


def _dataset(parts: Parts) -> QWidget:
    from app.panels.dataset.panel import DatasetPanel
    from app.panels.dataset.review import ReviewPane

    def split_settings() -> dict[str, Any]:
        """The settings that decide how photos are decoded and split, so that training can reuse the cache."""
        train = parts.window.made("train")
        values = train.setup.form.values() if train is not None else {}
        return {name: values[name] for name in ("image_size", "seed", "validation", "test") if name in values}

    review = ReviewPane(parts.review, parts.photos, lambda: parts.diagnosis.model_path or next(iter(SHIPPED_MODELS)))
    panel = DatasetPanel(
        parts.document, parts.examination, parts.review, review, parts.window.actions_, parts.thumbnails,
        parts.settings, parts.theme, split_settings,
    )  # fmt: skip
    panel.diagnose_asked.connect(lambda folder: parts.photo_commands.diagnose([folder]))
    return panel


def _train(parts: Parts) -> QWidget:
    from app.panels.train.panel import TrainPanel
    from app.widgets.slot import Slot
    from app.widgets.written import follow_writing

    panel = TrainPanel(parts.training, parts.window.actions_, parts.settings, parts.theme, lambda: paths.folder("runs"))
    panel.resume_asked.connect(parts.run_commands.resume_run)
    panel.diagnose_asked.connect(parts.photo_commands.use_model)
    panel.cell_opened.connect(parts.run_commands.open_cell)
    follow_writing(panel.notice, parts.prints)
    parts.memory.estimated.connect(panel.setup.show_memory)
    parts.memory.device_known.connect(panel.setup.show_device)

    def estimate() -> None:
        table, config = parts.document.table, panel.setup.config("")
        if table is None or config is None or parts.training.session.busy:
            parts.memory.forget()
        else:
            counts = table.counts()
            parts.memory.ask(to_dict(config), counts[counts > 0].tolist())

    def opened() -> None:
        panel.setup.show_data(parts.document.source)
        panel.setup.show_demo(Path(parts.document.source or ".").is_relative_to(paths.home() / "demo"))
        estimate()

    panel.setup.edited.connect(estimate)
    parts.training.session.state_changed.connect(Slot(panel, lambda _: estimate()).call)
    parts.document.opened.connect(Slot(panel, opened).call)
    opened()
    return panel


def _diagnose(parts: Parts) -> QWidget:
    from app.panels.diagnose.panel import DiagnosePanel

    panel = DiagnosePanel(
        parts.diagnosis, parts.window.actions_, parts.settings, parts.theme, parts.photos, parts.exports
    )
    panel.synthetic_asked.connect(parts.tour.start)
    return panel


def _kernels(parts: Parts) -> QWidget:
    from app.panels.kernels.panel import KernelsPanel

    return KernelsPanel(parts.benchmark, parts.theme)
