"""How each place of the window is made, when it is first visited."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtWidgets import QWidget

from app import paths
from core.config import to_dict

if TYPE_CHECKING:
    from app.application import Program


def makers(program: Program) -> dict[str, Callable[[], QWidget]]:
    """Place to maker. A place's modules, and the plotting library, are imported with it and not at the start."""
    places = {"dataset": _dataset, "train": _train, "diagnose": _diagnose, "kernels": _kernels}
    return {name: partial(make, program) for name, make in places.items()}


def _dataset(program: Program) -> QWidget:
    from app.panels.dataset.panel import DatasetPanel

    def split_settings() -> dict[str, Any]:
        """Those of the form that decide how photos are decoded and split, so that training finds all done."""
        train = program.window.made("train")
        values = train.setup.form.values() if train is not None else {}
        return {name: values[name] for name in ("image_size", "seed", "validation", "test") if name in values}

    return DatasetPanel(
        program.document, program.examination, program.window.actions_, program.thumbnails, program.settings,
        program.theme, split_settings,
    )  # fmt: skip


def _train(program: Program) -> QWidget:
    from app.panels.train.panel import TrainPanel

    panel = TrainPanel(
        program.training, program.window.actions_, program.settings, program.theme, lambda: paths.folder("runs")
    )
    panel.resume_asked.connect(program.run_commands.resume_run)
    panel.diagnose_asked.connect(program.photo_commands.use_model)
    panel.cell_opened.connect(program.run_commands.open_cell)
    program.memory.told.connect(panel.setup.show_memory)
    program.memory.device_known.connect(panel.setup.show_device)

    def estimate() -> None:
        table, config = program.document.table, panel.setup.config("")
        if table is None or config is None or program.training.session.busy:
            program.memory.forget()
        else:
            counts = table.counts()
            program.memory.ask(to_dict(config), int((counts > 0).sum()), int(counts.sum()))

    def opened() -> None:
        panel.setup.show_data(program.document.source)
        panel.setup.show_demo(Path(program.document.source or ".").is_relative_to(paths.home() / "demo"))
        estimate()

    panel.setup.edited.connect(estimate)
    program.training.session.state_changed.connect(estimate)
    program.document.opened.connect(opened)
    opened()
    return panel


def _diagnose(program: Program) -> QWidget:
    from app.panels.diagnose.panel import DiagnosePanel

    return DiagnosePanel(program.diagnosis, program.window.actions_, program.settings, program.theme, program.photos)


def _kernels(program: Program) -> QWidget:
    from app.panels.kernels.panel import KernelsPanel

    return KernelsPanel(program.ladder, program.theme)
