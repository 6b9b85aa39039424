"""Candidates for the shipped model, all judged the same way on validation photos: alone and side by side.

    python -m benchmarks.candidates $LEAFCLINIC_DATA/leaves leaves.safetensors runs/seed-1 runs/seed-2 --bits 8 \
        --out .cache/candidates.json

Of every model the logits of the photo and of its mirror image are computed once and kept under .cache/logits (100 s of
two cores for each view of MobileNetV2). Then every model and every mean of the logits of two (`--together 3`: of three)
is scored with one and with both views. A mean of logits is what `benchmarks.join` makes one file of.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.ship_model import prepared
from benchmarks.validation import Score, ValidationPhotos, describe, find_photos, read_logits, score
from core.diagnosis.model_file import ModelFile, read_model
from core.errors import ModelFileError
from core.ops.contract import Array


@dataclass(frozen=True)
class Candidate:
    """Models whose logits are averaged, by name, over so many views of a photo."""

    models: tuple[str, ...]
    views: int
    score: Score


def read_candidates(paths: Sequence[Path], bits: int, side: int) -> list[ModelFile]:
    """Models as they would be stored. Raises ModelFileError where they tell other classes apart."""
    models = []
    for path in paths:
        model = read_model(path)
        if models and model.classes != models[0].classes:
            raise ModelFileError(f"{path} tells other classes apart than {paths[0]}: they cannot be compared.")
        models.append(prepared(model, side, model.views, bits))
    return models


def judge_all(
    names: Sequence[str], logits: Sequence[Sequence[Array]], photos: ValidationPhotos, together: int
) -> Iterator[Candidate]:
    """Scores of all combinations of at most so many. logits: of each model by view, ``(N, classes)``."""
    for count in range(1, together + 1):
        for members in itertools.combinations(range(len(names)), count):
            for views in range(1, 1 + len(logits[0])):
                mean = np.mean([logits[i][view] for i in members for view in range(views)], axis=0)
                yield Candidate(tuple(names[i] for i in members), views, score(mean, photos))


def name_of_path(path: Path) -> str:
    return path.stem if path.is_file() else path.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="model files or run folders")
    parser.add_argument("--bits", type=int, choices=(8, 16, 32), default=0, help="round weights to these (as they are)")
    parser.add_argument("--side", type=int, default=0, help="pixels in use (as the models say)")
    parser.add_argument("--views", type=int, choices=(1, 2), default=2, help="2: also with the mirror image")
    parser.add_argument("--together", type=int, default=2, help="most models whose mean is judged")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth photo, for a first look")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="JSON with every score")
    options = parser.parse_args()
    models = read_candidates(options.models, options.bits, options.side)
    photos = find_photos(options.photos, models[0].classes, options.every)
    logits = []
    for model in models:
        views = (False, True)[: options.views]
        logits.append([read_logits(model, photos, mirrored, options.device) for mirrored in views])
    names = [name_of_path(path) for path in options.models]
    found = list(judge_all(names, logits, photos, min(options.together, len(models))))
    for candidate in found:
        print(f"{describe(candidate.score)}  {candidate.views} view{'s'[: candidate.views - 1]}  "
              f"{', '.join(candidate.models)}", flush=True)
    if options.out:
        told = {"photos": len(photos.labels), "bits": options.bits, "candidates": [asdict(c) for c in found]}
        options.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
