"""Tables of figures in README and docs are what the results say."""

import json
import re

import pytest

from benchmarks.tables import all_results, pages, results
from benchmarks.tables.experiments import NEARLY, WORKS, below_table
from core.laboratory.options import make_parser
from tests.helpers.texts import ROOT


def test_every_page_is_up_to_date():
    assert pages.outdated() == [], "run python -m benchmarks.tables"


def test_a_changed_result_makes_its_pages_outdated(monkeypatch, tmp_path):
    for path in results.RESULTS.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    changed = tmp_path / "diagnosis_test.json"
    changed.write_text(json.dumps(json.loads(changed.read_text("utf-8")) | {"macro_f1": 0.123}), "utf-8")
    for module in (results, pages.engine, pages.all_results):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert pages.outdated() == ["docs/diagnosis.md"]


def test_every_table_is_on_a_page():
    shown = {block["name"] for page in pages.pages() for block in pages.BLOCK.finditer(page.read_text("utf-8"))}
    named = [name for module in pages.MODULES for name in module.TABLES]
    assert sorted(shown) == sorted(named), "a page has <!-- NAME --> and <!-- /NAME -->, benchmarks/tables the function"


def test_every_result_names_the_command_that_measures_it():
    found = {name: all_results.command(name, result) for name, result in all_results.results_with_rows().items()}
    unknown = {name: text for name, text in found.items() if text.startswith("python")
               and not (ROOT / f"{text.split()[2].replace('.', '/')}.py").exists()}  # fmt: skip
    assert (len(found) > 50, unknown) == (True, {})


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_has_help_and_says_where_pytorch_is_missing(path):
    code = path.read_text("utf-8")
    assert '"__main__"' not in code or "ArgumentParser" in code or path.stem.endswith("_worker")
    assert not re.search(r"^(import|from) torch\b", code, re.M)  # it comes from benchmarks.pytorch


def test_the_commands_of_the_experiments_are_understood():
    every = (command for work in WORKS for one in work["experiment"] for command in one["run"].split("; "))
    commands = {command for command in every if command.startswith("lab ")}
    assert len(commands) > 20
    for command in commands:
        make_parser().parse_args(command.removeprefix("lab ").split())


def test_families_of_random_shapes_with_a_slower_one_are_named():
    rows = results.read("random_shapes-nvidia-h200")["rows"]
    slower = {row["name"].split(" forward")[0].split(" backward")[0] for row in rows if row["ratio"] < NEARLY}
    assert {family for family in slower if f"{family}, worst" in below_table()} == slower > set()


@pytest.mark.parametrize(("value", "text"), [(0.09602, "0.0960"), (1234.6, "1,230"), (5.2278, "5.23"), (0, "0")])
def test_figures_have_three_significant_digits(value, text):
    assert results.figure(value) == text
