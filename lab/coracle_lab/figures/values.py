"""The values that a figure is drawn from; nothing here draws.

A `Picture` has facets, a facet has clouds, and a cloud has the runs of one environment at one
place of the x axis. Values are as they were measured, in the unit of the response.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

ENVIRONMENT = "environment"
"""The x axis of a picture that has no other factor there."""

View = Literal["median", "mean"]
"""`median`: the lab's own view. `mean`: as in the papers, with bars of 3 s/√n."""


@dataclass(frozen=True)
class Ratio:
    """A ratio to the base with the limits of its intervals, where there are any."""

    value: float
    narrow: tuple[float, float] | None = None
    """95 %."""
    wide: tuple[float, float] | None = None
    """99.7 %."""


@dataclass(frozen=True)
class Cloud:
    """The runs of one environment at one place of the x axis.

    `ratios` are single ratios to the base: one for each block, or for each run where there are no
    blocks. `part` names a part of the time in a split. A `model` is hatched and called one.
    `places` are numbers on the x axis, one for each value, where that has no levels.
    """

    environment: str
    x: str
    values: tuple[float, ...]
    ratio: Ratio | None = None
    ratios: tuple[float, ...] = ()
    part: str = ""
    model: bool = False
    places: tuple[float, ...] = ()


@dataclass(frozen=True)
class Facet:
    """One panel: all clouds at one level of the factor that makes panels."""

    title: str
    clouds: tuple[Cloud, ...]


@dataclass(frozen=True)
class Picture:
    """Everything that a layout needs. `over` has the places of x with too few processors."""

    base: str
    environments: tuple[str, ...]
    x_name: str
    xs: tuple[str, ...]
    response: str
    facets: tuple[Facet, ...]
    over: frozenset[str] = field(default_factory=frozenset)
    view: View = "median"
    rate: bool = False
    parts: tuple[str, ...] = ()

    def clouds(self) -> Iterator[Cloud]:
        """Yields the clouds of all facets."""
        for facet in self.facets:
            yield from facet.clouds

    def largest(self) -> float:
        """Returns the largest value; 0 if there is none."""
        every = (value for cloud in self.clouds() for value in finite(cloud.values))
        return max(every, default=0.0)

    def others(self) -> tuple[str, ...]:
        """Returns the environments but the base."""
        return tuple(name for name in self.environments if name != self.base)

    def by_environment(self) -> bool:
        """Tells whether the x axis has the environments themselves."""
        return self.x_name == ENVIRONMENT

    def numeric(self) -> bool:
        """Tells whether all places of the x axis are positive numbers."""
        return all(number(x) > 0 for x in self.xs)


def number(text: str) -> float:
    """Returns the number that a level is, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def finite(values: Sequence[float]) -> list[float]:
    """Returns the values that are there."""
    return [value for value in values if math.isfinite(value)]


def levels_in_order(levels: Sequence[str]) -> tuple[str, ...]:
    """Returns different levels: numbers by size, others in the order given."""
    kept = list(dict.fromkeys(levels))
    if all(math.isfinite(number(level)) for level in kept):
        kept.sort(key=number)
    return tuple(kept)
