"""The table in the terminal: environments, medians, ratios, intervals, verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coracle_lab.run.cells import Cell

if TYPE_CHECKING:
    from coracle_lab.stats import Comparison

HEAD = ("environment", "n", "median", "ratio", "95 % interval", "verdict")
WORDS = (0, 4, 5)
"""Columns of words; the others are numbers."""
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def amount(value: float, response: str) -> str:
    """Returns a value with its unit: `12.34 ms` for 0.01234 of a response in seconds."""
    if math.isnan(value):
        return "-"
    name = response.partition("@")[0]
    if name.endswith("_s") and not name.endswith("_per_s"):
        size, unit = next((one for one in UNITS if value >= one[0]), UNITS[-1])
        return f"{value / size:.4g} {unit}"
    return f"{value:.5g}"


def span(low: float, high: float, response: str) -> str:
    """Returns two values with one unit: `1.21 to 1.43 ms`; they can be negative."""
    size, unit = 1.0, ""
    name = response.partition("@")[0]
    if name.endswith("_s") and not name.endswith("_per_s"):
        largest = max(abs(low), abs(high))
        size, unit = next((one for one in UNITS if largest >= one[0]), UNITS[-1])
    return f"{low / size:.3g} to {high / size:.3g} {unit}".strip()


def lines(rows: Sequence[Sequence[str]], words: Collection[int]) -> list[str]:
    """Returns rows as lines of aligned columns: words at the left, numbers at the right."""
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    made = []
    for row in rows:
        parts = [
            text.ljust(width) if at in words else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        made.append("  ".join(parts).rstrip())
    return made


@dataclass(frozen=True)
class Look:
    """What a table needs besides values and comparisons.

    `beside` says what stands after a verdict: other program files. Verdicts are not printed if
    the guard does not trust them; ratios and intervals are.
    """

    base: str
    response: str
    beside: Mapping[str, str]
    trusted: bool
    left_out: Collection[str]


def cell(given: Cell, comparisons: Sequence[Comparison], look: Look) -> list[str]:
    """Returns the table of one cell."""
    by_name = {comparison.environment: comparison for comparison in comparisons}
    rows: list[Sequence[str]] = [HEAD]
    for name, values in given.values.items():
        known = [value for value in values if not math.isnan(value)]
        measured = [1 / value for value in known] if given.rate else known
        median = amount(statistics.median(measured) if known else math.nan, look.response)
        ratio = interval = verdict = ""
        if name == look.base:
            ratio = "1"
        elif not known and name in look.left_out:
            verdict = "left out"
        elif (found := by_name.get(name)) is not None:
            verdict = found.verdict if look.trusted or found.ratio is None else "not trusted"
            if found.ratio is not None:
                ratio = f"{found.ratio:.4f}"
            if (limits := found.interval(0.95)) is not None:
                interval = f"{limits.low:.4f} to {limits.high:.4f}"
        if look.beside.get(name):
            verdict = f"{verdict} ({look.beside[name]})".strip()
        rows.append((name, str(len(known)), median, ratio, interval, verdict))
    return lines(rows, WORDS)
