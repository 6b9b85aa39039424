"""Kernels to be read, lowest rung first, one file per op family."""
