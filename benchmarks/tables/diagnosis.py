"""Tables of the shipped model: accuracy on the test split, rejection, robustness, and the log of readings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tables.results import markdown_table, percent, read

TEST = "diagnosis_test"


def accuracy() -> str:
    """Accuracy in all, by crop and by setting, with 95 % intervals."""
    rows = [
        [part["name"], str(part["photos"]), percent(part["right"], 2),
         f"{percent(part['interval'][0])} to {percent(part['interval'][1])}"]
        for part in read(TEST)["parts"]
    ]  # fmt: skip
    return markdown_table(["test photos", "photos", "correct", "95 % interval"], rows)


def reliability() -> str:
    """Calibration, coverage, rejection and robustness."""
    found = read(TEST)
    rejection: dict[str, Any] = found["rejection"]
    covered = {share: right for share, right, _ in found["coverage"]}
    rows = [
        ["macro F1", f"{found['macro_f1']:.3f}"],
        ["calibration error", f"{found['calibration_error']:.4f}"],
        *([f"correct among the most confident {percent(share, 0)}", percent(right, 2)]
          for share, right in covered.items() if share < 1),
        ["AUROC of photos without a leaf", f"{rejection['no_leaf_auroc']:.5f}"],
        ["leaves rejected at the threshold that rejects 98 % of photos without a leaf",
         percent(rejection["good_leaves_refused_where_98_percent_of_non_leaves_are"], 2)],
        ["AUROC of an unknown crop (rice)", f"{rejection['unknown rice, AUROC by relative']:.3f}"],
        ["rice photos rejected as unfamiliar", percent(rejection["unknown rice, refused as unlike"])],
        ["leaves of known crops rejected as unfamiliar", percent(rejection["good_leaves_refused_as_unlike"])],
        *([f"predictions changed: {name}", percent(share)] for name, share in found["changed_answers"].items()),
        ["size of the model file", f"{found['bytes'] / 1e6:.1f} MB"],
    ]  # fmt: skip
    return markdown_table(["on the test split", "figure"], rows) + f"\n\nCommit {found['commit'][:10]}."


def unknown_crops() -> str:
    """Networks trained without a crop: how well that crop is told from the known ones."""
    methods = {"probability": "probability", "max_logit": "largest logit", "energy": "energy",
               "mahalanobis": "Mahalanobis", "relative": "relative Mahalanobis (used)"}
    rows = []
    for crop in ("citrus", "chilli"):
        rejection = read(f"diagnosis_without_{crop}")["rejection"]
        cells = [f"{rejection[f'unknown {crop}, AUROC by {method}']:.3f}" for method in methods]
        rows.append([crop, *cells, percent(rejection[f"unknown {crop}, refused as unlike"], 0)])
    return markdown_table(["crop left out of training", *methods.values(), "rejected"], rows)


def readings() -> str:
    """Every reading of the test split, oldest first."""
    rows = [
        [entry["date"], entry["model"], percent(entry["accuracy"], 2), entry.get("macro_f1", ""), entry["reason"]]
        for entry in read("test_readings")["readings"]
    ]
    return markdown_table(["date", "model", "accuracy", "macro F1", "why it was read"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "diagnosis accuracy": accuracy,
    "diagnosis reliability": reliability,
    "unknown crops": unknown_crops,
    "test readings": readings,
}
