"""PyTorch, which benchmarks measure beside ours. Without it a benchmark ends with a sentence."""

import sys

try:
    import torch
    from torch import nn
except ModuleNotFoundError as error:
    from core.laboratory.pytorch_baseline import MISSING  # only here: PyTorch is measured without our engine

    sys.exit(MISSING if error.name == "torch" else str(error))

__all__ = ["nn", "torch"]
