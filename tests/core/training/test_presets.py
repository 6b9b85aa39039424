"""Presets on few photos: enough steps by smaller batches and more epochs, unless the user chose them."""

import pytest

from core.config import RunConfig
from core.training.presets import LEAST_BATCH, PRESETS, fit_recipe


def preset(name, **changes):
    return RunConfig(preset=name, **{**PRESETS[name].values, **changes})


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("photos", [30, 120, 623, 5000])
def test_every_preset_takes_its_steps_on_few_photos_and_stays_on_many(name, photos):
    recipe, (fitted, _) = PRESETS[name], fit_recipe(preset(name), photos)
    assert fitted.batch_size >= min(LEAST_BATCH, preset(name).batch_size)
    assert fitted.epochs * max(photos // fitted.batch_size, 1) >= recipe.steps >= 200
    again, told = fit_recipe(fitted, photos)
    assert (again, told) == (fitted, ())
    assert fit_recipe(preset(name), 15_000) == (preset(name), ())


def test_a_smaller_batch_takes_a_smaller_learning_rate_but_what_the_user_chose_stays():
    fitted, told = fit_recipe(preset("gpu"), 623)
    assert (fitted.batch_size, fitted.epochs, fitted.learning_rate) == (16, 79, pytest.approx(4e-3 / 8**0.5))
    assert told == ("623 training photos are few for the preset gpu (batch size 128, 60 epochs). This run has batch "
                    "size 16 and 79 epochs, so that training has 3002 steps.",)  # fmt: skip
    assert fit_recipe(preset("leaves"), 623)[0].learning_rate == pytest.approx(0.1 / 8)
    assert fit_recipe(preset("gpu", epochs=80), 623)[0].epochs == 80
    sizes = [fit_recipe(preset("gpu", **chosen), 623)[0].batch_size for chosen in ({"epochs": 1}, {"batch_size": 64})]
    assert sizes == [16, 64]
    assert fit_recipe(preset("gpu", learning_rate=0.01), 623)[0].learning_rate == 0.01
    assert fit_recipe(RunConfig(epochs=2), 20) == (RunConfig(epochs=2), ())
    assert fit_recipe(preset("gpu", minutes=2.0), 20)[1] == ()
