"""English source texts and their translations, one readable JSON file per language.

A `QTranslator` fed from JSON instead of compiled catalogues: a translation is one line in a diff, texts that
come from core (labels of settings, names of kernels) are found like any other, and Qt's own buttons too.
"""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import QCoreApplication, QLocale, QTranslator

from app import resources

CONTEXT: Final = "LeafClinic"
LANGUAGES: Final = {"en": "English", "vi": "Tiếng Việt"}


def tr(text: str, **values: object) -> str:
    """The text in the chosen language, with `{name}` places filled in afterwards."""
    found = QCoreApplication.translate(CONTEXT, text)
    return found.format(**values) if values else found


def count(number: int, one: str, many: str) -> str:
    """"1 photo" or "1,204 photos": both forms are texts with a `{n}` place."""
    return tr(one if number == 1 else many, n=f"{number:,}")


@final
class Catalogue(QTranslator):
    """Source text to translation, whatever the context."""

    def __init__(self, texts: dict[str, str], parent: QCoreApplication) -> None:
        super().__init__(parent)
        self._texts = texts

    def translate(self, context: str, source: str, disambiguation: str | None = None, n: int = -1) -> str | None:
        return self._texts.get(source)

    def isEmpty(self) -> bool:  # noqa: N802 (Qt's name)
        return False


def install(application: QCoreApplication, language: str) -> str:
    """Speak `language` ("system", "en", "vi"); gives the language now spoken."""
    if language not in LANGUAGES:
        language = QLocale.system().name().split("_")[0]
    if language in LANGUAGES and language != "en":
        application.installTranslator(Catalogue(resources.table(f"translations/{language}.json"), application))
        return language
    return "en"
