"""Tables of the shipped model: accuracy on the test split, rejection, robustness, and the log of readings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tables.results import markdown_table, percent, read

TEST = "diagnosis_test"
SHIPPED = {"leaves": "", "small": "_small", "permissive": "_permissive"}
COMPARED = ("all", "lab photos of leaves", "field photos of leaves", "apple, field", "tomato", "bean", "mango")
PARTS = {"place": "orchard, held out", "others": "other validation photos", "unknown": "unknown crops"}
FIGURES = {"correct": "correct", "answered": "answered", "calibration_error": "calibration error",
           "unfamiliar": "rejected as unfamiliar"}  # fmt: skip
UNKNOWN = ("rice", "soybean", "strawberry", "wheat")


def accuracy() -> str:
    """Accuracy in all, by crop and by setting, with 95 % intervals."""
    rows = [
        [part["name"], str(part["photos"]), percent(part["right"], 2),
         f"{percent(part['interval'][0])} to {percent(part['interval'][1])}"]
        for part in read(TEST)["parts"]
    ]  # fmt: skip
    return markdown_table(["test photos", "photos", "correct", "95 % interval"], rows)


def shipped_models() -> str:
    """The shipped models side by side, each on the test photos of the classes that it knows."""
    found = {name: read(f"{TEST}{suffix}") for name, suffix in SHIPPED.items()}
    parts = [{part["name"]: part for part in model["parts"]} for model in found.values()]
    rows = [[f"correct, {name}", *(_share(part.get(name)) for part in parts)] for name in COMPARED]
    covered = [dict(row[:2] for row in model["coverage"]) for model in found.values()]
    nine = [next(right for share, right in shares.items() if abs(share - 0.9) < 0.005) for shares in covered]
    rows += [
        ["correct among the most confident 90 %", *(percent(right, 2) for right in nine)],
        ["calibration error", *(f"{model['calibration_error']:.3f}" for model in found.values())],
        *([f"{crop} photos rejected as unfamiliar",
           *(percent(model["rejection"][f"unknown {crop}, refused as unlike"], 0) for model in found.values())]
          for crop in UNKNOWN),
        ["size of the file", *(f"{model['bytes'] / 1e6:.1f} MB" for model in found.values())],
    ]  # fmt: skip
    return markdown_table(["on the test split", *found], rows)


def _share(part: dict[str, Any] | None) -> str:
    return "–" if part is None else f"{percent(part['right'], 2)} of {part['photos']}"


def reliability() -> str:
    """Calibration, coverage, rejection and robustness."""
    found = read(TEST)
    rejection: dict[str, Any] = found["rejection"]
    covered = {share: right for share, right, _ in found["coverage"]}
    rows = [
        ["macro F1", f"{found['macro_f1']:.3f}"],
        *([f"calibration error{place}", f"{found['calibration_error' + key]:.4f}"]
          for place, key in (("", ""), (", lab photos", "_lab"), (", field photos", "_field"))),
        *([f"correct among the most confident {percent(share, 0)}", percent(right, 2)]
          for share, right in covered.items() if share < 1),
        ["AUROC of photos without a leaf", f"{rejection['no_leaf_auroc']:.5f}"],
        ["leaves rejected at the threshold that rejects 98 % of photos without a leaf",
         percent(rejection["good_leaves_refused_where_98_percent_of_non_leaves_are"], 2)],
        ["leaves of known crops rejected as unfamiliar", percent(rejection["good_leaves_refused_as_unlike"])],
        *([f"AUROC of an unknown crop ({crop})", f"{rejection[f'unknown {crop}, AUROC']:.3f}"] for crop in UNKNOWN),
        *([f"{crop} photos rejected as unfamiliar", percent(rejection[f"unknown {crop}, refused as unlike"])]
          for crop in UNKNOWN),
        ["size of the model file", f"{found['bytes'] / 1e6:.1f} MB"],
    ]  # fmt: skip
    return markdown_table(["on the test split", "figure"], rows) + f"\n\nCommit {found['commit'][:10]}."


def unknown_crops() -> str:
    """AUROC and share rejected of crops that the model does not know, by score."""
    text = ""
    for model, found in read("unknown_crops")["models"].items():
        groups = list(found["unknown_photos"])
        rows = [[name, *(f"{row[group][0]:.3f} ({percent(row[group][2], 0)})" for group in groups)]
                for name, row in found["scores"].items()]  # fmt: skip
        text += f"{model}:\n\n" + markdown_table(["score", *groups], rows) + "\n\n"
    return text.rstrip()


def error_signals() -> str:
    """How well each signal tells wrong diagnoses from correct ones."""
    rows = [[name, f"{auroc[0]:.3f}", f"{auroc[1]:.3f}"] for name, auroc in read("error_signals")["signals"].items()]
    return markdown_table(["signal, AUROC of a wrong diagnosis", "all", "answered"], rows)


def plants() -> str:
    """Accuracy of 1, 2, 4 and 6 photos of one class together."""
    rows = [
        [part, size, percent(row["correct"], 2), percent(row["vote"], 2), f"{row['calibration_error']:.3f}"]
        for part, sizes in read("plants")["parts"].items() for size, row in sizes.items()
    ]  # fmt: skip
    return markdown_table(["photos", "together", "correct", "correct by vote", "calibration error"], rows)


def adaptation() -> str:
    """Before and after adapting models to the orchard, the mean over draws, and the range of accuracy there."""
    rows = []
    for name, runs in read("adaptation")["models"].items():
        for part, shown in PARTS.items():
            for key, figure in FIGURES.items():
                if part == "unknown" and key != "unfamiliar":
                    continue
                values = [[run[part][when][key] for run in runs] for when in ("before", "after")]
                mean = [sum(v) / len(v) for v in values]
                change = [after - before for before, after in zip(*values, strict=True)]
                rows.append([name, f"{shown}: {figure}", *(percent(v, 2) for v in mean),
                             f"{100 * min(change):+.2f} to {100 * max(change):+.2f}"])  # fmt: skip
        seconds = max(run["processor_seconds"] for run in runs)
        rows.append([name, "processor time of the fit, at most", "", f"{seconds:.0f} s", ""])
    return markdown_table(["model", "figure", "before", "after", "change in points"], rows)


def adaptation_methods() -> str:
    """Accuracy in the orchard and elsewhere after each way of adapting, the mean over draws."""
    rows = []
    for name, runs in read("adaptation")["models"].items():
        for method in runs[0]["methods"]:
            there, elsewhere = (sum(run["methods"][method][part] for run in runs) / len(runs) for part in (0, 1))
            rows.append([name, method, percent(there, 2), percent(elsewhere, 2)])
    return markdown_table(["model", "method", "orchard", "other photos"], rows)


def readings() -> str:
    """Every reading of the test split, oldest first."""
    rows = [
        [entry["date"], entry["model"], percent(entry["accuracy"], 2), entry.get("macro_f1", ""), entry["reason"]]
        for entry in read("test_readings")["readings"]
    ]
    return markdown_table(["date", "model", "accuracy", "macro F1", "why it was read"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "diagnosis accuracy": accuracy,
    "shipped models": shipped_models,
    "diagnosis reliability": reliability,
    "unknown crops": unknown_crops,
    "error signals": error_signals,
    "plants": plants,
    "adaptation": adaptation,
    "adaptation methods": adaptation_methods,
    "test readings": readings,
}
