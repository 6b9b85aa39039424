"""Make the shipped model of a finished run: photo side for use, views, temperatures, thresholds, statistics, sources.

    python -m benchmarks.ship_model runs/leaves $LEAFCLINIC_DATA/leaves --bits 8 --commit COMMIT --out new.safetensors
    python -m benchmarks.ship_model leaves.safetensors $LEAFCLINIC_DATA/leaves --views 2 --out again.safetensors

The second judges the weights of a file anew; `--made` says how they came about where the file does not. Reads training
and validation photos only. `benchmarks.diagnosis` then judges it on the test split and writes the card.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.pack_photos import chosen_rows
from core.data.photo_reader import read_photo
from core.diagnosis.completion import CALIBRATION, LabelledPhotos, complete_model
from core.diagnosis.crop import crop_of
from core.diagnosis.model_card import DATA
from core.diagnosis.model_file import ModelFile, in_bits, read_model, write_model
from core.diagnosis.model_identity import today
from core.diagnosis.photo_size import with_photo_side
from core.diagnosis.views import VIEWS
from core.training.presets import PRESETS

PER_CLASS = 120
"""Training photos per class that are read: statistics need 100, the border baseline some more."""

SOURCES = (
    "Photos of apple, bean, black gram, chilli, citrus, strawberry and tomato leaves, and of scenes without a leaf; "
    "only the training split was learned from. Split 70/15/15 by leaf or near-copy group within each class.",
    "Tomato, apple and strawberry come from PlantVillage (Hughes and Salathe, 2015): CC0 1.0, CC BY 3.0, CC BY 4.0 and "
    "CC BY-SA 3.0 are claimed for copies in circulation; the tomato copy states none. A person must settle this before "
    "the weights are given to others.",
    "Bean: AI-Lab-Makerere iBean (MIT, CC BY 4.0). Citrus: Rauf et al. 2019, Data in Brief 26:104340 (CC BY 4.0). "
    "Chilli: Mendeley tf9dtfz9m6 (CC BY 4.0). Black gram: Mendeley zfcv9fmrgv (CC BY 4.0). Scenes without a leaf: "
    "CC BY 4.0 by the repository's claim.",
)
WEAKNESSES = (
    "There is no field photo of tomato, apple, strawberry or citrus: on a plant outdoors its figures do not hold. "
    "Published networks of this kind fall from 99 % to about 30 % there.",
    "One leaf on grey or violet paper fills most photos, and paper and light differ by class: see the test of "
    "the background.",
    "Groups of tomato photos come from matching alone, so a few test leaves may also be in training.",
    "Chilli has 9 to 19 test photos per class and noisy labels; citrus/healthy has 7.",
    "86 late blight photos are cut out on black, and no other class has any.",
    "Scenes without a leaf are streets, landscapes and pets; close-ups of cloth or soil were not tried.",
)
NAME = "LeafClinic leaves"
LICENCE = "MIT for the weights as a work of this project; the photos' licences are unsettled, see the sources"


def read_part(
    root: Path, split: str, classes: Sequence[str], side: int, most: int = 0, seed: int = 0
) -> LabelledPhotos:
    """Photos of a split whose class the model knows, as squares of `side`; at most so many per class, by seed."""
    rows = [r for r in chosen_rows(root / "manifest.csv", [split], []) if name_of(r) in classes]
    labels = np.array([classes.index(name_of(r)) for r in rows])
    kept = np.arange(len(rows))
    if most:
        rng = np.random.default_rng(seed)
        kept = np.sort(np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:most] for c in np.unique(labels)]))
    return LabelledPhotos(np.stack([read_photo(str(root / rows[i]["path"]), side) for i in kept]), labels[kept])


def name_of(row: dict[str, str]) -> str:
    return f"{row['crop']}/{row['condition']}"


def ship(trained: ModelFile, root: Path, made: str, device: str = "cpu") -> ModelFile:
    """The model as it will be stored: what it told of itself is left out and measured anew. `made`: a sentence."""
    kept = {name: value for name, value in trained.figures.items() if not name.startswith(("validation_", "test_"))}
    model = replace(trained, licence=LICENCE, figures=kept, sections={}, extra={})
    train = read_part(root, "train", model.classes, model.source_side, PER_CLASS)
    validation = read_part(root, "val", model.classes, model.source_side)
    model = complete_model(model, train, validation, device=device)
    bins = model.sections[CALIBRATION]["bins"]
    photos = len(validation.labels)
    reached = {"validation_photos": photos, "validation_accuracy": sum(b["photos"] * b["right"] for b in bins) / photos}
    sources = {"sources": [*SOURCES, made], "weaknesses": list(WEAKNESSES)}
    return replace(model, figures={**kept, **reached}, sections={**model.sections, DATA: sources})


def prepared(trained: ModelFile, side: int, views: int, bits: int) -> ModelFile:
    """The model used at `side`, with so many views and bits a weight; 0: as it says itself."""
    model = replace(trained, views=views or trained.views)
    if side:
        model = replace(model, graph=with_photo_side(model.graph, side))
    return in_bits(model, bits) if bits else model


def how_made(named: Path, trained: ModelFile, commit: str) -> str:
    """How the weights of a run or of a shipped file came about, as a sentence; empty where neither tells."""
    if named.is_dir():
        return trained_by(named, commit) if commit else ""
    return str(trained.sections.get(DATA, {}).get("sources", [""])[-1])


def trained_by(run: Path, commit: str) -> str:
    """How these weights were made, as a sentence: the preset, and the options given besides."""
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    recipe = PRESETS[config["preset"]].values
    given = {name: config[name] for name, value in recipe.items() if name in config and config[name] != value}
    options = {"preset": config["preset"], "seed": config["seed"], "epochs": config["epochs"], **given}
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return f"Trained from scratch on an NVIDIA H200 at commit {commit} of this project: leafclinic train {words}."


def by_crop(model: ModelFile) -> str:
    """The temperature of each crop, where they have their own."""
    found = {crop_of(name): t for name, t in zip(model.classes, model.class_temperatures, strict=False)}
    return ", ".join(f"{crop} {temperature:.3f}" for crop, temperature in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="run folder or model file")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--side", type=int, default=0, help="pixels in use (as validated)")
    parser.add_argument("--views", type=int, choices=VIEWS, default=0, help="2: with the mirror image (as it says)")
    bits = parser.add_mutually_exclusive_group()
    bits.add_argument("--bits", type=int, choices=(8, 16, 32), default=0, help="of a weight in the file (as it is)")
    bits.add_argument("--half", dest="bits", action="store_const", const=16, help="the same as --bits 16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--commit", default="", help="what the training of a run folder ran from")
    parser.add_argument("--made", default="", help="a sentence: how the weights came about")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    trained = read_model(options.model)
    made = options.made or how_made(options.model, trained, options.commit)
    if not made:
        parser.error("Say how the weights came about: --commit of a run folder, or --made.")
    model = prepared(trained, options.side, options.views, options.bits)
    model = ship(model, options.photos, made, options.device)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_model(options.out, replace(model, name=NAME, date=model.date or today()))
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB, temperature {model.temperature:.3f} "
          f"({by_crop(model) or 'of all crops'}), "
          f"{100 * model.figures['validation_accuracy']:.2f} % of validation photos right")


if __name__ == "__main__":
    main()
