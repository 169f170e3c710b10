"""Values that the models take, and how they are drawn again for the bootstrap.

A `Sample` holds what was measured in one environment, with the block of each value. Environments
that were measured in the same blocks are resampled with the same blocks, so that what both share
(a disturbance, a drift) cancels in their ratio, as it does in a paired comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from coracle_lab.errors import LabError
from coracle_lab.stats.data import LEVELS, Floats, Interval

RESAMPLES = 10_000
AT_ONCE = 500
"""Resamples that are in memory at the same time."""
SEED = 18
"""The seed of the bootstrap where none is given: equal inputs give equal intervals."""
FEWEST = {0.95: 8, 0.997: 30}
"""Below these numbers of values there is no interval of the level: its tails would be noise."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Measured values of one environment: one for each of `blocks`, or a row of several.

    Use `sample` to make one: it checks the values.
    """

    blocks: tuple[int, ...]
    values: Floats
    together: int = 1
    """So many values that follow each other are of one launch, and are drawn with each other."""

    @property
    def count(self) -> int:
        """The number of values (of rows)."""
        return len(self.blocks)

    @property
    def units(self) -> int:
        """The number of launches, which are independent of each other."""
        return self.count // self.together


Samples = Mapping[str, Sample]
"""Environment → its values."""


def sample(
    values: Sequence[float] | Sequence[Sequence[float]] | Floats,
    what: str,
    blocks: Sequence[int] | None = None,
    together: int = 1,
) -> Sample:
    """Returns checked values; `what` names them in errors ("starts of native").

    `together` values that follow each other are of one launch.
    Raises `LabError` if there are fewer than two, or if one is not a positive number.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.shape[0] < 2:
        has = "one value" if array.shape[0] == 1 else "no value"
        raise LabError(f"{what}: {has}, and an interval needs two or more", "measure more blocks")
    bad = np.argwhere(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        place = tuple(int(at) for at in bad[0])
        raise LabError(
            f"{what}: value {place[0] + 1} is {array[place]:g}, not a positive number",
            "leave out rows that have failed; a time of zero or less is an error of measurement",
        )
    own = tuple(range(1, array.shape[0] + 1)) if blocks is None else tuple(blocks)
    return Sample(own, array, together)


def generator(seed: int) -> np.random.Generator:
    """Returns the generator of a seed, the same on every machine."""
    return np.random.Generator(np.random.PCG64(seed))


def resampled(
    rng: np.random.Generator, samples: Samples, resamples: int = RESAMPLES
) -> Iterator[Mapping[str, Indices]]:
    """Yields indices of drawn values by environment, `AT_ONCE` resamples in each."""
    shared = len({(one.blocks, one.together) for one in samples.values()}) == 1
    for begin in range(0, resamples, AT_ONCE):
        rows = min(AT_ONCE, resamples - begin)
        found: dict[str, Indices] = {}
        drawn: Indices | None = None
        for name, one in samples.items():
            if drawn is None or not shared:
                drawn = rng.integers(0, one.units, (rows, one.units))
                if one.together > 1:
                    each = np.arange(one.together)
                    drawn = (drawn[..., np.newaxis] * one.together + each).reshape(rows, -1)
            found[name] = drawn
        yield found


def intervals(draws: Floats, count: int) -> dict[float, Interval]:
    """Returns the percentile intervals of bootstrap draws, widened for small samples.

    `count` is the number of values that were resampled. The bootstrap of a mean is too narrow by
    the factor sqrt((n-1)/n) and has normal tails where t has longer ones; the percentiles are
    moved out by both (the expanded percentile interval of Hesterberg 2015). A level for which the
    values are too few (`FEWEST`) is left out.
    """
    found = {}
    for level in LEVELS:
        if count < FEWEST[level]:
            continue
        t = float(stats.t.ppf((1 + level) / 2, count - 1)) * math.sqrt(count / (count - 1))
        outside = float(stats.norm.sf(t))
        low, high = np.quantile(draws, [outside, 1 - outside])
        found[level] = Interval(level, float(low), float(high))
    return found
