"""Optimizer settings: those that PyTorch's results are recorded for, and those that devices are tested with."""

from core.optim.optimizer import Optimizer
from tests.helpers.noise import noise

UPDATES = {"sgd": (Optimizer("sgd", momentum=0.0, nesterov=False), 0.1),
           "sgd momentum": (Optimizer("sgd", momentum=0.9, nesterov=False), 0.05),
           "sgd nesterov decay": (Optimizer("sgd", momentum=0.8, nesterov=True, weight_decay=0.02), 0.05),
           "adam": (Optimizer("adam"), 0.01),
           "adam decay": (Optimizer("adam", weight_decay=0.05, beta1=0.8, beta2=0.95, epsilon=1e-4), 0.02),
           "adamw": (Optimizer("adamw", weight_decay=0.1), 0.02),
           "adamw clip": (Optimizer("adamw", weight_decay=0.01, clip_norm=1.5), 0.02),
           "sgd clip": (Optimizer("sgd", clip_norm=0.5), 0.1)}  # fmt: skip
"""Optimizer and learning rate; the first half of the weights decays."""

ON_DEVICES = (Optimizer("sgd"), Optimizer("sgd", 0.8, False, 0.1, clip_norm=0.5, average=0.9),
              Optimizer("adam", weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-3, average=0.99),
              Optimizer("adamw", weight_decay=0.1, clip_norm=100.0, average=0.9))  # fmt: skip
"""Settings with which the update of each device equals the reference's."""


def update_weights():
    """Flat weights, 32."""
    return noise("update weights", (32,))


def update_gradients():
    """Gradients of six steps, ``(6, 32)``; some longer than the clip norms, some shorter."""
    return noise("update gradients", (6, 32)) * [[0.1], [1.0], [0.01], [2.0], [0.3], [0.001]]
