"""Kernels from Python to PTX, without a GPU: the front end, instructions, each generation's own."""
