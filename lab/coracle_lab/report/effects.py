"""What the page says of a fraction: picture, table, aliases, what its replicates can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coracle_lab.design import Design
from coracle_lab.design.options import SAME
from coracle_lab.figures import Cloud, Facet, Picture, Ratio
from coracle_lab.figures.effects import FIRST, SECOND
from coracle_lab.figures.units import title
from coracle_lab.figures.values import ENVIRONMENT
from coracle_lab.report import draw, markup, numbers
from coracle_lab.report.screened import Screened, medians, mixed_up
from coracle_lab.report.tables import Table
from coracle_lab.report.written import written
from coracle_lab.stats import Screen

LAYOUT = "effects"
WORDS_AT_MOST = 4
"""Of more words than these the page has the first and the last."""
ABOUT = (
    "A ratio compares all rows at a factor's second level with all at its first, over all levels of"
    " the others. Holm's correction is over the {count} factors of this figure; the control apart."
)


def picture(one: Screened) -> Picture:
    """Returns the picture of one response."""
    clouds = []
    for effect in one.screen.effects:
        name = one.levels(effect)
        first, second = one.runs[effect.factor]
        limits = {found.level: (found.low, found.high) for found in effect.ratio_intervals}
        ratio = None
        if effect.ratio is not None:
            ratio = Ratio(effect.ratio, limits.get(0.95), limits.get(0.997))
        clouds.append(Cloud(name, name, tuple(first), part=FIRST))
        clouds.append(Cloud(name, name, tuple(second), ratio, effect.by_block, SECOND))
    names = tuple(one.levels(effect) for effect in one.screen.effects)
    return Picture(
        base="the first level",
        environments=names,
        x_name=ENVIRONMENT,
        xs=names,
        response=one.response,
        facets=(Facet("", tuple(clouds)),),
        rate=one.rate,
        parts=(FIRST, SECOND),
    )


def pictures(every: Sequence[Screened], into: Path, name: str, about: str) -> str:
    """Writes the pictures of all responses; returns their HTML."""
    drawn = [picture(one) for one in every if any(any(runs) for runs in one.runs.values())]
    html = draw.drawn(LAYOUT, drawn, into, name, about)
    return html or markup.paragraph("No run has succeeded: there is nothing to draw.", "note")


def table(one: Screened) -> Table:
    """Returns the effects on one response, the largest first."""
    rows = []
    for effect in one.screen.effects:
        first, second = medians(one, effect)
        cost: tuple[str, str] = (numbers.NONE, numbers.NONE)
        if not one.rate:
            cost = (
                numbers.quantity(one.response, effect.difference),
                numbers.quantities(one.response, effect.difference_intervals, 0.95),
            )
        rows.append((
            one.levels(effect),
            one.verdict(effect),
            numbers.ratio(effect.ratio),
            numbers.span(effect.ratio_intervals, 0.95),
            numbers.span(effect.ratio_intervals, 0.997),
            *cost,
            numbers.quantity(one.response, first),
            numbers.quantity(one.response, second),
            numbers.p(effect.holm_p),
            numbers.p(effect.tost_p),
        ))  # fmt: skip
    head = (
        "factor", "verdict", "ratio", "95 %", "99.7 %", "costs", "95 %", "median at the first",
        "at the second", "p (t, Holm)", "p (TOST)",
    )  # fmt: skip
    return Table(f"Effects on {title(one.response)}, the largest first", head, tuple(rows), 2, 1)


def words(screen: Screen) -> list[str]:
    """Returns what is to be known beside the table."""
    said = list(screen.notes)
    if screen.sd is not None and screen.blocks > 1:
        said.append(
            f"{screen.cells} cells in {screen.blocks} blocks; one run differs from others of its"
            f" cell by {screen.sd * 100:.2g} % (standard deviation)"
        )
    if screen.interactions_p is not None:
        p = numbers.p(screen.interactions_p)
        text = f"p that every factor acts for itself, by its ratio: {p}"
        if screen.interactions_p < 0.05:
            text += (
                "; some act together: a ratio then depends on the levels of others, and is their"
                " mean"
            )
        said.append(text)
    return said


def tables(every: Sequence[Screened], design: Design) -> str:
    """Returns the main tables and what belongs to them."""
    parts = ["<h3>Verdicts</h3>"]
    for one in every:
        parts.append(markup.table(table(one), cards=True))
        parts.append(f'<div class="small soft">{markup.bullets(words(one.screen))}</div>')
    count = sum(1 for one in every for _ in one.screen.effects)
    controls = len(every) if design.factor(SAME) is not None else 0
    parts.append(markup.paragraph(ABOUT.format(count=count - controls), "small soft"))
    parts.append(markup.folded("Words of the levels", [_words(design)]))
    lines = Table("Mixed up", ("effect, and the interactions of two that show in it",),
                  tuple((line,) for line in mixed_up(design)))  # fmt: skip
    parts.append(markup.folded("What is mixed up (aliases)", [lines]))
    return "".join(parts)


def _words(design: Design) -> Table:
    """Returns what each level of an option puts into the command."""
    rows = [
        (name, level, _few(given) or numbers.NONE)
        for name, levels in design.options.items()
        for level, given in levels.items()
    ]
    return Table("What each level puts into the command", ("option", "level", "words"),
                 tuple(rows), 3)  # fmt: skip


def _few(given: Sequence[str]) -> str:
    """Returns words; of many the first and the last one, and their number."""
    if len(given) <= WORDS_AT_MOST:
        return " ".join(given)
    return f"{given[0]} ... {given[-1]} ({len(given)} words)"


def statistics_csv(every: Sequence[Screened]) -> str:
    """Returns all effects with all digits, as CSV."""
    lines: list[Mapping[str, object]] = []
    for one in every:
        for effect in one.screen.effects:
            lines.append({
                "response": one.response,
                "factor": effect.factor,
                "levels": one.levels(effect),
                "verdict": one.verdict(effect),
                "method": one.screen.method,
                "cells": one.screen.cells,
                "blocks": one.screen.blocks,
                "missing": one.screen.missing,
                "ratio": effect.ratio,
                **numbers.limits("ratio", effect.ratio_intervals),
                "t_p": effect.t_p,
                "holm_p": effect.holm_p,
                "tost_p": effect.tost_p,
                "difference": "" if one.rate else effect.difference,
                **numbers.limits("difference", () if one.rate else effect.difference_intervals),
                "sd": one.screen.sd,
                "smallest": one.screen.smallest,
                "interactions_p": one.screen.interactions_p,
            })  # fmt: skip
    return written(lines)
