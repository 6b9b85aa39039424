"""Serialises a result to a line of text for the process that writes files, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from app.mask import decode_mask, encode_mask
from app.viewmodels.result import PhotoResult, read_result


def to_line(result: PhotoResult) -> dict[str, Any]:
    """What a file states of a photo, as JSON, without class maps."""
    mask = result.mask
    return {
        "id": result.id, "path": result.path, "done": result.done, "given_up": result.given_up,
        "verdict": result.verdict, "top": result.top, "limits": result.limits, "error": result.error,
        "milliseconds": result.milliseconds, "sure": result.sure, "reason": result.reason, "notes": result.notes,
        "diseased": result.diseased, "mask": result.measured, "model": asdict(result.model),
        "corrected": None if mask is None else encode_mask(mask.severity, mask.box),
        "box": result.box, "share": result.share, "leaves": [to_line(leaf) for leaf in result.leaves],
    }  # fmt: skip


def from_line(line: Mapping[str, Any]) -> PhotoResult:
    row = read_result(PhotoResult(int(line["id"]), str(line["path"]), given_up=bool(line["given_up"])), line)
    hand = line["corrected"]
    mask = None if hand is None else replace(decode_mask(hand), corrected=True)
    return replace(row, done=bool(line["done"]), mask=mask)
