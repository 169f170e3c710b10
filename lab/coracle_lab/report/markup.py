"""Pieces of HTML. Every text that comes in is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from coracle_lab.report import numbers
from coracle_lab.report.tables import Table

OPEN_AT_MOST = 40
"""A table with more rows than this is closed at first; its CSV is linked."""
SIGNS = {
    "equal": "=",
    "slower": "▲",
    "faster": "▼",
    "more": "▲",
    "less": "▼",
    "undecided": "?",
    "unchanged": "=",
}


def text(value: object) -> str:
    """Returns text for the inside of an element or an attribute."""
    return html.escape(str(value), quote=True)


def slug(name: str) -> str:
    """Returns a name for files and anchors."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "figure"


def element(name: str, content: str, classes: str = "") -> str:
    """Returns an element whose content is HTML already."""
    return (
        f'<{name} class="{classes}">{content}</{name}>'
        if classes
        else f"<{name}>{content}</{name}>"
    )


def paragraph(value: str, classes: str = "") -> str:
    """Returns a paragraph of text."""
    return element("p", text(value), classes)


def bullets(values: Iterable[str]) -> str:
    """Returns a list of texts."""
    return element("ul", "".join(element("li", text(value)) for value in values))


def verdict(value: str) -> str:
    """Returns a verdict's words with a sign of its kind before them."""
    kind = value.split()[0].rstrip(":") if value else ""
    sign = f'<span class="sign" aria-hidden="true">{SIGNS.get(kind, "·")}</span>'
    return f'<span class="{text(kind)}">{sign}{text(value)}</span>'


def link(path: str, name: str) -> str:
    """Returns a link to a file beside the page."""
    return f'<a href="{text(path)}">{text(name)}</a>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Returns a list of names and values; the values are HTML already."""
    return element("dl", "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in pairs))


def table(given: Table, cards: bool = False) -> str:
    """Returns a table; with `cards` each row is a card on narrow screens.

    A column without any value is left out.
    """
    given = _without_empty(given)
    head = "".join(
        f'<th scope="col"{_class("w" if at < given.words else "")}>{text(name)}</th>'
        for at, name in enumerate(given.head)
    )
    body = "".join(f"<tr>{_cells(given, row, cards)}</tr>" for row in given.rows)
    inner = (
        f"<table{_class('cards' if cards else '')}><caption>{text(given.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
    label = text(given.caption)
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{inner}</div>'


def _without_empty(given: Table) -> Table:
    none = ("", numbers.NONE)
    kept = [at for at in range(len(given.head)) if any(row[at] not in none for row in given.rows)]
    first = given.emphasised
    return Table(
        given.caption,
        tuple(given.head[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in given.rows),
        sum(1 for at in kept if at < given.words),
        kept.index(first) if first in kept else None,
    )


def _cells(given: Table, row: Sequence[str], cards: bool) -> str:
    made = []
    for at, value in enumerate(row):
        name = f' data-h="{text(given.head[at])}"' if cards and at else ""
        if at == given.emphasised:
            made.append(f'<td class="w v">{verdict(value)}</td>')
            continue
        # Short texts keep their line; notes may break.
        kind = "w" if at < given.words or len(value) > 40 else ""
        kind += " k" if kind and len(value) <= 28 else ""
        made.append(f"<td{name}{_class(kind)}>{text(value)}</td>")
    return "".join(made)


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def folded(title: str, given: Sequence[Table]) -> str:
    """Returns tables that the reader can fold; long ones are folded at first."""
    rows = sum(len(one.rows) for one in given)
    if not rows:
        return ""
    state = " open" if rows <= OPEN_AT_MOST else ""
    inner = "".join(table(one) for one in given if one.rows)
    return f"<details{state}><summary>{text(title)} ({rows} rows)</summary>{inner}</details>"
