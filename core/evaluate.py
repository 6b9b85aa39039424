"""``leafclinic evaluate MODEL --data ...``: the accuracy of a model on labelled photos."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev

from core import command_line
from core.config import RunConfig
from core.data.dataset import SPLIT_NAMES, TEST, VALIDATION
from core.data.split import open_split
from core.diagnosis.evaluation import Evaluation, Mistake, evaluate_model
from core.diagnosis.metrics import describe_accuracy, describe_groups, describe_subsets
from core.diagnosis.model_identity import CONFIG, MODEL_HELP, find_model, require_model
from core.diagnosis.prediction import read_network
from core.diagnosis.thresholds import describe_coverage
from core.errors import EXIT_CODES, EXIT_DONE, DataError, Problem
from core.percent import percents, rounded
from core.storage import inside_photos, write_file
from core.text import align_columns, csv_text, json_line, printable
from core.training.run_folder import READINGS, SPLIT, find_run, list_sources, log_reading, read_config

CHOSEN_NOTE = ("The epoch, temperatures and thresholds of the run were chosen on {chosen} of these photos. On them the "
               "accuracy is slightly too high, and the calibration error too low.")  # fmt: skip
COLUMNS = ("path", "label", "prediction", "probability")
"""Of the table of misclassified photos."""


@command_line.as_command
def main(argv: Sequence[str]) -> int:
    arguments, found = command_line.read_arguments(make_parser(), argv)
    runs, split = [Path(model) for model in arguments.models], arguments.split_name
    own = "data" not in arguments and all((run / CONFIG).is_file() for run in runs)
    if "data" not in arguments and not own:
        require_model(next(run for run in runs if not (run / CONFIG).is_file()))
        found.append(Problem("data", "is missing. Give a folder of photos or a CSV manifest."))
    if own:
        found += [Problem(name, "needs --data.") for name in ("where", "label") if name in arguments.given]
    if split and split not in SPLIT_NAMES:
        found.append(Problem("split", f"{split!r} is not one of train, val, test."))
    if arguments.mistakes and len(runs) > 1:
        found.append(Problem("mistakes", "needs a single model."))
    coverage = command_line.read_coverage(arguments.coverage, found) if arguments.coverage else None
    command_line.check_folder("mistakes", arguments.mistakes, found,
                              list_sources(arguments.models[0], vars(arguments)), heading=csv_text([COLUMNS]))
    config = command_line.merge_settings(command_line.read_settings(arguments, found), {}, found)
    splits = {file.read_bytes(): str(file) for run in runs if (file := find_model(run).with_name(SPLIT)).is_file()}
    if own and len(splits) > 1:
        raise DataError(f"These runs divide their photos differently. Train them with --split {runs[0] / SPLIT}, "
                        "or evaluate them with --data.")  # fmt: skip
    fallback = next(iter(splits.values())) if len(splits) == 1 else ""
    evaluations = [_evaluate(run, config, own, split, coverage, fallback) for run in runs]
    if arguments.json:
        text = json_line(describe_json(evaluations[0]) if len(runs) == 1 else compare_json(runs, evaluations))
    else:
        text = describe_text(evaluations[0], split) if len(runs) == 1 else compare_text(runs, evaluations, split)
        text = printable(text, "\n")
    try:
        print(text)
    finally:  # a full disk does not hide the result, and a result that nobody reads not the table
        if arguments.mistakes:
            write_mistakes(Path(arguments.mistakes), evaluations[0].mistakes)
    return EXIT_DONE


def _read_splits(folder: Path) -> dict[bytes, int]:
    """The split of each photo, by its SHA-256, of the run in a folder; empty without a run. Raises DataError."""
    if find_run(folder) is None or not (folder / SPLIT).is_file():
        return {}
    written, by_content = open_split(folder / SPLIT)
    return {content: int(written.splits[row]) for content, row in by_content.items()}


def _evaluate(run: Path, config: RunConfig, own: bool, split: str, coverage: float | None, fallback: str) -> Evaluation:
    """The evaluation of a model, logged if on test photos of its run; warnings go to stderr. own: on a run's photos."""
    if own:
        trained = read_config(run)
        config = replace(trained, device=config.device, threads=config.threads, split=str(run / SPLIT),
                         field=config.field or trained.field, cache=config.cache or trained.cache)
    model, folder = read_network(run), find_model(run).parent
    splits = _read_splits(folder)
    if coverage is not None:
        sys.stderr.write(describe_coverage(model.thresholds, coverage))
    evaluation, skipped = evaluate_model(model, config, split, coverage, fallback)
    if chosen := {content for content, _ in evaluation.outcomes if splits.get(content) == VALIDATION}:
        evaluation = replace(evaluation, known=(*evaluation.known, CHOSEN_NOTE.format(chosen=len(chosen))))
    if right := [good for content, good in evaluation.outcomes if splits.get(content) == TEST]:
        inside = inside_photos(str(folder / READINGS), (config.data, config.field))
        skipped = tuple(filter(None, (*skipped, inside or log_reading(folder, fmean(right)))))
    sys.stderr.writelines(printable(sentence) + "\n" for sentence in skipped)
    return evaluation


