"""Make one model of several: side by side, its logits the mean of theirs. `benchmarks.ship_model` completes it.

    python -m benchmarks.join runs/seed-1 runs/seed-2 --commit COMMIT --out pair.safetensors
    python -m benchmarks.ship_model pair.safetensors $LEAFCLINIC_DATA/leaves --views 1 --bits 8 --out leaves.safetensors
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.ship_model import how_made
from core.diagnosis.joined_model import join_models
from core.diagnosis.model_card import DATA
from core.diagnosis.model_file import read_model, write_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="run folders or model files")
    parser.add_argument("--commit", default="", help="what the trainings of run folders ran from")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    models = [read_model(path) for path in options.models]
    made = [how_made(path, model, options.commit) for path, model in zip(options.models, models, strict=True)]
    if not all(made):
        parser.error("Say what the trainings ran from: --commit.")
    joined = join_models(models)
    said = f"{len(models)} networks side by side; an answer is the mean of their logits. {' '.join(made)}"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_model(options.out, replace(joined, sections={DATA: {"sources": [said]}}))
    print(f"{options.out}: {len(models)} networks, {joined.parameters:,} parameters")


if __name__ == "__main__":
    main()
