"""Coracle's P1 against udocker's P1, over all figures that have both: one table of the page.

Both trace by ptrace with seccomp, so that they are the same method in two programs. The verdicts of
a figure are on ratios to its base; here one of the two is the base of the other, block by block.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from coracle_lab import stats
from coracle_lab.report import markup, numbers
from coracle_lab.report.judged import Judged
from coracle_lab.report.screened import NOT_TRUSTED
from coracle_lab.report.summary import Entry
from coracle_lab.report.tables import Table, few, places
from coracle_lab.stats import Comparison

OURS = "coracle:P1"
THEIRS = "udocker:P1"
TITLE = "Coracle's P1 against udocker's P1"


@dataclass(frozen=True)
class Pair:
    """Both in one cell of a figure; the comparison is of udocker's with Coracle's."""

    entry: Entry
    where: str
    judged: Judged
    found: Comparison

    @property
    def verdict(self) -> str:
        """The verdict; none where A/A fails in the figure."""
        trusted = self.entry.shown is not None and self.entry.shown.trusted
        return self.found.verdict if trusted or self.found.ratio is None else NOT_TRUSTED


def pairs(entries: Sequence[Entry]) -> list[Pair]:
    """Compares the two in each cell that has both, of a long series in its first and last key.

    Holm's family is all cells of figures with the same margin and the same kind of blocks.
    """
    cells = [
        (entry, place, one)
        for entry in entries
        for place, one in _cells(entry)
        if one.runs.get(OURS) and one.runs.get(THEIRS)
    ]
    families: dict[tuple[float, bool], list[int]] = {}
    for at, (entry, _, one) in enumerate(cells):
        families.setdefault((entry.margin, one.cell.paired), []).append(at)
    compared: dict[int, Comparison] = {}
    for (margin, paired), family in families.items():
        values = [
            {name: cells[at][2].cell.values[name] for name in (OURS, THEIRS)} for at in family
        ]
        found = stats.compare_cells(values, OURS, margin, paired)
        compared |= {at: one[0] for at, one in zip(family, found, strict=True)}
    return [Pair(*cell, compared[at]) for at, cell in enumerate(cells)]


def _cells(entry: Entry) -> list[tuple[str, Judged]]:
    """Returns the cells of a figure with where they are."""
    where = places(entry.judged)
    return [(where[id(one)], one) for one in few(entry.judged, (), 0)]


def said(found: Sequence[Pair]) -> str:
    """Returns what the pairs show together: first whether Coracle's P1 is slower anywhere."""
    kinds = [one.verdict.split()[0].rstrip(":") for one in found]
    ours = [
        f"{one.entry.name}{f' ({one.where})' if one.where else ''}"
        for one, kind in zip(found, kinds, strict=True)
        if kind == "faster"
    ]
    count = f"{len(found)} comparison{'' if len(found) == 1 else 's'}"
    first = f"Coracle's P1 is slower in {len(ours)} of {count}: {'; '.join(ours)}."
    if not ours:
        first = f"Coracle's P1 was found slower in none of {count}."
    words = {
        "equal": "equal within the margin (TOST)",
        "slower": "udocker's P1 slower",
        "undecided": "undecided, which shows neither",
        "not": "not trusted (A/A)",
        "no": "no verdict",
    }
    rest = [f"{text}: {kinds.count(kind)}" for kind, text in words.items() if kind in kinds]
    return f"{first} By kind of verdict: {'; '.join(rest)}." if rest else first


def table(found: Sequence[Pair]) -> Table:
    """Returns the pairs as a table."""
    rows = []
    for one in found:
        response = one.judged.response
        middles = [statistics.median(one.judged.runs[name]) for name in (OURS, THEIRS)]
        rows.append((
            one.entry.name,
            one.where,
            one.verdict,
            str(one.found.blocks),
            *(numbers.quantity(response, middle) for middle in middles),
            numbers.ratio(one.found.ratio),
            numbers.span(one.found.ratio_intervals, 0.95),
            numbers.span(one.found.ratio_intervals, 0.997),
            numbers.p(one.found.holm_p),
            numbers.p(one.found.tost_p),
        ))  # fmt: skip
    head = (
        "figure", "where", "udocker's P1 is", "blocks", "median, Coracle", "median, udocker",
        "udocker / Coracle", "95 %", "99.7 %", "p (t, Holm)", "p (TOST)",
    )  # fmt: skip
    return Table("Ratios of udocker's P1 to Coracle's P1: above 1, udocker's is slower",
                 head, tuple(rows), 3, 2)  # fmt: skip


def section(entries: Sequence[Entry]) -> str:
    """Returns the part of the page; nothing if no figure has both."""
    found = pairs(entries)
    if not found:
        return ""
    body = "".join((
        f"<h2>{markup.text(TITLE)}</h2>",
        markup.paragraph(said(found)),
        markup.table(table(found), cards=True),
        markup.paragraph(
            "Each block gives one ratio of the two. Holm's correction is over all rows. A start of"
            " udocker holds that of its Python, which is in every time here.",
            "small soft",
        ),
    ))  # fmt: skip
    return f'<section id="coracle-udocker">{body}</section>'
