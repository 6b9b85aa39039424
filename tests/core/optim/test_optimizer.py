"""The update's reference against PyTorch's optimizers, step by step, and the parts PyTorch has no one rule for."""

from dataclasses import fields

import numpy as np
import pytest

from core.config import OPTIMIZERS, RunConfig
from core.errors import ModelFileError
from core.optim import optimizer as reference
from core.optim.optimizer import Optimizer, initial_state, update
from tests.golden.cases import ON_DEVICES, UPDATES, update_gradients, update_weights
from tests.helpers.compare import assert_close
from tests.helpers.golden import FOLDER


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-12)])
def test_updates_equal_pytorchs(name, dtype, tolerance):
    optimizer, rate = UPDATES[name]
    weights = update_weights().astype(dtype)
    decayed = np.arange(len(weights)) < len(weights) // 2
    state = initial_state(optimizer, weights)
    with np.load(FOLDER / "ops.npz") as file:
        wanted = file[f"update/{name}"]
    for step, gradient in enumerate(update_gradients().astype(dtype), 1):
        weights, state = update(optimizer, weights, gradient, state, decayed, rate, step)
        assert weights.dtype == dtype
        assert_close(weights, wanted[step - 1], tolerance)


def test_state_has_the_moments_and_the_average_only_where_wanted():
    weights = np.ones(3)
    assert initial_state(Optimizer("adamw", average=0.9), weights).keys() == {"first", "second", "average"}
    right = {"first": weights, "step": np.array(1)}
    for name, other in (("first", [1]), *(("step", step) for step in (-1, 1.0, [1], None))):
        with pytest.raises(ModelFileError, match=f"'{name}' is not there, or has"):
            reference.check_state({**right, name: np.array(other)}, ["first"], 3)


def test_clipping_scales_only_long_gradients_and_the_average_follows_fast_at_first():
    optimizer = Optimizer(clip_norm=2.0)
    assert reference.gradient_norm(np.array([3.0, 4.0], np.float32)) == 5.0
    assert reference.clip_factor(optimizer, 5.0) == pytest.approx(0.4, rel=1e-6)
    assert reference.clip_factor(optimizer, 1.0) == reference.clip_factor(Optimizer(), 1e9) == 1.0
    optimizer = Optimizer(average=0.999)
    assert [reference.scalars(optimizer, 0.1, step).average for step in (1, 10**6)] == [2 / 11, 0.999]
    weights, state = np.zeros(2), initial_state(optimizer, np.zeros(2))
    weights, state = update(optimizer, weights, np.array([1.0, -1.0]), state, np.zeros(2, bool), 0.5, 1)
    assert_close(state["average"], weights * (1 - 2 / 11), 1e-12)


def test_every_optimizer_is_compared_with_pytorch_and_on_both_devices():
    compared = [{o.name for o, _ in UPDATES.values()}, {o.name for o in ON_DEVICES}]
    places = "RULES, UPDATES, ON_DEVICES, core/cpu/optimizer.py and core/gpu/ops/update/optimizer.py need each of them"
    assert [set(OPTIMIZERS), *compared] == [set(reference.RULES)] * 3, places


def test_every_setting_is_compared_on_both_devices_and_comes_from_the_field_of_its_name():
    missing = {f.name for f in fields(Optimizer) if all(getattr(o, f.name) == f.default for o in ON_DEVICES)}
    assert not missing, "add them to ON_DEVICES, then to core/cpu/optimizer.py and core/gpu/ops/update/optimizer.py"
    settings = {"momentum": 0.1, "nesterov": False, "weight_decay": 0.2, "beta1": 0.3, "beta2": 0.4, "epsilon": 0.5,
                "clip_norm": 0.6, "average": 0.7}  # fmt: skip
    assert reference.optimizer_of(RunConfig(optimizer="adam", **settings)) == Optimizer("adam", **settings)
