"""A run with other backgrounds: leaves are cut out before it, and a resumed run has the same bits."""

import numpy as np

from core.ops.photo import BACKGROUND
from core.training.events import Progress
from tests.helpers.reference_plan import ReferencePlan
from tests.helpers.runs import last_weights, only, same_bits, train
from tests.helpers.tiny_photos import write_discs


def test_leaves_on_other_backgrounds_and_a_resumed_run_has_the_same_bits(reference_plans, tiny, tmp_path, monkeypatch):
    seen = []
    gradient = ReferencePlan.gradient
    monkeypatch.setattr(ReferencePlan, "gradient", lambda plan, batch, **how: (
        seen.append(batch.augmentation), gradient(plan, batch, **how))[1])  # fmt: skip
    discs = write_discs(tmp_path / "discs", {"oak": (60, 160, 50), "ash": (160, 150, 40)}, each=12, side=32)
    changes = {"data": str(discs), "image_size": 32, "augment_background": 0.5, "epochs": 2}
    whole = tiny("whole", **changes)
    assert any(event.stage == "leaves" for event in only(train(whole), Progress))
    assert 0.2 < (np.concatenate(seen)[:, BACKGROUND] > 0).mean() < 0.8
    broken = tiny("broken", **changes)
    train(broken, stop_after=3)
    train(broken, resume=True)
    same_bits(last_weights(whole), last_weights(broken))
