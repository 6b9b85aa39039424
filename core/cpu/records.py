"""Records: kernel calls as data, encoded as rows of int64 whose addresses may depend on the thread or the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from core.cpu.entry import entry
from core.cpu.memory import FIELDS, TASKS

Words: TypeAlias = npt.NDArray[np.int64]


@final
class Space(Enum):
    """The memory that an address is in: shared, of an image (or its thread), or of a thread's gradient."""

    SHARED = "shared"
    SLOT = "slot"
    PRIVATE = "private"


@final
@dataclass(frozen=True, slots=True)
class Address:
    """An offset in bytes from the start of a space; in SHARED an absolute address."""

    space: Space
    bytes: int

    def __add__(self, more: int) -> Address:
        return Address(self.space, self.bytes + more)


NOWHERE: Final = Address(Space.SHARED, 0)


@final
@dataclass(frozen=True, slots=True)
class Record:
    """One kernel call. `layer`, `direction`, `name`: for reports; `once`: runs once a batch, not once an image."""

    kernel: Callable[..., Any]
    fields: Mapping[int, int | Address]
    tasks: int
    layer: str
    direction: str
    name: str
    once: bool = False


@final
@dataclass(frozen=True, slots=True)
class RecordTable:
    """Encoded records: record i for slot s and thread t is row i of ``table + s * slot_shift + t * thread_shift``."""

    table: Words
    slot_shift: Words
    thread_shift: Words


def encode_records(records: Sequence[Record], slots: tuple[int, int], privates: tuple[int, int]) -> RecordTable:
    """Encode records as integers; `slots` and `privates` are (first address, bytes to the next)."""
    table, slot_shift, thread_shift = (np.zeros((len(records), FIELDS), np.int64) for _ in range(3))
    for i, record in enumerate(records):
        table[i, 0] = entry(record.kernel).address
        table[i, TASKS] = record.tasks
        for field, value in record.fields.items():
            if not isinstance(value, Address):
                table[i, field] = value
            elif value.space is Space.SHARED:
                table[i, field] = value.bytes
            elif value.space is Space.SLOT:
                table[i, field], slot_shift[i, field] = slots[0] + value.bytes, slots[1]
            else:
                table[i, field], thread_shift[i, field] = privates[0] + value.bytes, privates[1]
    return RecordTable(table, slot_shift, thread_shift)
