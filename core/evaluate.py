"""``python -m core.evaluate MODEL --data ...``: how right a model is on photos whose classes are known."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.command_line import add_settings, merge_settings, read_settings, run_command
from core.config import RunConfig
from core.data.cache import open_cache
from core.data.dataset import SPLIT_NAMES, reasons
from core.data.source import open_photos
from core.data.split_file import read_split
from core.diagnosis.figures import Figures, describe_accuracy, judge
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.prediction import Predictor, choose_device
from core.errors import EXIT_DONE, DataError, Problem
from core.training.dry_run import align_columns
from core.training.run_folder import CONFIG, SPLIT, read_config

BATCH = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 2 wrong input, 1 anything else."""
    return run_command(lambda: evaluate(sys.argv[1:] if argv is None else argv))


def evaluate(argv: Sequence[str]) -> int:
    arguments, unknown = make_parser().parse_known_args(argv)
    found = [Problem(text.lstrip("-"), "there is no such option.") for text in unknown]
    run = Path(arguments.model_file)
    own = "data" not in arguments and (run / CONFIG).is_file()
    if "data" not in arguments and not own:
        found.append(Problem("data", "names no photos. Give a folder of photos or a CSV manifest."))
    split = arguments.split_name
    if split and split not in SPLIT_NAMES:
        found.append(Problem("split", f"{split!r} is not one of train, val, test."))
    config = merge_settings(read_settings(arguments, found), {}, found)
    if own:
        trained = read_config(run)
        config = replace(trained, device=config.device, threads=config.threads, split=str(run / SPLIT))
    figures, skipped = judge_model(read_model(run), config, split)
    if skipped:
        sys.stderr.write(skipped + "\n")
    print(json.dumps(describe_json(figures), ensure_ascii=False) if arguments.json else describe_text(figures, split))
    return EXIT_DONE


def judge_model(model: ModelFile, config: RunConfig, split: str) -> tuple[Figures, str]:
    """Figures on the photos that `config` names (of one split where given), and what was left out, in words.

    The split is that of the file `config.split`, else the source's own. Classes are matched by name. Raises
    DataError where the photos have classes that the model does not know.
    """
    dataset = open_photos(config.data, config.label, config.where)
    if split and not config.split:
        dataset = dataset.take(dataset.rows(SPLIT_NAMES[split]))
    cache = open_cache(dataset, model.source_side, folder=config.cache, threads=config.threads)
    kept = cache.kept
    if split and config.split:
        kept = np.flatnonzero(read_split(Path(config.split), dataset, cache) == SPLIT_NAMES[split])
    if not len(kept):
        reason = f" ({reasons(cache.skipped)})" if cache.skipped else ""
        raise DataError(f"There are no {split} photos in {config.data} to judge by{reason}.")
    unknown = [dataset.classes[i] for i in np.unique(dataset.labels[kept]) if dataset.classes[i] not in model.classes]
    if unknown:
        raise DataError(f"The model does not know the class {', '.join(unknown)}. It knows {', '.join(model.classes)}.")
    places = np.array([model.classes.index(name) if name in model.classes else -1 for name in dataset.classes])
    predictor = Predictor(model, device=choose_device(config.device), batch=BATCH, threads=config.threads)
    parts = [predictor.predict(cache.gather(kept[i : i + BATCH]))["logits"] for i in range(0, len(kept), BATCH)]
    predictor.close()
    logits = np.concatenate(parts) / np.float32(model.temperature)
    left_out = f"{len(cache.skipped)} photos are left out: {reasons(cache.skipped)}." if cache.skipped else ""
    return judge(logits, places[dataset.labels[kept]], model.classes), left_out


def describe_json(figures: Figures) -> dict[str, object]:
    """The object that other programs may rely on."""
    return {
        "photos": figures.photos,
        "accuracy": figures.accuracy,
        "macro_f1": figures.macro_f1,
        "loss": figures.loss,
        "per_class": [
            {"label": c.label, "photos": c.photos, "precision": c.precision, "recall": c.recall, "f1": c.f1,
             "precision_interval": c.precision_interval, "recall_interval": c.recall_interval}
            for c in figures.per_class
        ],
        "classes": figures.classes,
        "confusion": figures.confusion,
    }


def describe_text(figures: Figures, split: str) -> str:
    rows: list[tuple[str, ...]] = [("class", "photos", "precision", "recall", "F1", "mostly taken for")]
    for i, c in enumerate(figures.per_class):
        wrong = [(n, figures.classes[j]) for j, n in enumerate(figures.confusion[i]) if j != i and n]
        rows.append((c.label, str(c.photos), f"{100 * c.precision:.1f} %", f"{100 * c.recall:.1f} %", f"{c.f1:.3f}",
                     f"{max(wrong)[1]} ({max(wrong)[0]})" if wrong else ""))
    return f"{describe_accuracy(figures, split)} Loss {figures.loss:.4f}.\n\n{align_columns(rows, (1, 2, 3, 4))}"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m core.evaluate", allow_abbrev=False,
        description="Judge a model on photos whose classes are known.",
    )
    parser.add_argument("model_file", metavar="MODEL", help="model file, or run folder (its best model)")
    parser.add_argument("--split", dest="split_name", default="", metavar="{train,val,test}",
                        help="only photos that the manifest or folder puts there (default: all)")
    parser.epilog = "Without --data a run folder is judged on its own photos, split as it was in training."
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, only=("data", "where", "label", "cache", "device", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
