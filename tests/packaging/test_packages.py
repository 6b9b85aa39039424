"""The files of the forge, and the list of system packages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from core import __version__

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "packaging" / "install_packages.sh"


@pytest.mark.parametrize(("schema", "files"), [
    ("github-workflows", ".github/workflows/*.yml"), ("github-issue-forms", ".github/ISSUE_TEMPLATE/*.yml"),
    ("citation-file-format", "CITATION.cff"),
])  # fmt: skip
def test_the_files_of_the_forge_follow_their_schemas(schema, files):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *ROOT.glob(files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_versions_that_are_in_several_places_agree():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8"), "core/__init__.py has another"
    assert len(set(re.findall(r'"numba-cuda.*?"', (ROOT / "pyproject.toml").read_text("utf-8")))) == 1, "one differs"


def test_the_forge_installs_every_package_that_make_test_asks_for():
    """`make test` there is not root and would end with the list of what is missing."""
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    asked = (ROOT / "Makefile").read_text("utf-8").split("test-packages: ")[1].split("@sh ")[1].splitlines()[0]
    assert f"sudo sh {asked}" in workflow


def test_a_user_without_rights_reads_what_is_missing(tmp_path):
    """The shell's own programs stand in for Debian's: no package is installed here, and nobody is root."""
    for name, text in (("dpkg-query", "exit 1"), ("id", "echo 1000")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "list").write_text("# comment\nlibmissing1\nsomeshell nosuchprogram sh\nbrowser nosuchprogram\n")
    done = subprocess.run(["sh", str(SCRIPT), str(tmp_path / "list")], capture_output=True, text=True, check=False,
                          env={"PATH": f"{tmp_path}:/usr/bin:/bin"})  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.endswith("apt-get install libmissing1 browser\n")


def test_make_begins_a_half_made_environment_anew(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    command = ["make", "--dry-run", f"VENV={tmp_path}", "setup"]
    assert "venv --clear" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