def compare_json(runs: Sequence[Path], evaluations: Sequence[Evaluation]) -> dict[str, object]:
    """Several evaluations as a JSON object, with mean and standard deviation over the models."""
    found: dict[str, object] = {"models": [{"model": str(run)} | describe_json(evaluation)
                                           for run, evaluation in zip(runs, evaluations, strict=True)]}
    for name, values in _list_compared(evaluations).items():
        found |= {f"{name}_mean": fmean(values), f"{name}_deviation": stdev(values)}
    return found


def _list_compared(evaluations: Sequence[Evaluation]) -> dict[str, list[float]]:
    """Figures of all models, by their names in JSON output."""
    figures = [evaluation.figures for evaluation in evaluations]
    found = {name: [float(getattr(one, name)) for one in figures] for name in ("accuracy", "macro_f1")}
    several = [one.several.average_precision for one in figures if one.several]
    return found | ({"mean_average_precision": several} if len(several) == len(figures) else {})


def compare_text(runs: Sequence[Path], evaluations: Sequence[Evaluation], split: str) -> str:
    """A table of several evaluations, with mean and standard deviation over the models, and the details of each."""
    figures = [evaluation.figures for evaluation in evaluations]
    compared = {name: f"{fmean(values):.3f} ± {stdev(values):.3f}" for name, values in
                _list_compared(evaluations).items()}  # fmt: skip
    precision, right = compared.get("mean_average_precision"), [100 * one.accuracy for one in figures]
    name, f1 = ("all labels right", "mean F1") if precision else ("accuracy", "macro F1")
    last = f", mean average precision {precision}" if precision else ""
    rows = [("model", "photos", name, "95 % interval", f1)]
    rows += [(str(run), str(one.photos), f"{rounded(one.accuracy)} %", percents(*one.interval), f"{one.macro_f1:.3f}")
             for run, one in zip(runs, figures, strict=True)]
    details = ["\n".join((f"\n\n{run}", *describe_details(one))) for run, one in zip(runs, evaluations, strict=True)]
    return (f"{name.capitalize()} on {split + ' ' if split else ''}photos, mean and standard deviation over "
            f"{len(runs)} models: {fmean(right):.1f} ± {stdev(right):.1f} %, {f1} {compared['macro_f1']}{last}.\n\n"
            f"{align_columns(rows, (1, 2, 3, 4))}" + "".join(details))  # fmt: skip


def write_mistakes(path: Path, mistakes: Sequence[Mistake]) -> None:
    """Write the misclassified photos as CSV, most confident first. Raises StorageError."""
    rows = [(m.path, m.label, m.predicted, f"{m.probability:.4f}") for m in mistakes]
    write_file(path, csv_text([COLUMNS, *rows]))


