"""`leafclinic evaluate` as a user calls it: figures, splits, several runs, the log of readings."""

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from core.diagnosis.metrics import wilson_interval
from core.diagnosis.model_file import TEST, read_model, write_model
from core.diagnosis.model_identity import read_identity
from core.errors import EXIT_WRONG_INPUT
from tests.helpers.commands import call, call_process, read_rows
from tests.helpers.tiny_photos import write_photos


def test_evaluate_prints_one_object_and_how_many_photos_the_model_has_learned_from(trained, photos, cache, tmp_path):
    asked = ("core.evaluate", trained[0], "--data", photos, "--field", photos)
    done = call_process(*asked, "--json", cache=cache)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["photos"] == 36
    assert figures["accuracy"] > 0.9
    assert figures["loss"] > 0
    assert 0 < figures["calibration_error"] < 1
    assert [c["label"] for c in figures["per_class"]] == ["brown", "green", "grey"]
    assert {"label", "photos", "precision", "recall", "f1"} <= set(figures["per_class"][0])
    assert sum(map(sum, figures["confusion"])) == 36
    assert figures["macro_f1"] == pytest.approx(sum(c["f1"] for c in figures["per_class"]) / 3)
    rows = read_rows((trained[0] / "split.csv").read_text("utf-8"))
    learned = sum(row["split"] == "train" for row in rows)
    assert figures["overlap"] == [{"kind": kind, "photos": 36, "learned": learned} for kind in ("evaluated", "field")]
    assert figures["not_learned"]["photos"] == 36 - learned
    text = call(*asked, cache=cache).stdout
    assert (
        f"Data leakage: The model was trained on {learned} of the 36 evaluated photos. The accuracy on them is "
        "too high."
    ) in text
    assert f"of {36 - learned} other photos correct" in text
    assert f" of the run were chosen on {sum(row['split'] == 'val' for row in rows)} of these photos." in text
    old = tmp_path / "old.safetensors"
    write_model(old, replace(read_model(trained[0]), learned=None))
    assert json.loads(call("core.evaluate", old, "--data", photos, "--json", cache=cache).stdout)["overlap"] is None


def test_the_photos_named_wrong_can_be_had_by_name(trained, photos, cache, tmp_path):
    table = tmp_path / "mistakes.csv"
    swapped = tmp_path / "swapped"  # half of the photos under a wrong name
    for name, other in (("green", "brown"), ("grey", "grey")):
        shutil.copytree(photos / name, swapped / other)
    done = call("core.evaluate", trained[0], "--data", swapped, "--mistakes", table, "--json", cache=cache)
    figures = json.loads(done.stdout)
    rows = read_rows(table.read_text("utf-8"))
    assert len(rows) == figures["photos"] - round(figures["accuracy"] * figures["photos"]) >= 10
    assert {(row["label"], row["prediction"]) for row in rows} >= {("brown", "green")}
    assert all(Path(row["path"]).is_file() for row in rows)
    assert [row["probability"] for row in rows] == sorted((row["probability"] for row in rows), reverse=True)


def test_several_runs_of_one_split_are_evaluated_with_mean_and_deviation(trained, cache, tmp_path):
    runs = [tmp_path / name for name in ("first", "second")]
    for run in runs:
        shutil.copytree(trained[0], run)
    asked = ("core.evaluate", runs[0], "--split", "test", runs[1])
    found = json.loads(call(*asked, "--json", cache=cache).stdout)
    one, other = found["models"]
    assert [one["model"], other["model"]] == list(map(str, runs))
    assert found["accuracy_mean"] == one["accuracy"] == other["accuracy"] > 0.9
    assert (found["accuracy_deviation"], found["macro_f1_deviation"]) == (0, 0)
    done = call(*asked, cache=cache)
    assert "mean and standard deviation over 2 models: 100.0 ± 0.0 %, macro F1 1.000 ± 0.000." in done.stdout
    assert done.stdout.count("Expected calibration error: ") == 2, "warnings and accuracy by place of each model too"
    assert done.stderr.count("This is reading ") == 2  # each run has a log of its own
    rows = (runs[1] / "split.csv").read_text("utf-8").splitlines()
    (runs[1] / "split.csv").write_text("\n".join(rows[:-1]) + "\n", "utf-8")
    refused = call(*asked, cache=cache)
    assert refused.returncode != 0
    assert "divide their photos differently" in refused.stderr


