"""Reviews the labels of all photos, or chooses photos to label next (`core.diagnosis.label_review`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from app.processes.entry import Channel
from core.config import from_dict
from core.diagnosis.label_review import review_labels
from core.review import choose_unlabelled, read_photos

NEXT_PHOTOS: Final = 50
"""Number of photos to label next."""


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: data, a folder or manifest; model, a file or name; unlabelled: "", or a folder to choose from."""
    config = from_dict({"data": asked["data"]})
    photos = read_photos(config, Path(asked["model"]), channel.report)
    if folder := asked.get("unlabelled"):
        chosen = choose_unlabelled(photos, config, folder, NEXT_PHOTOS, channel.report)
        channel.send(chosen=chosen)
        return
    dataset, rows = photos.photos.dataset, photos.photos.cache.kept
    review = review_labels(photos.samples, len(dataset.classes), partial(channel.report, "folds"))
    suspects = [
        {"path": dataset.path(row := int(rows[one.row])), "label": dataset.label(row),
         "suggested": dataset.classes[one.suggested], "probability": one.probability, "agreeing": one.agreeing}
        for one in review.suspects
    ]  # fmt: skip
    few = [dataset.classes[number] for number in review.few]
    channel.send(suspects=suspects, agreement=review.agreement, photos=len(rows), few=few,
                 learned=photos.learned)  # fmt: skip
