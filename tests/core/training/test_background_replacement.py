"""A run with other backgrounds: leaves are cut out before it, and a resumed run has the same bits."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from core.ops.photo import BACKGROUND
from core.training.checkpoint import LAST, read_checkpoint
from core.training.commands import Commands
from core.training.events import Progress, RunFinished, StepDone
from core.training.trainer import Trainer
from tests.helpers.reference_plan import ReferencePlan

SIDE = 32


@pytest.fixture
def discs(tmp_path):
    """Green and yellow discs on grey paper."""
    rng = np.random.default_rng(3)
    for name, colour in (("oak", (60, 160, 50)), ("ash", (160, 150, 40))):
        folder = tmp_path / "discs" / name
        folder.mkdir(parents=True)
        for i in range(12):
            photo = rng.normal(170, 6, (SIDE, SIDE, 3)).clip(0, 255).astype(np.uint8)
            cv2.circle(photo, (16, 16), 8, colour, -1)
            cv2.imwrite(str(folder / f"{i}.png"), photo[..., ::-1])
    return str(tmp_path / "discs")


def test_leaves_on_other_backgrounds_and_a_resumed_run_has_the_same_bits(reference_plans, tiny, discs, monkeypatch):
    seen = []
    gradient = ReferencePlan.gradient
    monkeypatch.setattr(
        ReferencePlan,
        "gradient",
        lambda plan, batch, **how: seen.append(batch.augmentation) or gradient(plan, batch, **how),
    )
    changes = {"data": discs, "image_size": SIDE, "augment_background": 0.5, "epochs": 2}
    whole = tiny("whole", **changes)
    events = list(Trainer(whole).run())
    assert any(isinstance(e, Progress) and e.stage == "leaves" for e in events)
    assert 0.2 < (np.concatenate(seen)[:, BACKGROUND] > 0).mean() < 0.8
    broken, commands = tiny("broken", **changes), Commands()
    for event in Trainer(broken).run(commands):
        if isinstance(event, StepDone) and event.step == 3:
            commands.stop()
    assert isinstance(event, RunFinished)
    list(Trainer(broken, resume=True).run())
    one, two = (read_checkpoint(Path(config.out) / LAST).weights for config in (whole, broken))
    assert all(np.array_equal(one[name], two[name]) for name in one)
