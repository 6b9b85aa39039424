"""Decodes the photo files of a dataset in parallel, each to its centred square or to the reason why it cannot."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from core.data.dataset import Dataset
from core.data.photo_reader import READERS, ReadPhoto

CHUNK: Final = 8
"""Photos per task of a process: with 16, their pixels leave the cache of the processor before they are copied."""


def decode_all(
    dataset: Dataset, rows: list[int], side: int, known: Collection[bytes], processes: int
) -> Iterator[list[tuple[int, ReadPhoto]]]:
    """Yield rows with their results in order, decoded at most a few chunks ahead of the consumer."""
    waiting: deque[Future[list[tuple[int, ReadPhoto]]]] = deque()
    processes = min(processes, READERS.most)
    with ThreadPoolExecutor(processes, "decode") as pool:

        def decode_chunk(part: list[int]) -> list[tuple[int, ReadPhoto]]:
            with READERS.borrow() as reader:
                found = reader.read([dataset.path(row) for row in part], side, known=known)
            return list(zip(part, found, strict=True))

        try:
            for start in range(0, len(rows), CHUNK):
                waiting.append(pool.submit(decode_chunk, rows[start : start + CHUNK]))
                if len(waiting) > 2 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
