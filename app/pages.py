"""How each page of the window is created, when it is first visited."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtWidgets import QWidget

from app import paths
from core.config import to_dict
from core.diagnosis.model_identity import SHIPPED_MODELS

if TYPE_CHECKING:
    from app.application import Application


def makers(program: Application) -> dict[str, Callable[[], QWidget]]:
    """Page name to function. A page's modules and the plotting library are imported on its first visit."""
    pages = {"dataset": _dataset, "train": _train, "diagnose": _diagnose, "kernels": _kernels}
    return {name: partial(make, program) for name, make in pages.items()}


def _dataset(program: Application) -> QWidget:
    from app.panels.dataset.panel import DatasetPanel
    from app.panels.dataset.review import ReviewPane

    def split_settings() -> dict[str, Any]:
        """The settings that decide how photos are decoded and split, so that training can reuse the cache."""
        train = program.window.made("train")
        values = train.setup.form.values() if train is not None else {}
        return {name: values[name] for name in ("image_size", "seed", "validation", "test") if name in values}

    model = program.diagnosis
    review = ReviewPane(program.review, program.photos, lambda: model.model_path or next(iter(SHIPPED_MODELS)))
    panel = DatasetPanel(
        program.document, program.examination, program.review, review, program.window.actions_, program.thumbnails,
        program.settings, program.theme, split_settings,
    )  # fmt: skip
    panel.diagnose_asked.connect(lambda folder: program.photo_commands.diagnose([folder]))
    return panel


def _train(program: Application) -> QWidget:
    from app.panels.train.panel import TrainPanel
    from app.widgets.notice import follow_writing
    from app.widgets.parts import Slot

    panel = TrainPanel(
        program.training, program.window.actions_, program.settings, program.theme, lambda: paths.folder("runs")
    )
    panel.resume_asked.connect(program.run_commands.resume_run)
    panel.diagnose_asked.connect(program.photo_commands.use_model)
    panel.cell_opened.connect(program.run_commands.open_cell)
    follow_writing(panel.notice, program.prints)
    program.memory.estimated.connect(panel.setup.show_memory)
    program.memory.device_known.connect(panel.setup.show_device)

    def estimate() -> None:
        table, config = program.document.table, panel.setup.config("")
        if table is None or config is None or program.training.session.busy:
            program.memory.forget()
        else:
            counts = table.counts()
            program.memory.ask(to_dict(config), counts[counts > 0].tolist())

    def opened() -> None:
        panel.setup.show_data(program.document.source)
        panel.setup.show_demo(Path(program.document.source or ".").is_relative_to(paths.home() / "demo"))
        estimate()

    panel.setup.edited.connect(estimate)
    program.training.session.state_changed.connect(Slot(panel, lambda _: estimate()).call)
    program.document.opened.connect(Slot(panel, opened).call)
    opened()
    return panel


def _diagnose(program: Application) -> QWidget:
    from app.panels.diagnose.panel import DiagnosePanel

    panel = DiagnosePanel(
        program.diagnosis, program.window.actions_, program.settings, program.theme, program.photos, program.exports
    )
    panel.synthetic_asked.connect(program.tour.start)
    return panel


def _kernels(program: Application) -> QWidget:
    from app.panels.kernels import KernelsPanel

    return KernelsPanel(program.benchmark, program.theme)
