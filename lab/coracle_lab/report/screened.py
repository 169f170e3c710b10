"""Judges the records of a fraction: not environments against a base, but the design's factors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coracle_lab.design import Design, Factor, aliases
from coracle_lab.design.fractions import fraction_cells
from coracle_lab.design.options import SAME
from coracle_lab.run.records import Record
from coracle_lab.run.store import Store

if TYPE_CHECKING:
    from coracle_lab.stats import MainEffect, Runs, Screen

NOT_TRUSTED = "not trusted (A/A)"
CLEAR = (
    "none of the effects is mixed up with an interaction of two factors: these are mixed up with"
    " each other, and the effects with interactions of three"
)
WHOLE = "nothing is mixed up: all combinations of the levels are measured"


@dataclass(frozen=True)
class Screened:
    """One response: the effects of all factors, and for each the runs at its two levels.

    `runs` are as they were measured, those of rates too; the effects of a rate are of its inverse.
    """

    response: str
    screen: Screen
    names: Mapping[str, str]
    """Factor → its name with both levels."""
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    rate: bool = False

    def verdict(self, effect: MainEffect) -> str:
        """Returns the verdict on an effect; none where A/A fails."""
        if not self.screen.guard.trusted and effect.ratio is not None:
            return NOT_TRUSTED
        return effect.verdict

    def levels(self, effect: MainEffect) -> str:
        """Returns the name of an effect: its factor and both levels."""
        return self.names[effect.factor]


def judge(store: Store, latest: Mapping[int, Record], responses: Sequence[str]) -> list[Screened]:
    """Estimates the effects of all factors on some responses; Holm's family is all of them."""
    from coracle_lab import stats

    design = store.design
    again = SAME if design.factor(SAME) is not None else None
    made = stats.screens([_runs(store, latest, one) for one in responses], design.margin, again)
    names = {factor.name: name_of(factor) for factor in design.varied}
    return [
        Screened(
            response, screen, names, _by_level(store, latest, response), _rate(design, response)
        )
        for response, screen in zip(responses, made, strict=True)
    ]


def name_of(factor: Factor) -> str:
    """Returns a factor with both levels, the first one first: "volumes: 0, 50"."""
    return f"{factor.name}: {', '.join(factor.levels)}"


def trusted(every: Iterable[Screened]) -> bool:
    """Tells whether the guards of all of them trust them."""
    return all(one.screen.guard.trusted for one in every)


def mixed_up(design: Design) -> list[str]:
    """Returns which interactions of two factors each effect is mixed up with, a line a factor."""
    found: dict[str, list[str]] = {}
    for line in aliases(design):
        name, _, rest = line.partition(" = ")
        found.setdefault(name, []).append(rest)
    lines = [f"{name}: {', '.join(some)}" for name, some in found.items()]
    whole = len(fraction_cells(design)) == 2 ** len(design.varied)
    return lines or [WHOLE if whole else CLEAR]


def changed(before: Sequence[Screened], after: Sequence[Screened]) -> list[tuple[str, str, str]]:
    """Returns (response, "", verdict) where first attempts give a verdict of another kind."""
    found = []
    for old, new in zip(before, after, strict=True):
        for one in new.screen.effects:
            other = old.screen.of(one.factor)
            if other is not None and other.verdict.split()[0] != one.verdict.split()[0]:
                found.append((new.response, "", f"{one.factor}: {other.verdict}"))
    return found


def medians(one: Screened, effect: MainEffect) -> tuple[float, float]:
    """Returns the median of all runs at the first level of a factor, and at the second."""
    first, second = (
        statistics.median(values) if values else math.nan for values in one.runs[effect.factor]
    )
    return first, second


def _rate(design: Design, response: str) -> bool:
    return design.application is not None and design.application.is_rate(response)


def _runs(store: Store, latest: Mapping[int, Record], response: str) -> Runs:
    """Returns the rows of the blocks that were begun, as the statistics take them."""
    from coracle_lab import stats

    begun = {row.block for row in store.rows if row.number in latest}
    rows = [row for row in store.rows if row.block in begun]
    values = []
    for row in rows:
        record = latest.get(row.number)
        value = math.nan if record is None else record.value(response)
        if _rate(store.design, response):
            value = math.inf if value == 0 else 1 / value
        values.append(value)
    signs = {
        factor.name: [-1 if row.levels[factor.name] == factor.levels[0] else 1 for row in rows]
        for factor in store.design.varied
    }
    return stats.Runs(signs, values, [str(row.block) for row in rows])


def _by_level(
    store: Store, latest: Mapping[int, Record], response: str
) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    for factor in store.design.varied:
        sides: tuple[list[float], list[float]] = ([], [])
        for row in store.rows:
            record = latest.get(row.number)
            value = math.nan if record is None else record.value(response)
            if not math.isnan(value):
                sides[factor.levels.index(row.levels[factor.name])].append(value)
        found[factor.name] = sides
    return found
