"""What all command lines share: output files, closed streams, devices that are not there, odd names."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from core import adapt, diagnose, evaluate, export, review, train
from core.command_line import check_folder, read_arguments, run_command
from core.config import RunConfig, settings
from core.data.photo_reader import read_file
from core.data.source import find_photos
from core.errors import EXIT_INTERRUPTED, EXIT_STOPPED, EXIT_WRONG_INPUT
from core.training.commands import Commands
from core.training.trainer import Trainer
from tests.helpers.commands import ROOT
from tests.helpers.photo_files import leaf_folder


def test_every_setting_is_read():
    code = "".join(path.read_text("utf-8") for path in (ROOT / "core").rglob("*.py"))
    assert not [n for n in settings() if not re.search(rf"(config|optimizer)\.{n}\b", code)], "fields without effect"


def test_a_file_to_write_that_is_a_folder_or_in_a_locked_one_is_told_before_the_work(tmp_path, monkeypatch):
    found = []
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setattr(os, "access", lambda folder, _: str(folder) != os.sep)
    check_folder("report", f"{os.sep}r.html", found)
    assert "no permission to write" in found.pop().message
    kept = ("m.csv", "./m.csv", "n.csv", "p.JPG", "m.safetensors", "m.onnx")
    long = tmp_path / ("x" * 256)
    for f in (tmp_path, os.devnull, tmp_path / "none" / "x", tmp_path / "x", tmp_path / "loop", "", long, *kept):
        check_folder("report", str(f), found, ["m.csv"])
    check_folder("png", "p.JPG", found)
    assert [p.message.split(". ")[0] for p in found] == [
        *(f"{f} is a folder or a device" for f in (tmp_path, os.devnull)), f"there is no folder {tmp_path / 'none'}.",
        f"The name {long} is too long",
        *(f"{file} is a photo, table or model, which is not replaced" for file in (*kept, "p.JPG"))]


@pytest.mark.parametrize(("command", "arguments"), [
    (adapt, "small --data {} --out {}/mine.safetensors"), (diagnose, "small {} --report {}/a/r.html"),
    (evaluate, "small --data {} --mistakes {}/m.csv"), (evaluate, "small --data t --field {} --mistakes {}/m.csv"),
    (export, "small --data {} --onnx {}/m.onnx"), (review, "{} --corrections t.csv --out {}/m.csv"),
    (train, "--data {} --profile {}/x.json"), (train, "--data t --field {} --profile {}/x.json"),
    (train, "--resume {run} --profile {}/x.json"), (diagnose, "{run}/best.safetensors t --report {}/r.html"),
    (evaluate, "{run} --mistakes {}/m.csv"), (export, "{run} --onnx {}/m.onnx"), (diagnose, "{run} t --out {}/o"),
])  # fmt: skip
def test_nothing_is_written_among_the_photos(command, arguments, tmp_path, capsys):
    folder = leaf_folder(tmp_path / "photos", each=1)
    (folder / "a").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"data": "d", "field": str(folder)}))
    before = sorted(folder.rglob("*"))
    assert command.main([text.format(folder, run=tmp_path) for text in arguments.split(" ")]) == EXIT_WRONG_INPUT
    assert "is inside the photo folder, in which nothing is written" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_what_the_system_refuses_to_look_for_is_a_sentence(tmp_path, capsys, monkeypatch):
    long, gone = str(tmp_path / ("n" * 300)), tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert (evaluate.main([long]), diagnose.main(["none", "x.jpg"])) == (EXIT_WRONG_INPUT,) * 2
    assert "(File name too long)" in read_file(long, 8).reason
    first, second = capsys.readouterr().err.splitlines()  # first: for Python 3.14 no such file
    assert (long in first, second.split(" cannot be used: ")[0]) == (True, "The current folder")


def test_closed_streams_are_nobody_who_listens(monkeypatch):
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert run_command(lambda _: sys.stdout.write("heard by nobody") and 0, ()) == 0
    sys.stdout.close()
    sys.stderr.close()


def test_ctrl_c_ends_every_command_as_shells_say_it_and_tells_who_reads(capsys, monkeypatch):
    monkeypatch.setattr("core.command_line.end_at_once", at_import := Mock())
    signal.signal(signal.SIGINT, at_import)
    told, work = [], lambda _: signal.getsignal(signal.SIGINT)(2, None)
    assert run_command(work, ["--json"], lambda *said: told.append(said)) == EXIT_INTERRUPTED == 130
    assert (told, capsys.readouterr().err) == ([("Stopped.", 130)], "\nStopped.\n")
    assert run_command(Mock(side_effect=RuntimeError("can't start new thread")), ()) == 1, capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
@pytest.mark.parametrize("command", [("-m", "core.doctor"), ("-m", "app", "doctor"), ("leafclinic", "doctor")])
def test_ctrl_c_while_modules_are_imported_ends_a_command_without_a_traceback(tmp_path, command):
    """One of the first modules interrupts its own import and so stands in for one that takes long."""
    (tmp_path / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nlist(range(9))\n")
    (tmp_path / "leafclinic").write_text("from app.__main__ import main\nmain()\n")  # as installed
    command = [str(tmp_path / word) if word == "leafclinic" else word for word in command]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    own = {"check": False, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # for background jobs
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, **own)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "")


def test_hidden_folders_and_files_are_not_diagnosed(tmp_path):
    for name in (".thumbnails/a.jpg", "b/._c.jpg", "b/.d/e.jpg", "b/f.jpg", "g.PNG", "h.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    assert list(find_photos([str(tmp_path)])) == [str(tmp_path / name) for name in ("g.PNG", "self", "b/f.jpg")]
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "linked").symlink_to(tmp_path / "b")
    linked = [str(tmp_path / "far" / "linked" / name) for name in ("f.jpg", "again/g.PNG", "again/self")]
    assert list(find_photos([str(tmp_path / "far")])) == linked
    assert list(find_photos([str(tmp_path / "b/._c.jpg")])) == [str(tmp_path / "b/._c.jpg")], "named itself"
    (deep := tmp_path.joinpath(*"d" * 200)).mkdir(parents=True)
    (deep / "i.jpg").touch()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    found = list(find_photos([str(tmp_path / "d")]))
    sys.setrecursionlimit(before)
    assert found == [str(deep / "i.jpg")], "a path may have 2000 folders"


@pytest.mark.parametrize("option", [["--overwrite"], ["--demo"], ["--config", "x"], ["--json"], ["--profile", "x"]])
def test_what_does_not_go_with_a_resumed_or_a_dry_run_is_refused(option, tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    other = "dry-run" if option[0] in ("--json", "--profile") else "resume"
    assert train.main(["--resume", str(tmp_path), "--dry-run", *option]) == 2
    assert f"{option[0]}: cannot be combined with --{other}" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "arguments", "said"), [
    (diagnose, "m p.jpg --no-crop", "no-crop: needs --examine"), (diagnose, "m p.jpg --part 3", "part: needs --out."),
    (diagnose, "--merge results p.jpg", "merge: joins a folder of results and takes nothing else"),
    (export, "small --onnx x --seed 3", "seed: needs --int8."), (evaluate, ". --label x", "label: needs --data."),
    (export, ". --onnx x --int8 --split y", "split: needs --data."), (review, "d --choose 3", "choose: is for --unlab"),
    (review, "d --unlabelled e --most 3", "choose: is for --unlabelled, --most for a review without it."),
    (review, "d --corrections t --out t", "out: t is a photo, table or model"),
    (review, "d --corrections t --out o --csv", "csv: cannot be combined with --corrections."),
    (review, "d --corrections t --out o --model small", "--model: cannot be combined with --corrections."),
    (review, "d --json --csv", "--csv: cannot be combined with --json"), (review, "d --choose 0", "must be 1 or more"),
    (review, "d --out x.csv", "--corrections and --out need each other"), (export, ".", "--onnx: is missing"),
    (export, ". --onnx none/m.onnx", "--onnx: there is no folder"),
    (train, "--data d --input-normalization caffe", "input-normalization: needs a pretrained model"),
    (evaluate, "m --data d --field t --mistakes t", "mistakes: t is a photo, table or model"),
    (evaluate, ". none", "There is no file none"), (evaluate, ". --mistakes split.csv", "mistakes: split.csv is a"),
    (train, "--data t --profile t", "profile: t is"), (train, "--data d --seed=-- --where=--", "seed: '--' is not a"),
    (adapt, "small --data d --out ", "out: is missing"), (adapt, "m --data d --out ./m", "out: ./m is a photo"),
    (adapt, "small --data d --out n.csv", "out: n.csv is a"), (evaluate, "m --data d --mistakes n.csv", "mistakes: n"),
    (review, "d --corrections t --out n.csv", "out: n.csv is"), (review, "d --corrections t --out m.onnx", "out: m.o"),
    (review, "d --model ./best.safetensors --corrections t --out split.csv", "out: split.csv is a photo, table or"),
])  # fmt: skip
def test_options_without_effect_and_missing_models_are_refused(command, arguments, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text('{"data": "d"}')
    (tmp_path / "n.csv").write_text("path,labels\n")
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments.split(" ")) == EXIT_WRONG_INPUT
    assert said in capsys.readouterr().err


def test_photos_follow_options_and_words_that_no_option_takes_are_not_called_options(capsys):
    assert read_arguments(diagnose.make_parser(), ["m", "a", "--json", "b", "--csv"])[0].photos == ["a", "b"]
    assert read_arguments(diagnose.make_parser(), ["--", "m", "-b", "--csv"])[0].photos == ["-b", "--csv"]
    codes = export.main(["m", "--onnx", "x", "b.csv"]), diagnose.main(["m", "--average", "a"])
    assert codes == (EXIT_WRONG_INPUT,) * 2
    assert capsys.readouterr().err == ("Unknown arguments: b.csv. leafclinic export --help lists the arguments.\n"
                                       "These options are not valid:\n--average: there is no such option.\n")


@pytest.mark.parametrize(("resume", "code", "said"), [
    (True, EXIT_STOPPED, "after saving this step"), (False, EXIT_INTERRUPTED, "before the training begins"),
])  # fmt: skip
def test_the_first_ctrl_c_asks_and_the_second_ends_at_once(monkeypatch, capsys, resume, code, said):
    monkeypatch.setattr(train.os, "_exit", (ended := []).append)
    commands, trainer = Commands(), Trainer(RunConfig(data="photos"), resume=resume)
    train._stopper(Commands(), trainer)(15, None)
    assert capsys.readouterr().err == ""  # a launcher ends its ranks so
    handler = train._stopper(commands, trainer)
    handler(2, None)
    assert (commands.stopped(), ended) == (True, [])
    assert f"Stopping {said}. Press Ctrl-C again to stop immediately" in capsys.readouterr().err
    handler(2, None)
    assert ended == [code]


def test_paths_of_options_and_settings_files_mean_the_same_in_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home := str(tmp_path / "me"))
    (tmp_path / "s.toml").write_text('split = "~/s.csv"\nfield = "f"\nteacher = ["~/t"]\n')
    (tmp_path / "config.json").write_text("{}")
    for given, wanted in (
        ("--config=s.toml --data d --cache ./c --out=~/r", {
            "data": "d", "cache": "c", "field": "f", "split": f"{home}/s.csv", "out": f"{home}/r"}),
        ("--resume . --data d --cache ~/c", {"data": "d", "cache": f"{home}/c", "out": ""}),
    ):  # fmt: skip
        config = train.configure(*read_arguments(train.make_parser(), given.split()))
        assert {name: getattr(config, name) for name in wanted} == {n: str(tmp_path / p) for n, p in wanted.items()}
        assert set(config.teacher) <= {f"{home}/t"}
    assert read_arguments(diagnose.make_parser(), ["m", "--", "~/p", "q"])[0].photos == [f"{home}/p", "q"]


def test_a_batch_size_may_be_left_to_the_program_and_the_help_of_a_command_is_its_own():
    given = [train.make_parser().parse_args(["--data", "photos", "--batch-size", text]) for text in ("auto", "48")]
    assert [train.configure(arguments, []).batch_size for arguments in given] == [0, 48]
    for command, said in ((adapt, "default: model name, photo folder, date and time"), (evaluate, "or ONNX file"),
                          (diagnose, "with --examine, --leaves or --report: do not crop")):  # fmt: skip
        assert said in " ".join(command.make_parser().format_help().split())
