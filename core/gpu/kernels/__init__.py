"""CUDA kernels, one file per op family, lowest rung first."""
