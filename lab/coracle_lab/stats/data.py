"""Types that the statistics share, and the checks that every value passes first.

A response is a positive number (seconds, bytes). NaN says that a value is missing. Zero, negative
and infinite values are errors of measurement: whatever holds them is refused, not repaired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, Sequence[float]]
"""Environment → one value a block, in the order of the blocks; NaN where one is missing."""

Floats = NDArray[np.float64]

LEVELS = (0.95, 0.997)
"""Levels of every interval. 0.997 is the papers' "3 sigma", with the t factor that it needs."""

FLAT = 1e-12
"""A relative spread below this is a clock that stands, or the same number copied."""


class Refused(Exception):
    """Values that no statistic is computed from; the text says why."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    level: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Says whether the value lies in the interval."""
        return self.low <= value <= self.high

    def mapped(self, low: float, high: float) -> Interval:
        """Returns an interval of the same level with other ends."""
        return Interval(self.level, low, high)


def positive(values: Sequence[float], name: str) -> Floats:
    """Returns the values as an array; raises `Refused` if one is zero, negative or infinite."""
    array = np.asarray(values, dtype=np.float64)
    bad = np.flatnonzero((array <= 0) | np.isinf(array))
    if bad.size:
        first = int(bad[0])
        raise Refused(f"{name} has the value {array[first]:g} in block {first + 1}")
    return array


def spread(array: Floats, name: str) -> None:
    """Raises `Refused` if all values are equal: no spread, no interval."""
    if float(np.ptp(array)) <= FLAT * float(np.max(np.abs(array))):
        raise Refused(f"all {array.size} values of {name} are equal")


def pairs(values: Values, name: str, base: str) -> tuple[Floats, Floats, int]:
    """Returns the values of blocks that have both environments, and how many blocks have not.

    Raises `Refused` if fewer than two blocks are left, or nothing varies.
    """
    one, other = positive(values[name], name), positive(values[base], base)
    both = ~(np.isnan(one) | np.isnan(other))
    missing = int(both.size - both.sum())
    one, other = one[both], other[both]
    if one.size < 2:
        what = "one block has" if one.size else "no block has"
        raise Refused(f"{what} both {name} and {base}")
    for array, whose in ((one, name), (other, base)):
        spread(array, whose)
    if float(np.ptp(np.log(one / other))) <= FLAT:
        raise Refused(f"all {one.size} ratios of {name} to {base} are equal")
    return one, other, missing


def groups(values: Values, name: str, base: str) -> tuple[Floats, Floats, int]:
    """Returns the values of both environments without blocks, and how many are missing.

    Raises `Refused` if one has fewer than two values, or does not vary.
    """
    found = []
    missing = 0
    for whose in (name, base):
        array = positive(values[whose], whose)
        kept = array[~np.isnan(array)]
        missing += int(array.size - kept.size)
        if kept.size < 2:
            raise Refused(f"{whose} has {'one value' if kept.size else 'no value'}")
        spread(kept, whose)
        found.append(kept)
    return found[0], found[1], missing
