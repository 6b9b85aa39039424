"""The files that decide what a compiled kernel computes: its own, and those whose numbers and functions it contains."""

import ast
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import core

ROOT = Path(core.__file__).parent


def files_read_by(kernels: Iterable[Path]) -> set[Path]:
    """Files of core from which these import numbers, slices or device functions."""
    found = set()
    for file in kernels:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("core."):
                values = [vars(import_module(node.module)).get(alias.name) for alias in node.names]
                if any(isinstance(v, int | slice) or type(v).__name__ == "CUDADispatcher" for v in values):
                    found.add(Path(import_module(node.module).__file__))
    return found
