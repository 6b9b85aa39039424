"""The program's own files: none that nothing shows."""

import re
from pathlib import Path

from app import resources

ROOT = Path(__file__).parents[2]


def test_every_icon_is_shown_somewhere():
    code = [path.read_text("utf-8") for path in (ROOT / "app").rglob("*.py")]
    named = set(re.findall(r"[\"/](\w+)[\".]", "".join([*code, resources.text("style.qss")])))
    drawn = {path.stem for path in (ROOT / "resources" / "icons").glob("*.svg")}
    assert not drawn - named
