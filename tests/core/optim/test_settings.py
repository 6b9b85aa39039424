"""The optimizer's settings are the configuration's."""

from dataclasses import fields

from core.config import RunConfig
from core.device import Optimizer
from core.optim.optimizer import optimizer_of


def test_every_setting_comes_from_the_field_of_its_name():
    config = RunConfig(
        optimizer="adam", momentum=0.1, nesterov=False, weight_decay=0.2, beta1=0.3, beta2=0.4, epsilon=0.5,
        clip_norm=0.6, average=0.7,
    )  # fmt: skip
    made = optimizer_of(config)
    assert made.name == "adam"
    for field in fields(Optimizer):
        if field.name != "name":
            assert getattr(made, field.name) == getattr(config, field.name)
            assert getattr(made, field.name) != field.default
