"""Disease cards: symptoms, similar diseases and recommended action, with their source."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from app import resources, translation
from app.translation import tr
from core.data.label_sets import split_name


@dataclass(frozen=True, slots=True)
class Card:
    """Texts in one language; `source` names the authors, `link` is the page to read more."""

    name: str
    looks: str
    confused: str
    advice: str
    source: str
    link: str


def find_card(label: str, language: str = "") -> Card | None:
    """The card of a class by its name ("tomato/leaf_mold", or "leaf_mold" because only one crop has it)."""
    cards: dict[str, Any] = resources.table("cards/cards.json")
    key = normal(label)
    raw = cards.get(key)
    if raw is None:
        same = [name for name in cards if name.rsplit("/", 1)[-1] == key]
        raw = cards[same[0]] if len(same) == 1 else None
    if raw is None:
        return None
    texts = raw.get(language or translation.language(), raw["en"])
    return Card(**texts, source=raw["source"], link=raw["link"])


def disease_name(label: str) -> str:
    """The name of a class in the window.

    The title of its card without the Latin name, otherwise the class name in a readable form ("mango/leaf_spot" becomes
    "mango · leaf spot"). The class name itself is shown as the tooltip. Only a card of the same crop is used:
    "black_rot" in a folder may be of another crop. A set of labels has the names of all,
    joined by the sign that one class may have in its own name.
    """
    return _named(label, translation.language())


@cache
def _named(label: str, language: str) -> str:
    card = find_card(label, language) if "/" in normal(label) else None
    labels = split_name(label) if card is None and label.strip("+; ") else (label,)
    if len(labels) > 1:
        return " + ".join(_named(each, language) for each in labels)
    return card.name.split(" (")[0] if card else label.replace("___", "/").replace("_", " ").replace("/", " · ")


def find_class(typed: str, classes: Iterable[str]) -> str:
    """The class that a typed name means, as written or as shown in the window, ignoring case; else a new class."""
    name, shown = typed.strip(), disease_name(typed.strip()).casefold()
    known = list(classes)
    return name if name in known else next((c for c in known if disease_name(c).casefold() == shown), name)


def normal(label: str) -> str:
    return label.strip().lower().replace(" ", "_").replace("-", "_").replace("___", "/")


def card_html(card: Card | None, sure: bool = True) -> str:
    if card is None:
        text = tr("There is no information about this class.")
        return f"<p>{html.escape(text)}</p>"
    doubt = tr("Not certain. If it is this disease:")
    parts = [] if sure else [f"<p style='margin:0 0 6px 0'><i>{html.escape(doubt)}</i></p>"]
    parts += [f"<h3 style='margin:0 0 6px 0'>{html.escape(card.name)}</h3>"]
    for title, text in (
        (tr("Symptoms"), card.looks),
        (tr("Often confused with"), card.confused),
        (tr("Recommended action"), card.advice),
    ):
        parts.append(f"<p style='margin:0 0 2px 0'><b>{html.escape(title)}</b></p><p style='margin:0 0 8px 0'>"
                     f"{html.escape(text)}</p>")  # fmt: skip
    note = tr("Summary by the LeafClinic authors.")
    if card.link:
        note = tr("Summary by the LeafClinic authors. Read more: {source}", source=card.source)
    parts.append(f"<p style='font-size:small'>{html.escape(note)}<br>{html.escape(card.link)}</p>")
    return "".join(parts)
