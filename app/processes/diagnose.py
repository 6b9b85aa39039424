"""Diagnoses photos one after another, or some at once where several wait."""

from __future__ import annotations

import base64
import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.processes.protocol import Channel, serve
from core.data.photo import PhotoError, read_photo
from core.diagnosis.model_file import read_model
from core.diagnosis.prediction import TOP, Predictor, choose_device
from core.ops.contract import Array

BATCH: Final = 8
"""Photos taken together when many wait: enough to fill the cores, few enough that results keep coming."""


def main() -> int:
    return serve(_work)


def _work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: model (a path), device. Then requests {"id": n, "path": file} until the window has gone."""
    model = read_model(Path(asked["model"]))
    device = choose_device(str(asked.get("device", "auto")))
    predictor = Predictor(model, device=device, batch=BATCH)
    side = model.source_side
    predictor.probabilities(np.zeros((1, side, side, 3), np.uint8))  # compile before the first photo comes
    channel.tell(ready=True, classes=list(model.classes), device=device, figures=dict(model.figures))
    with ThreadPoolExecutor(os.cpu_count() or 1, "decode") as pool:
        while chunk := _take(channel.requests):
            for answer in _diagnose(predictor, chunk, pool):
                if channel.ended():
                    return
                channel.tell(**answer)


def _take(requests: queue.SimpleQueue[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The next requests: at least one, all that wait, at most BATCH; none at the end."""
    taken: list[dict[str, Any]] = []
    while len(taken) < BATCH and (not taken or not requests.empty()):
        request = requests.get()
        if request is None:
            requests.put(None)
            break
        taken.append(request)
    return taken


def _diagnose(predictor: Predictor, chunk: list[dict[str, Any]], pool: ThreadPoolExecutor) -> list[dict[str, Any]]:
    begin = time.perf_counter()
    read = list(pool.map(lambda r: _read(r["path"], predictor.model.source_side), chunk))
    good = [photo for photo in read if not isinstance(photo, str)]
    probabilities = iter(predictor.probabilities(np.stack(good)) if good else ())
    each = 1000 * (time.perf_counter() - begin) / len(chunk)
    answers = []
    for request, photo in zip(chunk, read, strict=True):
        answer: dict[str, Any] = {"id": request["id"], "milliseconds": each}
        if isinstance(photo, str):
            answer["error"] = photo
        else:
            answer |= _word(predictor, next(probabilities))
        answers.append(answer)
    return answers


def _read(path: str, side: int) -> Array | str:
    """The photo, or why it cannot be read."""
    try:
        return read_photo(path, side)
    except PhotoError as error:
        return str(error)


def _word(predictor: Predictor, probabilities: Array) -> dict[str, Any]:
    order = np.argsort(-probabilities, kind="stable")[:TOP]
    classes = predictor.model.classes
    return {"verdict": classes[order[0]], "top": [[classes[at], float(probabilities[at])] for at in order]}


def encode_map(values: Array) -> dict[str, Any]:
    """A map in 0..1 as bytes in a line of text."""
    small = np.clip(255 * values + 0.5, 0, 255).astype(np.uint8)
    return {"height": small.shape[0], "width": small.shape[1], "data": base64.b64encode(small.tobytes()).decode()}