def describe_json(evaluation: Evaluation) -> dict[str, object]:
    """The evaluation as a JSON object, a stable interface."""
    figures = evaluation.figures
    found: dict[str, object] = {
        "photos": figures.photos, "accuracy": figures.accuracy, "accuracy_interval": figures.interval,
        "macro_f1": figures.macro_f1, "macro_f1_interval": figures.f1_interval, "loss": figures.loss,
        "per_class": [asdict(c) for c in figures.per_class], "classes": figures.classes,
    }  # fmt: skip
    found |= ({"confusion": figures.confusion} if figures.several is None
              else {"mean_average_precision": figures.several.average_precision})
    if figures.groups:
        found |= {"groups": figures.groups, "design_effect": figures.effect}
    if evaluation.calibration_error is not None:
        found["calibration_error"] = evaluation.calibration_error
        found["calibration_error_by_chance"] = evaluation.chance_error
    if evaluation.parts:
        found["by_place"] = [{"name": p.name, "photos": p.photos, "accuracy": p.accuracy,
                              "accuracy_interval": p.interval} for p in evaluation.parts]  # fmt: skip
    if evaluation.field is not None:
        found["field"] = describe_json(Evaluation(evaluation.field))
    if evaluation.answered is not None:
        found["coverage"] = asdict(evaluation.answered)
    if evaluation.known:
        found["overlap"] = evaluation.overlap and [asdict(part) for part in evaluation.overlap]
    if evaluation.unseen is not None:
        found["not_learned"] = describe_json(Evaluation(evaluation.unseen))
    return found


def describe_text(evaluation: Evaluation, split: str) -> str:
    figures = evaluation.figures
    confused = "" if figures.several else "most often predicted as"
    rows: list[tuple[str, ...]] = [("class", "photos", "precision", "recall", "F1", confused)]
    for c in figures.occurring:
        i = figures.classes.index(c.label)
        counts = figures.confusion[i] if confused else ()
        wrong = [(n, figures.classes[j]) for j, n in enumerate(counts) if j != i and n]
        precision = f"{rounded(c.precision)} %" if c.predicted else "–"
        recall = f"{rounded(c.recall)} %" if c.photos else "–"
        rows.append((c.label, str(c.photos), precision, recall, f"{c.f1:.3f}",
                     f"{max(wrong)[1]} ({max(wrong)[0]})" if wrong else ""))
    lines = (f"{describe_accuracy(figures, split)} Loss {figures.loss:.4f}.", *describe_details(evaluation))
    return "\n".join(lines) + f"\n\n{align_columns(rows, (1, 2, 3, 4))}"


def describe_details(evaluation: Evaluation) -> list[str]:
    """Sentences beside the accuracy: data leakage, accuracy by place, groups, calibration, coverage."""
    return [*filter(None, (
        *evaluation.known, describe_accuracy(evaluation.unseen, "other") if evaluation.unseen else "",
        describe_subsets(evaluation.parts), *map(describe_groups, (evaluation.figures, evaluation.field)),
        "" if evaluation.calibration_error is None else
        f"Expected calibration error: {100 * evaluation.calibration_error:.1f} points; a perfectly calibrated "
        f"model would have {100 * evaluation.chance_error:.1f} by chance.",
        evaluation.answered.describe() if evaluation.answered else "",
    ))]  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leafclinic evaluate", allow_abbrev=False,
                                     description="Evaluate a model on labelled photos.")
    parser.add_argument("models", metavar="MODEL", nargs="+",
                        help=f"{MODEL_HELP}, or ONNX file; of several, such as runs with other seeds, also the mean")
    parser.add_argument("--split", dest="split_name", default="", metavar="{train,val,test}",
                        help="evaluate only this split of the manifest or folder, else of the run (default: all)")
    parser.epilog = f"Without --data, a run folder is evaluated on its own photos and split. {EXIT_CODES}."
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--coverage", default="", metavar="SHARE",
                        help="also report the accuracy when about this fraction of the photos is diagnosed, 0..1")
    parser.add_argument("--mistakes", default="", metavar="OUT.csv",
                        help="also write the misclassified photos, most confident first")
    command_line.add_settings(parser, only=("data", "where", "label", "field", "cache", "device", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
