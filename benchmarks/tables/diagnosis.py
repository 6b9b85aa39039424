"""Tables of the shipped model: accuracy on the test split, rejection and robustness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.tables.results import markdown_table, of_seeds, percent, read

TEST = "diagnosis_test"
SHIPPED = {"leaves": "", "small": "_small", "permissive": "_permissive"}
PARTS = {"place": "orchard, held out", "others": "other validation photos", "unknown": "unknown crops"}
FIGURES = {"correct": "correct", "answered": "diagnosed", "unfamiliar": "rejected as unfamiliar",
           "calibration_error": "calibration error"}  # fmt: skip
OF_PARTS = {"place": tuple(FIGURES), "others": ("correct", "answered", "unfamiliar"), "unknown": ("unfamiliar",)}
BESIDE_THE_CARDS = ("all", "apple, field", "maize, field", "lab photos of leaves", "field photos of leaves",
                    "crop named right", "healthy or not")  # fmt: skip
"""Parts that the page compares; the cards have all."""
UNKNOWN = ("rice", "soybean", "strawberry", "wheat")


def accuracy() -> str:
    """Accuracy of each shipped model in the parts that matter most, with 95 % intervals of the first."""
    found = {name: read(f"{TEST}{suffix}") for name, suffix in SHIPPED.items()}
    others = [{part["name"]: part for part in model["parts"]} for model in list(found.values())[1:]]
    rows = [
        [part["name"], str(part["photos"]), f"{100 * part['right']:.2f}",
         f"{100 * part['interval'][0]:.1f}–{100 * part['interval'][1]:.1f}",
         *(_correct(parts.get(part["name"]), part["photos"]) for parts in others)]
        for part in found["leaves"]["parts"] if part["name"] in BESIDE_THE_CARDS
    ]  # fmt: skip
    return markdown_table(["test photos", "photos", "correct, %", "95 % interval", *list(found)[1:]], rows)


def _correct(part: dict[str, Any] | None, photos: int) -> str:
    if part is None:
        return "–"
    return f"{100 * part['right']:.2f}" + (f" of {part['photos']}" if part["photos"] != photos else "")


def reliability() -> str:
    """Calibration, coverage and rejection of the shipped models side by side."""
    found = [read(f"{TEST}{suffix}") for suffix in SHIPPED.values()]
    rejection = [model["rejection"] for model in found]
    rows = [
        ["macro F1", *(f"{model['macro_f1']:.3f}" for model in found)],
        *([f"calibration error{place}", *(f"{model['calibration_error' + key]:.4f}" for model in found)]
          for place, key in (("", ""), (", lab", "_lab"))),
        *([f"calibration error, {place} (of a perfectly calibrated model)",
           *(f"{one['calibration_error_field']:.4f} ({one['calibration_error_field_by_chance']:.4f})" for one in those)]
          for place, those in (("field", found), ("field, `leaves` pack", [model["first_pack"] for model in found]))),
        *([f"correct of the most confident {percent(share, 0)}", *(_at_coverage(model, share) for model in found)]
          for share in (0.95, 0.9)),
        ["the same, `leaves` pack", *(_at_coverage(model["first_pack"], 0.9) for model in found)],
        ["AUROC of photos without a leaf", *(f"{one['no_leaf_auroc']:.4f}" for one in rejection)],
        ["known leaves rejected as unfamiliar", *(percent(one["good_leaves_refused_as_unlike"]) for one in rejection)],
        *([f"{crop} (unknown) rejected; AUROC/FPR@95",
           *(f"{percent(one[f'unknown {crop}, refused as unlike'], 0)}; {one[f'unknown {crop}, AUROC']:.3f}/"
             f"{one[f'unknown {crop}, FPR at 95 % TPR']:.2f}" for one in rejection)]
          for crop in UNKNOWN),
        ["size of the file", *(f"{model['bytes'] / 1e6:.1f} MB" for model in found)],
    ]  # fmt: skip
    return markdown_table(["on the test split", *SHIPPED], rows) + f"\n\nCommit {found[0]['commit'][:10]}."


def _at_coverage(figures: dict[str, Any], share: float) -> str:
    return percent(next(right for at, right, _ in figures["coverage"] if abs(at - share) < 0.005), 2)


def seeds() -> str:
    """Test accuracy with three other seeds of the second network: mean, and half the width of its 95 % interval."""
    every = [one["parts"] for one in read("leaves_seeds")["seeds"].values()]
    shares = [{part["name"]: 100 * part["right"] for part in parts} for parts in every]
    assert len(shares) == 3
    names = {"all": "all", "photos of the first pack": "`leaves` pack", "tomato": "tomato", "bean": "bean",
             "apple, field": "apple, field"}  # fmt: skip
    shown = [f"{title} {of_seeds([one[name] for one in shares], 1)}" for name, title in names.items()]
    return f"**Three other seeds** of the second network, correct, % (95 % interval): {'; '.join(shown)}."


def known_crop() -> str:
    """Apple in the orchard by three seeds of the network without such photos, for any crop and for the known one."""
    found, name = read("leave_crop_out")["field_test"], "from ImageNet, with photos of benchmarks.composed_training"
    every = [found[name], *found[f"{name}, further seeds"].values()]
    known = [one["known crop"] for one in every]

    def shares(seeds: list[dict[str, Any]]) -> str:
        values = [one["right"]["share"] for one in seeds]
        return f"{percent(mean(values), 0)} ({', '.join(f'{100 * value:.0f}' for value in values)})"

    return (f"Orchard photos of apple, by three models without any: {shares(every)} correct, for the known "
            f"crop {shares(known)}, {percent(mean(one['wrong answers refused'] for one in known), 0)} of the errors "
            "refused.")  # fmt: skip


def left_out() -> str:
    """Photos of crops, and of diseases, that a network was not trained on: rejected, and named as something else."""
    parts = read("left_out")["parts"]
    crops = [part for name, part in parts.items() if not name.startswith("diseases")]
    few = [part for name, part in parts.items() if name.startswith("diseases")]
    seeds = [name for name in crops[0] if name.startswith("seed")]
    shipped = read("left_out")["recipe of the shipped model"]["in the program"]["parts"].values()
    pairs = [part["two side by side"] for part in shipped]

    def describe(found: list[dict[str, Any]], names: Sequence[str], *words: str) -> str:
        shown = [part[name] for part in found for name in names]
        return show([(one["network"]["ViM, 128 dimensions"]["all"], one["left, diagnosed"]) for one in shown], *words)

    def show(figures: list[tuple[list[float], float]], *words: str) -> str:
        areas, false, refused = zip(*(scores for scores, _ in figures), strict=True)
        given = mean(diagnosed for _, diagnosed in figures)
        values = (f"{mean(areas):.3f} (worst {min(areas):.3f})", f"{mean(false):.2f}", percent(mean(refused), 0),
                  percent(given, 0))  # fmt: skip
        return ", ".join(f"{word} {value}".strip() for word, value in zip(words or ("",) * 4, values, strict=True))

    return (f"Networks without one crop ({len(crops)} crops, {len(seeds)} seeds): "
            f"{describe(crops, seeds, 'AUROC', 'FPR@95', 'rejected', 'diagnosed')}; two of them side by side: "
            f"{describe(crops, ['two side by side'])}; as shipped, with spreads: "
            f"{show([(one['familiarity in the program'], one['left, diagnosed']) for one in pairs])}. "
            f"Without one disease of nine crops: {describe(few, seeds)}.")


def plants() -> str:
    """Accuracy of 1, 2, 4 and 6 photos of one class together."""
    return by_photos("correct (by vote), %", lambda row: f"{100 * row['correct']:.2f} ({100 * row['vote']:.2f})")


def by_photos(figure: str, shown: Callable[[Mapping[str, float]], str]) -> str:
    """A figure of each part by the number of photos together."""
    parts = read("plants")["parts"]
    rows = [[part, *map(shown, sizes.values())] for part, sizes in parts.items()]
    return markdown_table([f"{figure}; photos together:", *next(iter(parts.values()))], rows)


def label_review() -> str:
    """Labels flipped on purpose that are found, and accuracy with chosen and random photos, with 95 % intervals."""
    rows = []
    for name, found in read("label_review")["sets"].items():
        curve = found["curve"]
        at = curve["labelled"].index(60)
        figures = [found[f"{share}% flipped"][key] for share in (5, 10) for key in ("precision at 50", "flips found")]
        figures += [curve["chosen"], curve["random"]]
        means = [value["mean"] if isinstance(value["mean"], float) else value["mean"][at] for value in figures]
        halves = [value["half"] if isinstance(value["half"], float) else value["half"][at] for value in figures]
        shown = [f"{100 * mean:.1f} ± {100 * half:.1f}" for mean, half in zip(means, halves, strict=True)]
        rows.append([f"{name} ({found['model']})", str(found["photos"]), *shown])
    heads = [f"{what}, {share} % flipped" for share in (5, 10) for what in ("first 50 wrong", "found")]
    return markdown_table(["%", "photos", *heads, "accuracy, 60 chosen", "60 random"], rows)


def adaptation() -> str:
    """Figures before and after adapting each model to the orchard, the mean over draws."""
    found = read("adaptation")
    models, pairs = found["models"], found["two of these networks side by side"]["correct"]
    rows = [
        [f"{shown}: {FIGURES[key]}", *(_change(runs, part, key) for runs in models.values())]
        for part, shown in PARTS.items() for key in OF_PARTS[part]
    ]
    table = markdown_table(["before → after, %", *models], rows)
    return f"{table}\n\nTwo of these networks side by side: {100 * sum(pairs) / len(pairs):.1f} % correct."


def _change(runs: list[dict[str, Any]], part: str, key: str) -> str:
    before, after = (sum(run[part][when][key] for run in runs) / len(runs) for when in ("before", "after"))
    return f"{100 * before:.1f} → {100 * after:.1f}"


def segmentation() -> str:
    """Errors of the diseased area and IoU by kind of photo, on validation and test photos."""
    splits = [read(f"severity_{split}")["sources"] for split in ("val", "test")]
    rows = []
    for kind in sorted({kind for split in splits for kind in split}):
        found = [split.get(kind, {}) for split in splits]
        rows.append([
            kind.replace("_", " ").replace("/", ", ").replace(", diseased unnamed", ""),
            *(_shown(one, key, form) for one in found
              for key, form in (("photos", "d"), ("error", ".1f"), ("lesion", ".2f"), ("leaf", ".2f"))),
        ])  # fmt: skip
    heads = ("photos", "error", "lesion IoU", "leaf IoU")
    return markdown_table(["photos", *(f"{split}: {head}" for split in ("validation", "test") for head in heads)], rows)


def _shown(row: dict[str, Any], key: str, form: str) -> str:
    return f"{row[key]:{form}}" if key in row else ""


def detector() -> str:
    """Leaves that the detector finds on validation and test photos, and the diagnoses of composed photos."""
    results = read("several_leaves")
    rows = [_detector_rows(results[split]) for split in ("val", "test")]
    shown = [[name, *(cell for of_split in rows for cell in _shown_share(of_split.get(name)))]
             for name in dict.fromkeys([*rows[1], *rows[0]])]  # fmt: skip
    heads = ("share", "95 % interval, %", "of")
    return markdown_table(["", *(f"{split}: {head}" for split in ("validation", "test") for head in heads)], shown)


def _detector_rows(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Shares by their names in the table; kinds without photos are omitted."""
    composed, single = results["composed"], results["one leaf"]
    rows = {}
    if "strawberry" in results:
        rows = {"strawberry leaves in boxes found": results["strawberry"]["found"],
                "the same by regions of colour": results["strawberry"]["by colour"]}  # fmt: skip
    for name in ("leaves found", "boxes that are a leaf", "found leaf right", "the same leaves, lab photo right"):
        rows[f"composed photos: {name}"] = composed["detector"][name]
    for way in ("detector", "true boxes", "regions by colour", "tiles", "whole photo"):
        rows[f"composed photos, the photo's diagnosis right, by: {way}"] = composed[way]["photo right"]
    for kind in ("lab", "apple, field", "bean, field"):
        rows[f"photos of one leaf that seem to show several: {kind}"] = single[kind]["several"]
    rows["photos without a leaf that seem to show several"] = single["no leaf"]["several"]
    return {name: row for name, row in rows.items() if row["of"]}


def _shown_share(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    low, high = (f"{100 * limit:.0f}" for limit in row["interval"])
    return [percent(row["share"], 0), f"{low}–{high}", str(row["of"])]


TABLES: dict[str, Callable[[], str]] = {
    "segmentation accuracy": segmentation,
    "detector accuracy": detector,
    "diagnosis accuracy": accuracy,
    "diagnosis reliability": reliability,
    "seeds": seeds,
    "known crop": known_crop,
    "left out": left_out,
    "plants": plants,
    "adaptation": adaptation,
    "label review": label_review,
}
