"""Means of log-ratios and of differences, with t intervals and the two t tests.

`paired`: one difference a block (Student 1908). `welch`: two independent groups with variances of
their own (Welch 1947). Both give an `Estimate`; everything else here follows from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from coracle_lab.stats.data import Floats, Interval


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and degrees of freedom.

    `sd` is the deviation of one block: `se * sqrt(blocks)`.
    """

    mean: float
    se: float
    freedom: float
    blocks: int

    @property
    def sd(self) -> float:
        """Standard deviation of one block."""
        return self.se * math.sqrt(self.blocks)

    def interval(self, level: float) -> Interval:
        """Returns the two-sided t interval."""
        half = float(stats.t.ppf((1 + level) / 2, self.freedom)) * self.se
        return Interval(level, self.mean - half, self.mean + half)

    def p(self) -> float:
        """Returns the two-sided p of the t test that the mean is 0."""
        return float(2 * stats.t.sf(abs(self.mean) / self.se, self.freedom))

    def tost_p(self, bound: float) -> float:
        """Returns the p of the two one-sided tests that the mean lies in ± bound.

        Schuirmann 1987: the larger p of "mean <= -bound" and "mean >= bound".
        """
        nearest = (bound - abs(self.mean)) / self.se
        return float(stats.t.sf(nearest, self.freedom))


def paired(one: Floats, other: Floats) -> Estimate:
    """Returns the mean of `one - other` over blocks."""
    difference = one - other
    n = int(difference.size)
    se = float(np.std(difference, ddof=1)) / math.sqrt(n)
    return Estimate(float(np.mean(difference)), se, n - 1, n)


def welch(one: Floats, other: Floats) -> Estimate:
    """Returns the difference of two means, with the degrees of freedom of Satterthwaite.

    `blocks` is the size of the smaller group.
    """
    parts = [float(np.var(group, ddof=1)) / group.size for group in (one, other)]
    total = sum(parts)
    freedom = total**2 / sum(
        part**2 / (group.size - 1) for part, group in zip(parts, (one, other), strict=True)
    )
    mean = float(np.mean(one) - np.mean(other))
    return Estimate(mean, math.sqrt(total), freedom, min(int(one.size), int(other.size)))
