"""The command lines as other programs meet them: forms, exit codes, sentences, and nothing written on bad input."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from core.diagnosis.model_identity import read_identity
from core.errors import EXIT_WRONG_INPUT
from core.training.checkpoint import read_checkpoint
from tests.helpers.commands import ROOT, SMALL, call, call_process, environment
from tests.helpers.tiny_photos import write_photos

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems report a closed terminal differently")


def interrupt(run, photos, cache, word, number=signal.SIGINT):
    """Train until a line of events has this word, then send a signal; exit code, the last event, and the errors."""
    command = [sys.executable, "-m", "core.train", "--data", photos, "--out", run, "--json", *SMALL, "--epochs", "5000"]
    heed = partial(signal.signal, number, signal.SIG_DFL)  # nohup has it ignored
    with subprocess.Popen(command, cwd=ROOT, env=environment(cache), stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE, preexec_fn=heed) as process:  # fmt: skip
        assert any(word in line for line in process.stdout)
        process.send_signal(number)
        rest, errors = process.communicate(timeout=120)
    return process.returncode, json.loads(rest.splitlines()[-1]), errors


def test_training_tells_its_events_as_json_lines(trained):
    run, said = trained
    events = [json.loads(line) for line in said.splitlines()]
    kinds = [e["event"] for e in events]
    assert kinds[-1] == "RunFinished"
    assert {"Progress", "RunStarted", "StepDone", "EpochDone", "CheckpointSaved"} <= set(kinds)
    assert events[-1]["model_path"] == str(run / "best.safetensors")
    assert events[-1]["test_accuracy"] > 0.9
    judged = next(e for e in events if e["event"] == "RunEvaluated")
    assert judged["split"] == judged["parts"][0][0] == "test"
    assert any("Border baseline" in text for text in judged["words"])


def test_diagnose_prints_one_object_per_photo_also_for_a_broken_one(trained, photos, cache, tmp_path):
    broken, folder = tmp_path / "broken.jpg", tmp_path / "phone"
    broken.write_bytes(b"")
    folder.mkdir()
    (folder / "b.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    asked = (trained[0] / "best.safetensors", photos / "green" / "000.png", broken, folder, "--json")
    done = call_process("core.diagnose", *asked, cache=cache)
    assert done.returncode == 0, done.stderr
    good, bad, other = [json.loads(line) for line in done.stdout.splitlines()]
    assert "HEIC files are not supported" in other["error"]
    both = call("core.diagnose", *asked, "--csv", cache=cache)
    assert (both.returncode, "--csv: cannot be combined with --json" in both.stderr) == (2, True)
    assert good["path"] == str(photos / "green" / "000.png")
    assert good["verdict"] == good["top"][0]["label"] == "green"
    assert len(good["top"]) == 3
    assert sum(g["probability"] for g in good["top"]) == pytest.approx(1)
    assert good["milliseconds"] > 0
    model = read_identity(trained[0])
    assert (good["model"], good["model_hash"]) == (model.name, model.hash)
    assert f" {good['model_date']} " in model.name, "the time follows the day"
    assert bad == {"path": str(broken), "error": "The file is empty."}


def test_the_help_of_training_is_grouped_and_has_defaults(cache):
    done = call("core.train", "--help", cache=cache)
    for word in ("optimizer:", "augmentation:", "(default: 0.001)", "tomato-cpu", "exit codes", "130 stopped"):
        assert word in done.stdout


def test_all_impossible_options_are_told_at_once_and_nothing_is_written(cache, tmp_path):
    run = tmp_path / "run"
    done = call("core.train", "--model", "resnet", "--epochs", "many", "--batch-size", "-1", "--dropout", "nan",
                "--where", "tomato", "--preset", "magic", "--colour", "--out", run, cache=cache)
    assert done.returncode == 2
    for word in ("--model: 'resnet'", "--epochs: 'many' is not a whole number", "--batch-size: -1 is too small",
                 "--dropout: is not a number", "--where: 'tomato'", "--preset: 'magic'", "--data: is missing",
                 "--colour: there is no such option"):
        assert word in done.stderr
    assert not run.exists()


def test_bad_photos_models_and_runs_get_a_sentence_each_and_nothing_is_written(trained, photos, cache, tmp_path):
    one = write_photos(tmp_path / "one", classes=("green",))
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes((trained[0] / "best.safetensors").read_bytes()[:-5])
    other = write_photos(tmp_path / "other", classes=("green", "grey"), each=3)
    (other / "grey").rename(other / "violet")
    empty = tmp_path / "empty"
    empty.mkdir()
    photo = photos / "green" / "000.png"
    (tmp_path / "s.toml").write_text("from = 'small'\nmodel = 'cnn'\n", "utf-8")
    new = ("--out", tmp_path / "run", *SMALL)
    for arguments, sentence in (
        (("core.train", "--data", empty, *new), "There are no photos in"),
        (("core.train", "--data", one, "--from", "small", *new, "--model", "cnn"), "--model: cannot be combined with"),
        (("core.train", "--data", one, "--config", tmp_path / "s.toml"), "--model: cannot be combined with"),
        (("core.diagnose", cut, photo), "incomplete, damaged"),
        (("core.diagnose", tmp_path / "none", photo), "came with the program: leaves, small, permissive."),
        (("core.diagnose", photo), "is a photo. Name a model before the photos"),
        (("core.diagnose", trained[0] / "last.safetensors", photo), "is a LeafClinic checkpoint"),
        (("core.diagnose", trained[0], empty), "There are no photos"),
        (("core.evaluate", trained[0], "--data", other), "does not know violet"),
        (("core.train", "--resume", empty), "no run to resume"),
        (("core.train", "--resume", trained[0], "--batch-size", "8"), "cannot change when a run is resumed"),
    ):
        done = call(*arguments, cache=cache)
        assert (done.returncode, sentence in done.stderr) == (2, True), (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_settings_come_from_preset_file_and_options_in_this_order(photos, cache, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text('preset = "demo"\nbatch_size = 6\n[optimizer]\nlearning-rate = 0.25\n', "utf-8-sig")
    done = call("core.train", "--data", photos, "--config", settings, "--batch-size", "5", "--dry-run", "--out",
                tmp_path / "run", "--device", "cpu", cache=cache)
    assert done.returncode == 0, done.stderr
    assert "squeezenet1_1_bn for 3 classes on cpu, batches of 5" in done.stdout
    assert "memory of the run" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    first, last = ([row[:1] for row in rows].index([name]) for name in ("layer", "all"))
    steps = {row[0]: row[1:6] for row in rows[first + 1 : last]}
    assert steps["features.3.squeeze"] == ["conv2d", "15x15x16", "1,024", "0.46", "72"]  # 2 x 225 x 64 x 16 operations
    totals = [sum(float(step[at].replace(",", "")) for step in steps.values()) for at in (2, 3, 4)]
    assert [float(total.replace(",", "")) for total in rows[last][1:]] == pytest.approx(totals, rel=0.01)
    assert not (tmp_path / "run").exists()
    for text, said in (("epochs = 1\n[x]\nepochs = 2", "have epochs twice"), ("x=" + "[" * 9999, "not be read"),
                       ('out = "\\u0000"\nteacher = ["\\u0000"]', "--teacher: contains a zero byte")):  # fmt: skip
        settings.write_text(text, "utf-8")
        done = call("core.train", "--data", photos, "--config", settings, "--dry-run", cache=cache)
        assert (done.returncode, said in done.stderr) == (EXIT_WRONG_INPUT, True), done.stderr


def test_teachers_are_named_one_by_one_and_count_in_the_memory(photos, cache, trained, tmp_path):
    command = ("core.train", "--data", photos, *SMALL, "--out", tmp_path / "run", "--dry-run")
    done = call(*command, "--teacher", trained[0], "--teacher", f"{trained[0]}/best.safetensors", cache=cache)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^teachers +\d+\.\d\d MB$", done.stdout, re.MULTILINE), done.stdout
    done = call(*command, "--teacher", tmp_path / "none", "--teacher-weight", "1.5", cache=cache)
    assert (done.returncode, "--teacher-weight: 1.5 is too large" in done.stderr) == (2, True), done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_saves_and_ends_with_3_and_before_the_first_step_with_130_and_leaves_nothing(photos, cache, tmp_path):
    code, last, errors = interrupt(tmp_path / "run", photos, cache, '"step": 12,')
    assert (code, last["reason"]) == (3, "stopped"), errors
    assert "Press Ctrl-C again to stop immediately" in errors
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").state.step >= 12
    code, last, errors = interrupt(tmp_path / "none", photos, tmp_path / "cache", '"Progress"')
    assert (code, last["reason"]) == (130, "stopped"), errors
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("said", "more"), [(b'"step": 12,', ["--json"]), pytest.param(b"epoch 4/", [], marks=LINUX)])
def test_a_training_saves_and_ends_with_3_when_nobody_reads_its_output_any_more(photos, cache, tmp_path, said, more):
    command = [sys.executable, "-m", "core.train", "--data", photos, *SMALL, "--epochs", "5000", *more]
    (reading, writing), heard = os.pipe() if more else os.openpty(), b""
    with subprocess.Popen([*command, "--out", tmp_path / "run"], cwd=ROOT, env=environment(cache), stdout=writing,
                          stderr=subprocess.DEVNULL) as process:  # fmt: skip
        os.close(writing)
        while said not in heard:
            assert (new := os.read(reading, 1024)), heard
            heard += new
        os.close(reading)
    assert process.returncode == 3
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").state.step >= 12


@LINUX
def test_a_training_saves_and_ends_with_3_when_its_terminal_is_closed(photos, cache, tmp_path):
    code, last, errors = interrupt(tmp_path / "run", photos, cache, '"step": 12,', signal.SIGHUP)
    assert (code, last["reason"], errors) == (3, "stopped", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_under_the_output_is_told_in_a_sentence(trained, photos, cache):
    diagnose = ["core.diagnose", str(trained[0]), str(photos / "green" / "000.png")]
    for words in ([*diagnose, "--csv"], [*diagnose, "--json"], ["app", "--print-completion", "bash"]):
        command = [sys.executable, "-m", *words]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                  env=environment(cache))  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.strip().endswith("The output could not be saved: No space left on device. Free disk space "
                                            "or choose another folder."), done.stderr  # fmt: skip


def test_a_program_that_reads_json_is_told_what_is_wrong(trained, photos, tmp_path, cache):
    for options in (["--epochs", "x", "--data", tmp_path], ["--data", tmp_path / "nothing"], ["--data"]):
        done = call("core.train", "--json", *options, cache=cache)
        event = json.loads(done.stdout.splitlines()[-1])
        assert event["event"] == "RunFailed"
        assert done.returncode == event["exit_code"] == EXIT_WRONG_INPUT
        assert event["message"] in done.stderr
    read, write = os.pipe()
    os.close(read)  # nobody reads: no traceback
    report, table = tmp_path / "r.html", tmp_path / "m.csv"
    for code, words in ((EXIT_WRONG_INPUT, ["train", "--json", "--epochs", "x"]),
                        (0, ["diagnose", trained[0], photos / "green", "--report", report]),
                        (0, ["evaluate", trained[0], "--split", "test", "--mistakes", table])):  # fmt: skip
        command = [sys.executable, "-u", "-m", f"core.{words[0]}", *map(str, words[1:])]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                              env=environment(cache))  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    os.close(write)
    assert table.exists()
    assert report.read_text("utf-8").count("data:image/jpeg;base64") == 12
    for command, options in (("core.evaluate", [trained[0], "--split", "all"]), ("core.diagnose", ["none", "a.jpg"])):
        done = call(command, "--json", *options, cache=cache)
        told = json.loads(done.stdout)
        assert done.returncode == told["exit_code"] == EXIT_WRONG_INPUT
        assert told["error"] in done.stderr