def test_evaluate_takes_one_split_of_a_manifest_or_of_the_run_and_filters_rows(trained, photos, cache, tmp_path):
    run = trained[0]
    rows = read_rows((run / "split.csv").read_text("utf-8"))
    manifest = photos / "manifest.csv"
    try:
        shutil.copy(run / "split.csv", manifest)
        found = call("core.evaluate", run, "--data", manifest, "--label", "label", "--split", "test", "--json",
                     cache=cache)
        green = call("core.evaluate", run, "--data", manifest, "--label", "label", "--where", "label=green", "--json",
                     cache=cache)
    finally:
        manifest.unlink()
    shutil.copytree(photos, tmp_path / "moved")
    listed, wanted = tmp_path / "photos.csv", ("--where", "label=grey", "--split", "test", "--json")
    listed.write_text("\n".join(["path,label", *(f"moved/{row['path']},{row['label']}" for row in rows)]), "utf-8")
    grey = call("core.evaluate", run, "--data", listed, *wanted, cache=cache)
    tested = sum((row["split"], row["label"]) == ("test", "grey") for row in rows)
    assert (json.loads(grey.stdout)["photos"], "missing" in grey.stderr) == (tested, False)
    assert json.loads(found.stdout)["photos"] == sum(row["split"] == "test" for row in rows) > 0, found.stderr
    assert [c["photos"] for c in json.loads(green.stdout)["per_class"]] == [0, 12, 0], green.stderr


