"""Terms that the glossary avoids (bold in its column "Avoid") are in no code, page or text of the program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
FOLDERS = ("app", "benchmarks", "core", "docs", "resources", "tests")
SUFFIXES = {".html", ".json", ".md", ".py"}
AVOIDED = re.findall(
    r"\*\*([^*]+)\*\*",
    "".join(line.rsplit("|", 2)[1] for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("|")),
)
ONLY_IN = {"boxes": ["core/gpu"], "few pixels": ["core/gpu"], "go on": ["core", "app", "resources"],
           "level": ["core/cpu"], "slope": ["core/gpu", "core/cpu", "core/ops", "tests/core/gpu", "tests/core/ops"]}
"""Words that are right elsewhere (bounding boxes, levels of grey): folders to search."""
ALLOWED = {
    "": ["benchmarks/results", "docs/glossary.md", "docs/adr", "tests/test_language.py"],
    "copy engine": ["benchmarks", "core/ops/registry.py", "docs/kernels.md", "tests/core/test_lab.py"],
    "slope": ["tests/core/ops/test_builder.py"],
    "walk": ["app/viewmodels/diagnosis.py", "core/diagnose.py", "core/command_line.py", "tests/helpers",
             "tests/test_prose.py", "tests/test_architecture.py"],
}  # fmt: skip
"""Places where a term, or any term (""), may be: the list itself, past decisions and results, `os.walk`."""
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
FILES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "datasets" / "README.md"]
TEXTS = {path: path.read_text("utf-8").lower() for path in FILES}


def is_in(path: Path, places: list[str] | tuple[str, ...]) -> bool:
    return any(path.is_relative_to(ROOT / place) for place in places)


def find_term(term: str, text: str) -> list[int]:
    """The lines with the term as a word, in an inflected form or as a part of an identifier."""
    pattern = re.compile(rf"(?<![a-z]){re.escape(term)}(s|ed|ing)?(?![a-z])".replace(r"\ ", r"[\s_]+"))
    if term.split()[0] not in text:
        return []
    return [text[: match.start()].count("\n") + 1 for match in pattern.finditer(text)]


def test_the_glossary_has_avoided_terms():
    assert {"walk", "ground", "judge"} <= set(AVOIDED)


@pytest.mark.parametrize("term", AVOIDED)
def test_an_avoided_term_is_nowhere(term):
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in FILES
        if is_in(path, ONLY_IN.get(term, FOLDERS)) and not is_in(path, [*ALLOWED[""], *ALLOWED.get(term, [])])
        for line in find_term(term, TEXTS[path])
    ]  # fmt: skip
    assert not found, f"{term!r} is avoided; docs/glossary.md says what to write: {found}"
