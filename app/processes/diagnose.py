"""Diagnoses photos one after another, and several in parallel if many are waiting."""

from __future__ import annotations

import base64
import queue
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from app.mask import encode_mask
from app.processes.entry import Channel
from core.cores import usable_cores
from core.data.cache_index import current_key
from core.data.photo import MARGINS, SQUARE
from core.data.photo_reader import prepare, read_file
from core.diagnosis.examination import SEVERAL, Examination, Examiner
from core.diagnosis.features import feature_node
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.model_identity import ORIGIN, read_identity
from core.diagnosis.plant import read_time
from core.diagnosis.prediction import compile_ahead, load_engine
from core.diagnosis.segmentation import segment
from core.diagnosis.severity import Severity
from core.diagnosis.thresholds import SECTION
from core.diagnosis.verdict import Prediction
from core.ops.contract import Array
from core.plan import choose_device

MAP_SIDE: Final = 64
"""Side of the class maps sent to the window."""
MAX_PARALLEL: Final = 4
"""Photos examined in parallel."""


def load_ahead() -> None:
    """Import what computes, and start the process that decodes: the window starts this process before it is built."""
    prepare()
    if choose_device("auto") == "cpu":
        load_engine()


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: model (a path). Then requests until the end: {"id": n, "path": file, "crop": bool, "leaves": bool} for a
    diagnosis, {"id": n, "path": file, "label": class, "box": box, "leaves": boxes} for a class map."""
    cv2.setNumThreads(1)  # photos run in parallel already
    model = read_model(Path(asked["model"]))
    device = choose_device("auto")
    channel.send(known=list(model.classes))
    if device == "cpu":
        compile_ahead(model, partial(channel.report, "compile"))
    # its first call takes longer: OpenCV makes its tables of CIELAB, and the network is read
    threading.Thread(target=segment, args=(np.zeros((1, 1, 3), np.uint8),)).start()
    count = min(usable_cores(), MAX_PARALLEL) if device == "cpu" else 1
    examiners: queue.LifoQueue[Examiner | None] = queue.LifoQueue()
    for _ in range(count - 1):  # made when that many photos wait
        examiners.put(None)
    examiners.put(Examiner(model, device=device, threads=1))
    channel.send(
        ready=True, classes=list(model.classes), device=device,
        rejection=model.sections.get(SECTION, {}), model=asdict(read_identity(Path(asked["model"]))),
        maps=feature_node(model.graph) is not None, adapted=ORIGIN in model.sections,
    )  # fmt: skip
    with ThreadPoolExecutor(count, "examine") as pool:
        flying: deque[Future[dict[str, Any]]] = deque()
        while (request := _next(channel, flying)) is not None:
            flying.append(pool.submit(_answer, model, device, examiners, request))
            while flying and (flying[0].done() or len(flying) > count):
                channel.send(**flying.popleft().result())


def _next(channel: Channel, flying: deque[Future[dict[str, Any]]]) -> dict[str, Any] | None:
    """The next request; while none is waiting, results are sent as soon as they are ready."""
    while True:
        try:
            request = channel.requests.get(block=not flying)
        except queue.Empty:
            channel.send(**flying.popleft().result())
            continue
        if request is None or channel.ended():
            return None
        return request


def _answer(
    model: ModelFile, device: str, examiners: queue.LifoQueue[Examiner | None], request: dict[str, Any]
) -> dict[str, Any]:
    answer: dict[str, Any] = {name: request[name] for name in ("id", "path", "label") if name in request}
    examiner = examiners.get()
    try:
        examiner = examiner or Examiner(model, device=device, threads=1)
        key = current_key(request["path"])
        leaves = bool(request.get("leaves"))
        photo = read_file(request["path"], SEVERAL, 2 * SEVERAL, MARGINS if leaves else SQUARE, hashed=True)
        if photo.pixels is None:
            answer["error"] = photo.reason
        elif "label" in request:
            found = examiner.map_class(photo.pixels, request["label"], MAP_SIDE, request["box"], request["leaves"])
            answer["map"] = encode_map(found)
        else:
            answer |= _describe(examiner.examine(photo.pixels, crop=bool(request.get("crop", True)), leaves=leaves))
            answer |= {"hash": photo.content.hex(), "taken": read_time(request["path"]), "key": key}
    finally:
        examiners.put(examiner)
    return answer


def _describe(found: Examination) -> dict[str, Any]:
    """What the window shows of a photo, and the prediction, from which it decides the verdict."""
    severity = found.severity
    if found.lesion_leaf is not None:
        severity = Severity(severity.leaf, found.lesion_leaf)
    shares = np.bincount(severity.lesions[severity.leaf], minlength=len(found.leaves) + 1)
    shares = 100 * shares / max(shares.sum(), 1)
    return {
        **_describe_prediction(found.prediction),
        "notes": list(found.warnings),
        "diseased": found.severity.percent if severity.leaf.any() else None,
        "mask": encode_mask(severity, found.box),
        "leaves": [{"id": number, "box": leaf.box, "diseased": leaf.lesions, "share": float(shares[number]),
                    **_describe_prediction(leaf.prediction)}
                   for number, leaf in enumerate(found.leaves, 1)],
    }  # fmt: skip


def _describe_prediction(prediction: Prediction) -> dict[str, Any]:
    return {"probabilities": prediction.probabilities.tolist(), "familiarity": prediction.familiar}


def encode_map(values: Array) -> dict[str, Any]:
    """A map in 0..1 as bytes in a line of text."""
    small = np.clip(255 * values + 0.5, 0, 255).astype(np.uint8)
    return {"height": small.shape[0], "width": small.shape[1], "data": base64.b64encode(small.tobytes()).decode()}
