"""What the pages name is there: files, modules, options, commands of make, and every decision in the list of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from core.config import settings
from core.errors import option_name
from core.laboratory.options import make_parser

ROOT = Path(__file__).parent.parent
TOP = [page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"]
PAGES = sorted([*TOP, ROOT / "datasets" / "README.md", *(ROOT / "docs").rglob("*.md")])
SOURCES = [ROOT / "Makefile", *(path for part in ("app", "core") for path in (ROOT / part).rglob("*.py"))]
FOREIGN = {"--help", "--no-deps", "GOMP_SPINCOUNT", "--memcheck", "--racecheck", "--nodes", "--ntasks-per-node",
           "--gpus-per-node", "--host", "--kill-on-bad-exit", "--force", "--include-deps"}  # fmt: skip
"""Options and environment variables of other programs: two are named after tools of compute-sanitizer, the last are
Slurm's, mpirun's and pipx's."""


@pytest.fixture(scope="module")
def options():
    """Every option that a command of ours takes: those written down, and one for each setting."""
    files = (path for part in ("app", "core", "benchmarks", "docs") for path in (ROOT / part).rglob("*.py"))
    code = "".join(path.read_text("utf-8") for path in files)
    fields = {option_name(name) for name in settings()}
    return set(re.findall(r"\"(--[a-z][\w-]*)\"", code)) | fields | FOREIGN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page, options):
    text = page.read_text("utf-8")
    named = re.findall(r"`((?:app|benchmarks|core|datasets|docs|packaging|resources|tests)/[\w./-]*)(?::(\w+))?`", text)
    links = [page.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert not [str(path) for path in [*(ROOT / name for name, _ in named), *links] if not path.exists()]
    assert not [f"{name}:{inside}" for name, inside in named if inside
                and not re.search(rf"^\s*(?:def|class) {inside}\b", (ROOT / name).read_text("utf-8"), re.M)]
    modules = [ROOT / name.replace(".", "/") for name in re.findall(r"-m ((?:app|benchmarks|core)[\w.]*)", text)]
    assert not [str(m) for m in modules if not (m.with_suffix(".py").exists() or (m / "__main__.py").exists())]
    assert not set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)) - options
    variables = set(re.findall(r"`([A-Z][A-Z0-9_]{3,})=", text)) - FOREIGN
    assert not [name for name in variables if not any(name in path.read_text("utf-8") for path in SOURCES)]
    makes = set(re.findall(r"`make ([a-z-]+)`", text))
    assert not makes - set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))


def run_code(page):
    """Run the Python blocks of a page, one after another; the number of them."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    exec("".join(blocks), {})
    return len(blocks)


def test_the_code_in_the_page_about_the_structure_runs():
    assert run_code("architecture.md") == 2


def test_the_commands_of_the_kernels_course_are_understood():
    page = (ROOT / "docs" / "kernels.md").read_text("utf-8")
    commands = re.findall(r"`leafclinic lab ([^`]+)`", page)
    assert len(commands) > 15
    for command in commands:
        if len(command.split()) > 1:  # a name alone stands for the command in general
            make_parser().parse_args(command.split())


@pytest.mark.gpu
def test_the_code_in_the_kernels_course_runs(capsys):
    run_code("kernels.md")
    with_plan, after = re.findall(r"(?:with a plan|after reset): +(\d+)", capsys.readouterr().out)
    assert abs(int(with_plan) - int(after)) <= 64


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    """An empty folder as the working directory, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.thorough
def test_the_code_in_the_page_on_the_python_api_runs(user_folder):
    run_code("python-api.md")
    assert (user_folder / "model.onnx").stat().st_size > 10_000


@pytest.mark.thorough
def test_the_notebook_runs_from_top_to_bottom(user_folder):
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells), "outputs are figures of one machine"
    names = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert (len(names["losses"]), len(names["right"])) == (3, 240)
    assert np.mean(names["right"]) > 0.8, "chance is a quarter"
    assert (user_folder / "model.onnx").stat().st_size > 10_000


def test_every_decision_stands_in_the_list():
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text("utf-8"))
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
    numbers = [int(name[:4]) for name in listed]
    assert len(set(numbers)) == len(numbers)
    headings = [(folder / name).read_text("utf-8").split(".", 1)[0] for name in listed]
    assert headings == [f"# {number}" for number in numbers]
