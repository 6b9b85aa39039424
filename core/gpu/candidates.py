"""All candidates: the one table that the plan chooses from."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.conv import candidates as conv
from core.gpu.ops.dense import candidates as dense
from core.gpu.ops.depthwise import candidates as depthwise
from core.gpu.ops.elementwise import candidates as elementwise
from core.gpu.ops.loss import candidates as loss
from core.gpu.ops.norm import candidates as norm
from core.gpu.ops.pool import candidates as pool
from core.gpu.select import Candidates

FAMILIES: Final = (conv, depthwise, dense, pool, norm, loss, elementwise)

CANDIDATES: Final = Candidates(row for family in FAMILIES for row in family.CANDIDATES)
