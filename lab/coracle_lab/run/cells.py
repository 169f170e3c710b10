"""Arranges records as the statistics take them: one value a block for each environment."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coracle_lab.design import Design, Row
from coracle_lab.design.model import NESTED_COLUMNS
from coracle_lab.design.parse import AGAIN
from coracle_lab.run.records import FACTOR, Record

NATIVE = "native"


@dataclass(frozen=True)
class Cell:
    """All environments at the same levels of all other factors."""

    levels: Mapping[str, str]
    values: Mapping[str, Sequence[float]]
    paired: bool
    rate: bool = False
    """The values are the inverse of what was measured, of which larger is better."""

    @property
    def name(self) -> str:
        """The levels as text; empty if the environment is the only factor."""
        return ", ".join(f"{factor} {level}" for factor, level in self.levels.items())


def cells(
    design: Design, rows: Sequence[Row], records: Mapping[int, Record], response: str
) -> list[Cell]:
    """Returns the cells of a design with the values of one response.

    `records` has one record for each row number; a row without one, or with one that is not
    `ok`, is NaN. Starts of one launch (nested designs) become their median. Blocks of which no
    row was run are left out, and so is the base, with the same once more, where it was not run
    at all: there is nothing to compare with then. Of a rate each value is its inverse, so that
    ratios are of times.
    """
    rate = design.application is not None and design.application.is_rate(response)
    others = [factor.name for factor in design.factors if factor.name != FACTOR]
    paired = design.kind != "completely-randomised"
    found: dict[tuple[str, ...], dict[str, dict[int, list[float]]]] = {}
    ran: set[tuple[tuple[str, ...], str]] = set()
    for row in rows:
        key = tuple(row.levels[name] for name in others)
        environment = row.levels.get(FACTOR, NATIVE)
        block = row.block if paired else row.number
        record = records.get(row.number)
        if record is not None:
            ran.add((key, environment))
        value = math.nan if record is None else record.value(response)
        if rate:
            value = math.inf if value == 0 else 1 / value
        found.setdefault(key, {}).setdefault(environment, {}).setdefault(block, []).append(value)
    started = {row.block for row in rows if row.number in records} if paired else None
    factor = design.factor(FACTOR)
    order = factor.levels if factor is not None else (NATIVE,)
    controls = (design.base, design.base + AGAIN)
    result = []
    for key, environments in sorted(found.items()):
        values = {
            name: [
                median(some) for block, some in environments[name].items() if _in(block, started)
            ]
            for name in order
            if name in environments and (name not in controls or (key, design.base) in ran)
        }
        result.append(Cell(dict(zip(others, key, strict=True)), values, paired, rate))
    return result


def of_cell(levels: Mapping[str, str]) -> dict[str, str]:
    """Returns the levels that all blocks, launches and starts of a cell have."""
    return {name: level for name, level in levels.items() if name not in NESTED_COLUMNS}


def _in(block: int, started: set[int] | None) -> bool:
    return started is None or block in started


def median(values: Sequence[float]) -> float:
    """Returns the median of the values that are there, or NaN."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan
