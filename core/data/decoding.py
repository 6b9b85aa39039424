"""Photo files decoded side by side in threads, each to its centred square or to the reason why not."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, final

from core.data.dataset import Dataset
from core.data.exif import taken_at
from core.data.photo import PhotoError, check, content_key, decode_checked, read_bytes
from core.ops.contract import Array

CHUNK: Final = 16
"""Photos per task of a thread: 0.6 ms each, so that the hand-over (0.05 ms) does not count."""


@final
@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of one file; no pixels where its content was known already.

    facts: width and height as the file has them, and when it was taken (`core.data.exif`).
    `lasting` reasons lie in the content; others (no right to read) may pass.
    """

    row: int
    content: bytes
    pixels: Array | None
    reason: str
    facts: tuple[int, int, int] = (0, 0, 0)
    lasting: bool = True


def decode_all(
    dataset: Dataset, rows: list[int], side: int, known: Collection[bytes], threads: int
) -> Iterator[list[Decoded]]:
    """Decode in threads, in order, at most a few chunks ahead of who takes them."""
    waiting: deque[Future[list[Decoded]]] = deque()
    with ThreadPoolExecutor(threads, "decode") as pool:
        try:
            for start in range(0, len(rows), CHUNK):
                part = [(row, dataset.path(row)) for row in rows[start : start + CHUNK]]
                waiting.append(pool.submit(_decode_chunk, part, side, known))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _decode_chunk(part: list[tuple[int, str]], side: int, known: Collection[bytes]) -> list[Decoded]:
    return [_decode_one(row, path, side, known) for row, path in part]


def _decode_one(row: int, path: str, side: int, known: Collection[bytes]) -> Decoded:
    try:
        data = read_bytes(path)
    except PhotoError as error:
        return Decoded(row, b"", None, str(error), lasting=False)
    content = content_key(data)
    if content in known:
        return Decoded(row, content, None, "")
    try:
        header = check(data)
        facts = (header.width, header.height, taken_at(data))
        return Decoded(row, content, decode_checked(data, header, side), "", facts)
    except PhotoError as error:
        return Decoded(row, content, None, str(error))
