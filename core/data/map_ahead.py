"""Applies a function to many items in threads, without computing far ahead of the consumer."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Yield the result of each item in order; `ahead` items are computed or wait at a time."""
    pool = ThreadPoolExecutor(threads)
    try:
        started = (pool.submit(function, item) for item in items)
        waiting = deque(itertools.islice(started, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(itertools.islice(started, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
