"""The documentation stays short, and figures of measurements are generated, not typed."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.tables.pages import BLOCK

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "resources" / "guide" / "en.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""What a newcomer reads. Decisions (docs/adr) are dated records; the changelog is history."""
MOST_WORDS = 18_000
"""Of all pages, tables and code included, as `wc -w README.md docs/*.md` counts."""
CODE = re.compile(r"^```.*?^```$", re.M | re.S)
INLINE_CODE = re.compile(r"`[^`\n]+`")
UNITS = r"ns|us|µs|ms|s|seconds?|minutes?|hours?|[kMG]i?B(?:/s)?|[GT]FLOP/s|photos/s|times"
FIGURE = re.compile(rf"(?<![\w.])\d[\d,.]*(?: ?%|[ -]?(?:{UNITS})\b|x\b(?! ?\d))")
ALLOWED = {
    "CONTRIBUTING.md": {"60 s", "12 minutes"},  # limits on the tests
    "docs/diagnosis.md": {"2 %", "3 %", "1.4 times", "98.4 %", "99.0 %", "95 %", "90 %", "8 MB"},
    # thresholds; the width of a network; the bounds of the rule that chooses a model
    "docs/distributed.md": {"15 seconds", "3 MB", "9 MB"},  # a limit; bytes of the parameters
    "docs/training.md": {"4 kB", "20 GB", "1 %", "95 %"},  # settings, and the level of the intervals
}
"""Figures that are no measurements: limits and settings, sizes by construction, levels of confidence."""


def blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def find_figures(text: str) -> list[tuple[int, str]]:
    """(line, figure) of every number with a unit of time, memory, rate, share or ratio in the prose."""
    prose = re.sub(INLINE_CODE, "", re.sub(CODE, blank, re.sub(BLOCK, blank, text)))  # line numbers stay
    return [(prose[: match.start()].count("\n") + 1, match[0]) for match in FIGURE.finditer(prose)]


@pytest.mark.parametrize("text", [
    "It takes 5.61 ms.", "97 of 100, 98.5 % right", "1.95 times ours", "a peak of 3592 MiB", "The 4x gain",
    "25 seconds on a GPU", "| step | 1,030 ms |", "at 72 TFLOP/s",
])  # fmt: skip
def test_a_typed_measurement_is_found(text):
    assert [line for line, _ in find_figures(f"first\n{text}")] == [2]


@pytest.mark.parametrize("text", [
    "3x3 filters of 16 channels", "`--minutes 5`", "224 pixels", "batch 256", "```\n5 ms\n```", "Python 3.11",
    "<!-- plants -->\n| 5 % |\n<!-- /plants -->", "16 x 16 tiles", "a 1x1 convolution",
])  # fmt: skip
def test_sizes_code_and_generated_tables_are_no_typed_measurements(text):
    assert find_figures(text) == []


@pytest.mark.parametrize("page", [*PAGES, GUIDE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_no_measurement_is_typed_by_hand(page):
    name = str(page.relative_to(ROOT))
    found = [(line, figure) for line, figure in find_figures(page.read_text("utf-8"))
             if figure not in ALLOWED.get(name, ())]  # fmt: skip
    assert not found, f"{name}: put it into a generated table (benchmarks/tables), or leave it out: {found}"


MEASURED = re.compile(r"(?<![\w.])\d[\d,.]* ?(?:(?:ns|us|µs|ms|[GT]FLOP/s|photos/s)\b|x (?:faster|slower|as fast))")
CONSTANTS = {"core/cpu/execution.py", "core/gpu/hardware.py"}
"""Files with durations that are settings, and with a data sheet."""


def read_code_prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment and docstring, without inline code; nothing of a file without measurements."""
    source = path.read_text("utf-8")
    if not MEASURED.search(source):
        return
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from ((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, re.sub(r"`[^`]+`", "", node.value.value)


def test_no_measurement_is_typed_into_a_comment_or_docstring():
    files = [path for part in ("core", "app") for path in sorted((ROOT / part).rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}:{line}: {match[0]}" for path in files
             if str(path.relative_to(ROOT)) not in CONSTANTS
             for line, text in read_code_prose(path) for match in MEASURED.finditer(text)]  # fmt: skip
    assert not found, f"name the file of benchmarks/results instead: {found}"


def test_all_pages_together_are_short():
    words = {page.name: len(page.read_text("utf-8").split()) for page in PAGES}
    assert sum(words.values()) <= MOST_WORDS, words
