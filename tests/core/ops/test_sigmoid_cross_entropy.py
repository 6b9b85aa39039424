"""The loss of several labels: PyTorch's formula, and logits of any size."""

import numpy as np
import pytest

from core.cpu.kernel_entries import CPU
from tests.helpers.compare import assert_close, poisoned
from tests.helpers.shapes import cases, label, solve

KERNELS = [kernel for kernel in CPU.kernels if kernel.op == "sigmoid_cross_entropy"]


@pytest.mark.parametrize("case", cases("sigmoid_cross_entropy"), ids=label)
def test_the_loss_is_the_formula_of_bce_with_logits(case):
    """https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html, reduction "mean"."""
    problem = solve(case)
    known = problem.given["labels"] >= 0
    x, y = (problem.given[name][known].astype(np.float64) for name in ("x", "targets"))
    p = 1 / (1 + np.exp(-x))
    assert problem.wanted["out"].sum() == pytest.approx(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(), rel=1e-12)
    np.testing.assert_allclose(problem.wanted["dx"][known], (p - y) / x.size, rtol=1e-12)
    assert not problem.wanted["dx"][~known].any()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: "-".join(kernel.key))
def test_large_logits_give_finite_losses_and_gradients(kernel):
    case = cases("sigmoid_cross_entropy")[0]
    given = solve(case).given
    x = np.where(given["targets"] > 0.5, -3e4, 3e4).astype(np.float32)  # as wrong as can be
    given |= {"x": x, "labels": np.zeros(case.batch, np.int32)}
    given |= {"out": poisoned((case.batch, 1)), "dx": poisoned(x.shape)}
    kernel.run(case, given)
    p, y = (x > 0).astype(np.float64), given["targets"].astype(np.float64)
    if kernel.direction == "forward":
        assert_close(given["out"][:, 0], (np.maximum(x, 0) - y * x).mean(axis=1) / case.batch, 1e-6)
    else:
        assert_close(given["dx"], (p - y) / x.size, 1e-6)
