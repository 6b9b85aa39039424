"""Reviews the labels of all photos (`core.diagnosis.label_review`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.processes.protocol import Channel, serve
from core.config import from_dict
from core.data.dataset import Cancelled
from core.diagnosis.label_review import review_labels
from core.review import read_photos


def main() -> int:
    return serve(_work)


def _work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: data, a folder or manifest, and model, a file or the name of a shipped model."""

    def report(stage: str, done: int, total: int) -> None:
        channel.send(stage=stage, done=done, total=total)

    def advance(fold: int, folds: int) -> None:
        if channel.ended():
            raise Cancelled("The review was stopped.")
        report("folds", fold, folds)

    try:
        photos = read_photos(from_dict({"data": asked["data"]}), Path(asked["model"]), report, channel.ended)
        dataset = photos.photos.dataset
        review = review_labels(photos.samples, len(dataset.classes), advance)
    except Cancelled:
        return
    suspects = [
        {"path": dataset.path(int(photos.rows[one.row])), "label": dataset.classes[one.label],
         "suggested": dataset.classes[one.suggested], "probability": one.probability, "agreeing": one.agreeing}
        for one in review.suspects
    ]  # fmt: skip
    few = [dataset.classes[number] for number in review.few]
    channel.send(suspects=suspects, agreement=review.agreement, photos=len(photos.rows), few=few)
