"""The table of all candidates, from which plans choose."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Final

from core.gpu.ops.conv import candidates as conv
from core.gpu.ops.dense import candidates as dense
from core.gpu.ops.depthwise import candidates as depthwise
from core.gpu.ops.elementwise import candidates as elementwise
from core.gpu.ops.loss import candidates as loss
from core.gpu.ops.matmul import candidates as matmul
from core.gpu.ops.norm import candidates as norm
from core.gpu.ops.pool import candidates as pool
from core.gpu.select import Candidates

FAMILIES: Final = (conv, depthwise, dense, pool, norm, loss, elementwise, matmul)

OPTIONAL: Final = ("latency", "sm90")
"""Packages of `core.gpu` whose candidates are added if the package exists; every step has others."""


PRESENT: Final = [import_module(f"core.gpu.{name}.candidates") for name in OPTIONAL if find_spec(f"core.gpu.{name}")]

CANDIDATES: Final = Candidates(one for family in (*FAMILIES, *PRESENT) for one in family.CANDIDATES)
