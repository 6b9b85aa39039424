"""The thread of one training run: converts the process's lines to events."""

from __future__ import annotations

import logging
from typing import Any

from core.training import events

log = logging.getLogger(__name__)


def read_event(line: str) -> Any:
    """The event of a line, or None (and a log entry) for other output."""
    try:
        return events.from_line(line)
    except (ValueError, KeyError, TypeError):
        log.warning("not an event from the training process: %s", line[:200])
        return None
