"""English source texts and their translations, one JSON file per language.

English has one, too: core names command-line options and statistics, the window its fields and what they mean.

A `QTranslator` reads JSON instead of compiled catalogues: a translation is one line in a diff, and texts from core
(labels of settings, names of kernels) and Qt's own buttons are translated the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html import escape, unescape
from typing import Final

from PySide6.QtCore import QCoreApplication, QLocale, QTranslator

from app import resources
from core.percent import SPACE, keep_percents
from core.training.events import STAGES

CONTEXT: Final = "LeafClinic"
PAGE_TEXT: Final = re.compile(r"(?<=>)[^<>{]*[^\W\d][^<>{]*(?=<)")
"""A text with letters between two tags of a page, not a style sheet."""
LANGUAGES: Final = {"en": "English", "vi": "Tiếng Việt"}
"""Each has a file in `resources/translations/` and in `resources/guide/`, and texts on every card."""


def tr(text: str, /, **values: object) -> str:
    """The text in the current language, with `{name}` placeholders filled in afterwards."""
    found = QCoreApplication.translate(CONTEXT, text)
    return found.format(**values) if values else found


def count(number: int, one: str, many: str) -> str:
    """"1 photo" or "1,204 photos": both forms are texts with a `{n}` placeholder."""
    return tr(one if number == 1 else many, n=f"{number:,}")


def sentence(text: str) -> str:
    """A finished sentence of core in the current language.

    Found as it is, or by a text with `{name}` placeholders, whose values may be texts and sentences, too.
    """
    found = QCoreApplication.translate(CONTEXT, text)
    if found == text and _active:
        for pattern, translation in _active[-1].patterns():
            match = pattern.fullmatch(text)
            if match:
                found = translation.format(**{name: _value(value) for name, value in match.groupdict().items()})
                break
    return keep_percents(found)


def _value(text: str) -> str:
    """Translate the value of a placeholder: a word, a number, or one or several sentences, separated by semicolons."""
    if "; " in text:
        parts = text.split("; ")
        translated = [_value(part) for part in parts]
        if all(one != keep_percents(part) for one, part in zip(translated, parts, strict=True)):
            return "; ".join(translated)
    whole = sentence(text)
    if whole != keep_percents(text) or text.endswith("."):
        return whole
    return sentence(text + ".").removesuffix(".")


def translate_page(html: str) -> str:
    """An English page of core in the current language: each text between two tags is translated as a sentence."""
    html = html.replace('<html lang="en">', f'<html lang="{language()}">', 1)
    return PAGE_TEXT.sub(lambda found: escape(sentence(unescape(found[0]).replace(SPACE, " "))), html)


_active: list[Catalogue] = []


class Catalogue(QTranslator):
    """Source text to translation, for every context."""

    def __init__(self, language: str, texts: dict[str, str], parent: QCoreApplication) -> None:
        super().__init__(parent)
        self.name = language
        self._texts = texts
        self._patterns: list[tuple[re.Pattern[str], str]] = []

    def translate(self, context: str, source: str, disambiguation: str | None = None, n: int = -1) -> str | None:
        return self._texts.get(source)

    def patterns(self) -> Iterator[tuple[re.Pattern[str], str]]:
        """Texts with placeholders as patterns that read the values back; the longest first, which say the most."""
        if not self._patterns:
            for source, translation in sorted(self._texts.items(), key=lambda text: -len(text[0])):
                if "{" in source and len(source) > 12:
                    parts = re.split(r"\{(\w+)\}", source)
                    form = "".join(re.escape(p) if at % 2 == 0 else f"(?P<{p}>.+?)" for at, p in enumerate(parts))
                    self._patterns.append((re.compile(form, re.S), translation))
        yield from self._patterns

    def isEmpty(self) -> bool:  # noqa: N802 (Qt's name)
        return False


def install(application: QCoreApplication, language: str) -> str:
    """Set the language, "system" or a code; returns the language in use, English where the system has another."""
    if language not in LANGUAGES:
        system = QLocale.system().name().split("_")[0]
        language = system if system in LANGUAGES else "en"
    catalogue = Catalogue(language, resources.table(f"translations/{language}.json"), application)
    application.installTranslator(catalogue)
    _active.append(catalogue)
    return language


def language() -> str:
    return _active[-1].name if _active else "en"


def remove(application: QCoreApplication) -> None:
    """Return to English."""
    while _active:
        application.removeTranslator(_active.pop())


def number(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "–"


def duration(seconds: float) -> str:
    """A time in words: "45 s", "12 min", "3 h 20 min"."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 90:
        return tr("{n} s", n=round(seconds))
    minutes = round(seconds / 60)
    return tr("{n} min", n=minutes) if minutes < 90 else tr("{h} h {m} min", h=minutes // 60, m=minutes % 60)


def stage_text(stage: str, done: int, total: int) -> str:
    text = tr(STAGES[stage])
    return f"{text}: {done:,} / {total:,}" if total else f"{text}…"
