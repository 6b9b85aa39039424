"""Batch norm statistics of all ranks: the sums of each are added before they are merged, forward and backward."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from core.communicator import Communicator
from core.cpu import batch_norm as bn
from core.cpu.records import Record, Words
from core.ops.contract import Array

MERGES: Final = (bn.run_merge, bn.run_gradient_merge)


def add_ranks(record: Record, row: Words, context: Words, labels: Array, communicator: Communicator) -> None:
    """Replace the sums that a merge reads by those of all ranks; other records are left alone. All ranks call it.

    row: the record with its addresses. A photo without a label is not of the batch, and its gradient stays zero.
    """
    if record.kernel not in MERGES:
        return
    images, width = len(labels), 2 * int(row[bn.CHANNELS])
    memory = (ctypes.c_double * (images * width)).from_address(int(row[bn.SUMS]))
    sums, counted = np.ctypeslib.as_array(memory).reshape(images, width), labels >= 0
    own = np.append(sums[counted].sum(axis=0), (counted.sum(), counted.any()))
    parts = communicator.gather(own.tobytes())
    total: Array = np.sum([np.frombuffer(part, np.float64) for part in parts], axis=0)
    if not total[-2]:  # every rank computes a photo for nothing
        return
    if counted.any() or record.kernel is bn.run_merge:
        sums[:] = 0
        sums[0], context[bn.TOTAL], context[bn.RANKS] = total[:-2], *total[-2:]
