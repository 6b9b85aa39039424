"""Tables of the page of further measurements: several labels, plants, unknown crops, and what helps outdoors."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

from benchmarks.tables.diagnosis import by_photos
from benchmarks.tables.results import markdown_table, of_seeds, percent, read

SCORES = {"probability": "probability", "energy": "energy", "nearest photos": "nearest photos",
          "relative Mahalanobis": "relative Mahalanobis", "ViM, 128 dimensions": "ViM"}  # fmt: skip
FURTHER = {"trained further on generated outliers": "energy, generated outliers",
           "trained further on real outliers": "energy, real outliers"}  # fmt: skip
FIGURES = ("precision", "recall", "f1")
SHOWN = {
    "lab": "the network before: lab photos only", "paper": "leaves on plain colours",
    "backgrounds": "leaves on backgrounds", "scenes": "leaves in scenes", "only": "scenes, no other crop",
    "strong": "scenes, `--augment strong`",
    "from ImageNet, with photos of benchmarks.composed_training": "from ImageNet's weights, with scenes",
}  # fmt: skip
"""Keys of leave_crop_out.json by their names on the page."""


def several_labels() -> str:
    """Precision, recall and F1 of each label, means of three seeds, and the figures of all."""
    found = read("several_labels-nvidia-h200")
    labels: dict[str, list[dict[str, Any]]] = {}
    for row in found["labels"]:
        labels.setdefault(row["label"], []).append(row)
    rows = [[name, str(each[0]["photos"]), *(of_seeds([one[key] for one in each]) for key in FIGURES)]
            for name, each in labels.items()]  # fmt: skip
    shown = [f"{name} {of_seeds([row['ours'] for row in found['rows'] if row['name'].startswith(f'{name}, seed')])}"
             for name in ("mean F1", "mean average precision", "all labels right")]  # fmt: skip
    return markdown_table(["label", "photos", "precision", "recall", "F1"], rows) + f"\n\nAll: {', '.join(shown)}."


def plant_calibration() -> str:
    return by_photos("calibration error, points", lambda row: f"{100 * row['calibration_error']:.1f}")


def left_out_crops() -> str:
    """AUROC and FPR at 95 % TPR of each crop by each score, and of the familiarity as shipped."""
    found = read("left_out")
    shipped = found["recipe of the shipped model"]["in the program"]["parts"]
    rows, values = [], []
    for crop, part in found["parts"].items():
        if crop.startswith("diseases"):
            continue
        networks = [part[f"seed {seed}"]["network"] for seed in range(3)]
        scores = [[mean(one[score]["all"][at] for one in networks) for at in range(2)] for score in SCORES]
        scores += [part["seed 0"][name]["energy"]["all"][:2] for name in FURTHER]
        pair = shipped[crop]["two side by side"]
        auroc, false, refused = pair["familiarity in the program"]
        values.append([*scores, [auroc, false]])
        rows.append([crop, *map(_pair, values[-1]), percent(refused, 0), percent(pair["left, diagnosed"], 0)])
    means = [[mean(figure) for figure in zip(*column, strict=True)] for column in zip(*values, strict=True)]
    rows.append(["mean", *map(_pair, means), "", ""])
    heads = [*SCORES.values(), *FURTHER.values(), "as shipped", "rejected", "diagnosed"]
    return markdown_table(["AUROC / FPR@95", *heads], rows)


def _pair(score: list[float]) -> str:
    return f"{score[0]:.3f} / {score[1]:.2f}"


def lab_to_field() -> str:
    """Field photos of apple named by networks that saw only lab photos of apple, by recipe."""
    found, last = read("leave_crop_out"), "right where the crop is given (every third photo, one view)"
    recipes = {shown: found["field_train"][name] for name, shown in SHOWN.items()}
    recipes |= {f"a small network, batch norm of {kind}": found["batch norm"][f"field_train, statistics of {kind}"]
                for kind in ("training", "these photos")}  # fmt: skip
    rows = []
    for name, row in recipes.items():
        low, high = row["right"]["interval"]
        given = row[last] if last in row else row["known crop"]["right"]["share"]
        rows.append([name, percent(row["right"]["share"]), f"{100 * low:.1f}–{100 * high:.1f}",
                     percent(row["wrong answers refused"], 0), percent(given)])  # fmt: skip
    for name, row in found["further recipes, field_train"].items():
        if name not in ("note", "machine"):
            seeds = ", ".join(f"{100 * value:.1f}" for value in row["right"])
            shown = f"from ImageNet, 40 epochs: {name.replace('as before', 'the recipe above')}"
            rows.append([shown, percent(mean(row["right"])), f"seeds: {seeds}" if len(row["right"]) > 1 else "", "",
                         percent(mean(row["right for the known crop"]))])  # fmt: skip
    return markdown_table(["training", "correct", "95 % interval", "errors refused", "correct, crop known"], rows)


def label_next() -> str:
    """The learning curve of chosen photos beside that of random ones."""
    rows, heads = [], []
    for name, found in read("label_review")["sets"].items():
        curve = found["curve"]
        heads = [str(count) for count in curve["labelled"]]
        rows += [[f"{name}, {way}", *(f"{100 * at:.1f} ± {100 * half:.1f}" for at, half in
                                      zip(curve[way]["mean"], curve[way]["half"], strict=True))]
                 for way in ("chosen", "random")]  # fmt: skip
    return markdown_table(["accuracy, %; labelled photos:", *heads], rows)


def error_signals() -> str:
    found = read("error_signals")
    rows = [[name, *(f"{value:.3f}" for value in pair)] for name, pair in found["signals"].items()]
    heads = [f"AUROC ({found['wrong']} of {found['photos']} wrong)", "all photos", "diagnosed photos"]
    return markdown_table(heads, rows)


def changed_photos() -> str:
    found = read("diagnosis_val")["changed_answers"]
    return markdown_table(["photo", "other class predicted"], [[name, percent(share)] for name, share in found.items()])


TABLES: dict[str, Callable[[], str]] = {
    "several labels": several_labels, "plant calibration": plant_calibration, "left out crops": left_out_crops,
    "lab to field": lab_to_field, "label next": label_next, "error signals": error_signals,
    "changed photos": changed_photos,
}  # fmt: skip
