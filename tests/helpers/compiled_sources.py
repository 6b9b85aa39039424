"""The files that decide what a compiled kernel computes, besides its own."""

import ast
from importlib import import_module
from pathlib import Path


def files_read_by(kernels):
    """Files of core from which these take numbers, slices or device functions."""
    found = set()
    for node in (node for file in kernels for node in ast.walk(ast.parse(file.read_text("utf-8")))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("core."):
            module = import_module(node.module)
            values = [vars(module).get(alias.name) for alias in node.names]
            if any(isinstance(v, int | slice) or type(v).__name__ == "CUDADispatcher" for v in values):
                found.add(Path(module.__file__))
    return found
