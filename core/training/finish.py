"""The end of a run: the best weights judged on photos never seen, the model file and the report."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from core.diagnosis.figures import Figures
from core.diagnosis.model_file import BEST, ModelFile, read_model, write_model
from core.ops.contract import Array
from core.training.commands import Commands
from core.training.events import Progress
from core.training.history import read_history
from core.training.report import ReportData, render_report
from core.training.run_folder import EVENTS, REPORT, RunFolder
from core.training.run_state import RunState
from core.training.setup import Setup
from core.training.trust import complete, describe_trust


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """What a finished run leaves behind."""

    test_accuracy: float | None
    model: Path
    report: Path


def save_best(setup: Setup, folder: RunFolder, weights: Mapping[str, Array], figures: Figures, epoch: int) -> None:
    """Write the model file of an epoch that is the best so far."""
    model = ModelFile(
        graph=setup.graph_in_use,
        weights=weights,
        classes=setup.classes,
        source_side=setup.photos.cache.side,
        data_hash=setup.fingerprint,
        figures={
            "epoch": float(epoch + 1), "validation_photos": float(figures.photos),
            "validation_accuracy": figures.accuracy, "validation_loss": figures.loss,
        },
    )
    write_model(folder.path / BEST, model)


def finish_run(
    setup: Setup, folder: RunFolder, state: RunState, commands: Commands
) -> Generator[Progress, None, Ended]:
    """Judge the best weights on the test split (else on validation), complete the model file, write the report."""
    path = folder.path / BEST
    model = yield from complete(setup, read_model(path))
    loader, judged_on = (setup.validation, "validation") if setup.test is None else (setup.test, "test")
    never = Commands()  # the run is over; a stop now would only lose the report
    figures = yield from setup.validator.judge(judged_on, model.weights, loader, never)
    assert figures is not None
    reached = {}
    if setup.test is not None:
        reached = {"test_photos": float(figures.photos), "test_accuracy": figures.accuracy,
                   "test_macro_f1": figures.macro_f1, "test_loss": figures.loss}
    write_model(path, replace(model, figures={**model.figures, **reached}))
    folder.write_confusion(figures)
    folder.sync()
    data = ReportData(
        config=setup.config,
        history=read_history(folder.path / EVENTS),
        figures=figures,
        judged_on=judged_on,
        device=setup.device,
        parameters=model.parameters,
        seconds=state.seconds,
        warnings=setup.warnings,
        sections=describe_trust(model),
    )
    report = folder.write(REPORT, render_report(data))
    return Ended(figures.accuracy if setup.test is not None else None, path, report)