def test_evaluate_says_that_photos_of_a_group_count_as_fewer(trained, photos, cache, tmp_path):
    manifest = tmp_path / "photos.csv"
    rows = [f"{path},{path.parent.name},{path.parent.name}{int(path.stem) // 3}" for path in photos.glob("*/*.png")]
    manifest.write_text("\n".join(["path,label,group", *rows]), "utf-8")
    asked = ("core.evaluate", trained[0], "--data", manifest, "--label", "label", "--field", manifest)
    found = json.loads(call(*asked, "--json", cache=cache).stdout)
    right, effect = round(36 * found["accuracy"]), found["design_effect"]
    assert found["groups"] == found["field"]["groups"] == 12
    assert 1 < effect <= 3
    assert found["accuracy_interval"] == list(wilson_interval(right, 36, effect)) != list(wilson_interval(right, 36))
    assert found["by_place"][1]["accuracy_interval"] == found["accuracy_interval"]
    split = read_rows((trained[0] / "split.csv").read_text("utf-8"))
    learned = [row["path"].removesuffix(".png").split("/") for row in split if row["split"] == "train"]
    unseen = 36 - 3 * len({(name, int(number) // 3) for name, number in learned})
    assert found["not_learned"]["photos"] == unseen > 0
    leak = f"Data leakage: {36 - unseen - len(learned)} photos have one of the same group in training."
    said = f"The intervals take groups into account: 36 photos (groups: 12) count as {36 / effect:.0f}."
    text = call(*asked, cache=cache).stdout
    assert (text.count(said), text.count(leak)) == (2, 1), "for these and the field photos"


def test_evaluate_and_training_agree_on_the_test_photos(trained, photos, cache):
    run, said = trained
    finished = json.loads(said.splitlines()[-1])
    again = json.loads(call("core.evaluate", run, "--split", "test", "--json", cache=cache).stdout)
    assert again["accuracy"] == pytest.approx(finished["test_accuracy"])
    assert again["accuracy_interval"] == read_model(run / "best.safetensors").sections[TEST]["parts"][0]["interval"]
    confusion = list(csv.reader(io.StringIO((run / "confusion.csv").read_text("utf-8"))))
    right = sum(int(confusion[i][i]) for i in range(1, len(confusion)))
    total = sum(int(n) for row in confusion[1:] for n in row[1:])
    assert finished["test_accuracy"] == pytest.approx(right / total)


def test_each_reading_of_the_test_split_is_logged_and_later_ones_are_told(trained, photos, cache, tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere.safetensors"
    for name in ("config.json", "split.csv", "best.safetensors"):
        run.mkdir(exist_ok=True)
        shutil.copy(trained[0] / name, run)
    shutil.copy(run / "best.safetensors", elsewhere)
    log, asked = run / "test_readings.csv", ("core.evaluate", run, "--split", "test")
    assert len(read_rows((trained[0] / log.name).read_text("utf-8"))) >= 1, "the end of training is the first reading"
    call("core.evaluate", run, "--split", "val", cache=cache)
    call("core.evaluate", elsewhere, "--data", photos, cache=cache)
    assert not [*tmp_path.rglob(log.name), *photos.rglob(log.name)]
    first, second = (call(*asked, "--json", cache=cache) for _ in range(2))
    assert "reading" not in first.stderr
    share, (row, _) = json.loads(first.stdout)["accuracy"], read_rows(log.read_text("utf-8"))
    assert (float(row["accuracy"]), row["weights"]) == (share, read_identity(run).hash)
    for number, more in enumerate(((run,), (run / "best.safetensors", "--data", photos)), 3):
        assert f"reading {number} of" in call("core.evaluate", *more, cache=cache).stderr
    told = f"This is reading 2 of this test split by this run (first: {row['date']}, {100 * share:.1f} %)."
    assert told in second.stderr
    for damage, said in (((log.read_text("utf-8") * 2).strip(), "reading 9 of"), ("\0\0", "it is damaged: rename it")):
        log.write_text(damage, "utf-8")
        assert said in call(*asked, cache=cache).stderr
    log.unlink()
    log.mkdir()  # as a folder without permission to write, which the superuser has everywhere
    refused = call(*asked, "--json", cache=cache)
    assert (refused.returncode, refused.stdout) == (0, second.stdout)
    assert f"is not logged: {log} cannot be written (Is a directory)." in refused.stderr
    inside = photos / "run"
    try:
        shutil.copytree(run, inside, ignore=shutil.ignore_patterns(log.name))
        assert "in which nothing is written" in call("core.evaluate", inside, "--split", "test", cache=cache).stderr
        assert not (inside / log.name).exists()
    finally:
        shutil.rmtree(inside)


def test_evaluate_tells_field_photos_and_the_slider_beside_the_figure(trained, photos, cache, tmp_path):
    field = write_photos(tmp_path / "field", classes=("green", "grey"), each=5, noise=60, seed=9)
    asked = ("core.evaluate", trained[0], "--data", photos, "--field", field, "--coverage", "0.8")
    found = json.loads(call(*asked, "--json", cache=cache).stdout)
    assert found["field"]["photos"] == 10
    assert [part["name"] for part in found["by_place"]] == ["these photos", "own field photos"]
    assert found["by_place"][1]["accuracy"] == found["field"]["accuracy"]
    low, high = found["field"]["accuracy_interval"]
    assert low < found["field"]["accuracy"] <= high
    assert found["coverage"]["photos"] == 36
    text = call(*asked, cache=cache).stdout
    for words in ("By place: these photos", "own field photos", "At coverage 80 % (which changes nothing here)",
                  "are rejected"):
        assert words in text
    wrong = call("core.evaluate", trained[0], "--data", photos, "--coverage", "lots", "--field", tmp_path / "no",
                 cache=cache)
    assert wrong.returncode == 2
    assert "'lots' is not a number above 0 and up to 1" in wrong.stderr


def test_a_coverage_that_cannot_be_had_is_refused_or_told(trained, photos, cache):
    photo = photos / "green" / "000.png"
    for command in (("core.diagnose", trained[0], photo), ("core.evaluate", trained[0], "--split", "test")):
        none = call(*command, "--coverage", "0", cache=cache)
        assert none.returncode == EXIT_WRONG_INPUT
        assert "--coverage: '0' is not a number above 0" in none.stderr
        told = call(*command, "--coverage", "0.3", cache=cache)
        assert told.returncode == 0
        assert "no confidence thresholds: it is an ONNX file, or had too few validation photos" in told.stderr
