"""Whether weights from outside are those a plan wants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array


def check_weights(weights: Mapping[str, Array], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ModelFileError naming every missing, extra or misshapen array."""
    missing, extra = sorted(set(wanted) - set(weights)), sorted(set(weights) - set(wanted))
    wrong = [
        f"{n} is {tuple(np.shape(weights[n]))} instead of {wanted[n]}"
        for n in wanted
        if n in weights and tuple(np.shape(weights[n])) != tuple(wanted[n])
    ]
    found = [f"missing {', '.join(missing)}"] if missing else []
    found += [f"not in the network: {', '.join(extra)}"] if extra else []
    if found + wrong:
        raise ModelFileError(f"The weights do not fit the network: {'; '.join(found + wrong)}.")
