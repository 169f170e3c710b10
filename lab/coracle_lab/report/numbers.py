"""Numbers as the page prints them; what is not there is a dash."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coracle_lab.figures.units import amount, unit
from coracle_lab.stats import Interval

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def signed(text: str) -> str:
    """Returns a number's text with a real minus sign."""
    return text.replace("-", MINUS) if text.startswith("-") else text


def fixed(value: float | None, decimals: int) -> str:
    """Returns a number with so many decimals."""
    if value is None or not _known(value):
        return NONE
    return signed(f"{value:.{decimals}f}")


def ratio(value: float | None) -> str:
    """Returns a ratio with the decimals that it needs."""
    if value is None or not _known(value):
        return NONE
    return f"{value:.4f}" if value < 10 else f"{value:.4g}"


def at(intervals: Sequence[Interval], level: float) -> Interval | None:
    """Returns the interval of a level."""
    return next((one for one in intervals if one.level == level), None)


def limits(name: str, intervals: Sequence[Interval]) -> dict[str, object]:
    """Returns the ends of both intervals with all digits, by the names that CSV files have."""
    found: dict[str, object] = {}
    for level, text in ((0.95, "95"), (0.997, "997")):
        one = at(intervals, level)
        found[f"{name}_low_{text}"] = one.low if one else ""
        found[f"{name}_high_{text}"] = one.high if one else ""
    return found


def span(intervals: Sequence[Interval], level: float) -> str:
    """Returns the ends of a ratio's interval."""
    found = at(intervals, level)
    if found is None or not (_known(found.low) and _known(found.high)):
        return NONE
    return f"{ratio(found.low)} to {ratio(found.high)}"


def p(value: float | None) -> str:
    """Returns a p value."""
    if value is None or not _known(value):
        return NONE
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def percent(value: float | None, decimals: int = 2) -> str:
    """Returns a number that is in percent already, with its sign."""
    if value is None or not _known(value):
        return NONE
    text = f"{value:+.{decimals}f}"
    return (signed(text) if float(text) else text[1:]) + " %"


def as_percent(value: float | None, decimals: int = 1) -> str:
    """Returns a fraction in percent, with its sign."""
    return percent(None if value is None else value * 100, decimals)


def quantity(response: str, value: float | None) -> str:
    """Returns a value with the unit of its response."""
    if value is None or not _known(value):
        return NONE
    text = amount(response, abs(value))
    return MINUS + text if value < 0 else text


def quantities(response: str, intervals: Sequence[Interval], level: float) -> str:
    """Returns the ends of an interval in the unit of the larger one."""
    found = at(intervals, level)
    if found is None or not (_known(found.low) and _known(found.high)):
        return NONE
    chosen = unit(response, max(abs(found.low), abs(found.high)))
    low, high = (signed(f"{end / chosen.size:.3g}") for end in (found.low, found.high))
    return f"{low} to {high} {chosen.name}".strip()
