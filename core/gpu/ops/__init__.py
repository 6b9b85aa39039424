"""Kernels by op family: everything about a family, from the naive kernel to the fastest, and its candidates."""
