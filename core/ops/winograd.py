"""Matrices of Winograd's minimal filtering for 3x3 filters, for pixels, filters and results.

Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015, equation 8 and section 4.3.
"""

from __future__ import annotations

from typing import Final

import numpy as np

F2: Final = (
    np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32),
    np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32),
    np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32),
)
"""F(2,3): 2 x 2 outputs from 4 x 4 pixels."""

F4: Final = (
    np.array(
        [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
         [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]], np.float32),
    np.array(
        [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
         [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]], np.float32),
    np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float32),
)  # fmt: skip
"""F(4,3): 4 x 4 outputs from 6 x 6 pixels."""
