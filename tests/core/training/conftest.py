"""Runs on tiny photos, with a plan made of the NumPy references: no kernel has to be compiled."""

import pytest

from core.config import RunConfig
from core.optim.optimizer import optimizer_of
from tests.helpers.reference_plan import ReferencePlan
from tests.helpers.tiny_photos import write_photos


@pytest.fixture
def reference_plans(monkeypatch):
    """Every plan that the trainer compiles executes the references; the list of them."""
    made = []

    def compile_plan(graph, *, batch=1, training=False, optimizer=None, outputs=(), frozen=(), seed=0, **others):
        plan = ReferencePlan(graph, batch=batch, training=training, optimizer=optimizer or optimizer_of(RunConfig()),
                             outputs=outputs, frozen=frozen, seed=seed)  # fmt: skip
        made.append(plan)
        return plan

    monkeypatch.setattr("core.training.setup.compile_cpu_kernels", lambda report: report("compile", 1, 1))
    for module in ("training_plan", "validation", "step", "teacher"):
        monkeypatch.setattr(f"core.training.{module}.compile_plan", compile_plan)
    monkeypatch.setattr("core.diagnosis.prediction.compile_plan", compile_plan)
    return made


@pytest.fixture
def tiny(tmp_path):
    """A configuration of a run that takes a second: the small CNN on photos of 16 pixels."""
    photos = write_photos(tmp_path / "photos")

    def make(name="run", **changes):
        values = {"data": str(photos), "cache": str(tmp_path / "cache"), "out": str(tmp_path / name), "model": "cnn",
                  "image_size": 16, "epochs": 3, "batch_size": 4, "augment": "light", "device": "cpu", "dropout": 0.2,
                  "learning_rate": 3e-3, "validation": 0.2, "test": 0.2}  # fmt: skip
        return RunConfig(**{**values, **changes})

    return make
