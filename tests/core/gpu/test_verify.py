"""The comparison of a step with its reference."""

from types import SimpleNamespace

import numpy as np
import pytest

from core.errors import KernelUnavailable
from core.gpu.verify import activated


def test_an_activation_without_a_reference_is_named_with_its_step():
    step = SimpleNamespace(activation="cubic", node="features.3")
    with pytest.raises(KernelUnavailable, match=r"activation 'cubic' of features\.3; there are .*relu"):
        activated(step, np.zeros(3))
