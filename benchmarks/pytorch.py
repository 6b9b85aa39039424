"""PyTorch, which benchmarks measure beside ours. Without it, one ends with a sentence, and with its help if asked."""

import sys

import __main__

try:
    import torch
    from torch import nn
except ModuleNotFoundError as error:
    from core.laboratory.pytorch_baseline import MISSING  # only here: PyTorch is measured without our engine

    missing = MISSING if error.name == "torch" else str(error)
    sys.exit(missing if {"-h", "--help"}.isdisjoint(sys.argv) else f"{__main__.__doc__}\n{missing}")

__all__ = ["nn", "torch"]
