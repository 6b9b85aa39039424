"""Turing, the generation before `cp.async` and bf16: what the fast kernels do there instead.

Compute capability 7.5 (GeForce GTX 16 and RTX 20, Tesla T4) has neither asynchronous copies nor tensor cores for
float32. The same kernels run with every copy as a load and a store, and with products by ordinary multiply-adds
(`fragments.MULTIPLY["fma"]`): float32 alone, whatever precision was asked for, which the run says. The ring of
stages stays right: a slot is filled only after the barrier that ends its last use.
"""

from __future__ import annotations

import re
from typing import Final

CAPABILITY: Final = (7, 5)
FIRST_AFTER: Final = (8, 0)
"""Ampere: the first with asynchronous copies, bf16 and tf32."""

_COPY: Final = re.compile(r"cp\.async\.c[ag]\.shared\.global \[(%\w+)\], \[(%\w+)\], 16, (%\w+);")
_REST: Final = re.compile(r"cp\.async\.(commit_group|wait_group \d+);")
_PLAIN: Final = (
    r"{.reg .pred real; .reg .b32 a, b, c, d; mov.b32 a, 0; mov.b32 b, 0; mov.b32 c, 0; mov.b32 d, 0; "
    r"setp.ne.u32 real, \3, 0; @real ld.global.v4.u32 {a, b, c, d}, [\2]; st.shared.v4.u32 [\1], {a, b, c, d};}"
)
"""All 16 bytes or zeros: no kernel copies a part of them."""


def without_async_copies(ptx: str) -> str:
    """The same kernel with plain copies."""
    return _REST.sub("", _COPY.sub(_PLAIN, ptx))
