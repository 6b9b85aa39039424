"""The command `leafclinic`: its subcommands, and that it works in a folder with a foreign package of our name."""

import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict

import pytest

from app.__main__ import COMMANDS, main
from app.processes import entry
from core import __version__
from core.config import RunConfig
from tests.helpers.commands import ROOT, SMALL, environment

SCRIPT = """\
import sys
from {module} import {function}
if __name__ == "__main__":
    sys.exit({function}())
"""
"""What an installer makes of an entry of [project.scripts]."""


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A current folder that holds packages `core`, `app` and `resources` of someone else."""
    for name in ("core", "app", "resources"):
        (tmp_path / "theirs" / name).mkdir(parents=True)
        (tmp_path / "theirs" / name / "__init__.py").write_text(f"raise SystemExit('the foreign {name}')\n")
    monkeypatch.chdir(tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def leafclinic(tmp_path, cache):
    """Call the installed command, which is also that of the window; its result with text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (entry_point,) = {project["scripts"]["leafclinic"], project["gui-scripts"]["leafclinic-gui"]}
    module, function = entry_point.split(":")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "leafclinic"
    script.write_text(SCRIPT.format(module=module, function=function))

    def call(*arguments, **how):
        return subprocess.run([sys.executable, script, *map(str, arguments)],
                              env={**environment(cache), "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                              timeout=240, check=False, **how)  # fmt: skip

    return call


def test_help_and_version(leafclinic):
    assert leafclinic("--version").stdout == f"LeafClinic {__version__}\n"
    assert leafclinic("trian").stderr.startswith("There is no command, file or folder trian.")
    told = leafclinic("--help").stdout
    assert all(f"\n  {name} " in told and purpose in told for name, (_, purpose) in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_subcommand_explains_itself_under_its_name(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: leafclinic {name} ")


def test_a_training_in_a_folder_with_a_foreign_core(leafclinic, foreign, photos):
    done = leafclinic("train", "--data", photos, "--out", "run", *SMALL, "--epochs", "1", cwd=foreign)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (foreign / "run" / "report.html").is_file()
    wrong = leafclinic("train", "--epochs", "x", cwd=foreign)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("These options are not valid")


def test_the_windows_training_process_beside_a_foreign_core(foreign, photos, cache, tmp_path):
    config = RunConfig(data=str(photos), out=str(tmp_path / "run"), model="cnn", image_size=16, batch_size=4, epochs=1,
                       device="cpu", threads=2, cache=str(cache), leaf_tests=False)  # fmt: skip
    child = entry.open_child(entry.command("training"))
    child.process.stdin.write(json.dumps({"config": asdict(config)}).encode() + b"\n")
    child.process.stdin.flush()  # its end would stop the run
    said = child.process.stdout.read().decode()
    assert child.process.wait() == 0, said
    child.close()
    assert json.loads(said.splitlines()[-1])["reason"] == "completed"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("typed", "wanted"), [
    ("leafclinic ev", "evaluate"), ("leafclinic train --pre", "--preset --precision"),
    ("leafclinic train --optimizer a", "adam adamw"), ("leafclinic train --preset tr", "transfer"),
    ("leafclinic lab mn", "mnist"), ("leafclinic diagnose LIC", "LICENSE"), ("leafclinic train --split LIC", "LICENSE"),
])
def test_bash_completes_commands_options_values_and_files(typed, wanted, tmp_path, capsys):
    assert main(["--print-completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    call = (f'source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}; '
            'COMPREPLY=(); _shtab_leafclinic; echo "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", call], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == wanted.split()
