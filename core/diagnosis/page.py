"""Parts of self-contained HTML reports: style, tables and tiles.

Pages use what Qt's rich text supports too (tables, colours, margins, inline SVG that is rendered first), so that the
same page becomes a PDF. `BROWSER_STYLE` is for browsers only.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from core.percent import keep_percents
from core.text import printable

GREEN: Final = "#1f7a4d"
RED: Final = "#c4501b"
INK: Final = "#1c2b22"
MUTED: Final = "#5c6b62"
LINE: Final = "#dbe4de"

STYLE: Final = f"""
body{{font-family:system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-size:15px;color:{INK}}}
h1{{font-size:26px;margin-bottom:2px}} h2{{font-size:19px;margin-top:30px;margin-bottom:6px}}
h3{{font-size:15px;margin-top:16px;margin-bottom:4px}}
p{{margin-top:4px;margin-bottom:8px}} .muted{{color:{MUTED}}} .lead{{font-size:18px}}
table{{border-collapse:collapse}}
th{{text-align:left;color:{MUTED};font-weight:600;padding:3px 5px}} td{{padding:3px 5px}}
.tile{{background-color:#eef4f0;padding:10px 14px}} .tile-big{{font-size:24px;font-weight:600;color:{GREEN}}}
.note{{background-color:#fff4d6;padding:8px 12px}}
.sick{{color:{RED};font-weight:600}} .well{{color:{GREEN};font-weight:600}}
"""
BROWSER_STYLE: Final = f"""
body{{line-height:1.5;max-width:1000px;margin:2.5em auto;padding:0 1.2em;background:#fff}}
h2{{border-top:1px solid {LINE};padding-top:18px}} li{{margin:.25em 0}}
th,td{{padding:4px 10px}} th{{vertical-align:bottom}} table.rows{{width:100%}}
table.rows td,table.rows th{{border-bottom:1px solid {LINE}}}
table.rows td.n,table.rows th.n{{text-align:right;font-variant-numeric:tabular-nums}}
table.rows tr:hover td{{background:#f4f8f5}}
table.tiles{{border-collapse:separate;border-spacing:10px 0;margin-left:-10px}}
.tile{{border-radius:10px;min-width:100px}}
.note{{border-left:4px solid #d59b00;border-radius:4px}}
table.charts{{width:100%;table-layout:fixed}} table.charts svg{{width:100%}} table.charts td{{padding:6px 14px 6px 0}}
code{{overflow-wrap:anywhere}}
svg{{max-width:100%;height:auto;vertical-align:middle}} img{{border-radius:8px}} small{{overflow-wrap:anywhere}}
.scroll{{overflow-x:auto}}
@media(prefers-color-scheme:dark){{body{{background:#141c17;color:#dfe9e2}} .tile{{background-color:#1f2b24}}
.note{{background-color:#3a3215}} .tile-big,.well{{color:#6cc79a}} .sick{{color:#f09a6c}} .muted,th{{color:#9fb0a6}}
h2,table.rows td,table.rows th{{border-color:#2f3d35}} table.rows tr:hover td{{background:#1b2520}}
svg .ink{{fill:#dfe9e2}} svg .muted{{fill:#9fb0a6}} svg .grid{{stroke:#2f3d35}} svg .frame{{stroke:#9fb0a6}}}}
@media print{{body{{margin:0;max-width:none}} h2,h3{{break-after:avoid}} tr,svg,.tile{{break-inside:avoid}}}}
"""


def render_page(title: str, parts: Iterable[str], language: str = "en") -> str:
    """The whole page; `parts` is escaped HTML. Control characters are shown as text."""
    page = (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style>'
        f'<style media="all and (min-width:1px)">{BROWSER_STYLE}</style></head><body>\n'
        + keep_percents("\n".join(part for part in parts if part))
        + "\n</body></html>\n"
    )
    return printable(page, "\n\t")


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraphs(sentences: Iterable[str], kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return "".join(f"<p{mark}>{escape(text)}</p>" for text in sentences)


def command(text: str) -> str:
    """A line for a terminal, to be copied."""
    return f"<p><code>{escape(text)}</code></p>"


def note(text: str) -> str:
    return f'<table width="100%"><tr><td class="note">{escape(text)}</td></tr></table>'


def bullets(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>" if sentences else ""


def tiles(found: Iterable[tuple[str, str, str]]) -> str:
    """Highlighted figures: (figure, caption, small print)."""
    cells = "".join(
        f'<td class="tile"><span class="tile-big">{escape(big)}</span><br>{escape(name)}<br>'
        f'<small class="muted">{escape(small)}</small></td>'
        for big, name, small in found
    )
    return f'<table class="tiles" cellspacing="8"><tr>{cells}</tr></table>'


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: title, width such as "30%", and whether it has numbers, which are right-aligned."""

    title: str = ""
    width: str = ""
    number: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """A table of escaped HTML cells, one of each row for each column."""

    def line(cells: Iterable[str], tag: str) -> str:
        out = []
        for column, cell in zip(columns, cells, strict=True):
            more = ' class="n" align="right"' if column.number else ""
            more += f' width="{column.width}"' if column.width else ""
            out.append(f"<{tag}{more}>{cell}</{tag}>")
        return f'<tr valign="top">{"".join(out)}</tr>'

    body = "\n".join(line(row, "td") for row in rows)
    titles = [escape(column.title) for column in columns]
    top = f"<thead>{line(titles, 'th')}</thead>" if any(titles) else ""
    return f'<div class="scroll"><table class="rows" width="100%">{top}<tbody>{body}</tbody></table></div>'


def side_by_side(drawings: Iterable[str]) -> str:
    shown = [drawing for drawing in drawings if drawing]
    rows = "".join(
        "<tr>" + "".join(f'<td width="50%">{chart}</td>' for chart in shown[at : at + 2]) + "</tr>"
        for at in range(0, len(shown), 2)
    )
    return f'<table class="charts">{rows}</table>'


def picture(jpeg: bytes, side: int, text: str) -> str:
    data = base64.b64encode(jpeg).decode()
    return f'<img width="{side}" height="{side}" alt="{escape(text)}" src="data:image/jpeg;base64,{data}">'
