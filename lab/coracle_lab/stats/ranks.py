"""Statistics of ranks: Hodges-Lehmann with its interval, Wilcoxon, Mann-Whitney, Cliff's delta.

They do not suppose that the values are normal. The interval of the Hodges-Lehmann estimate is the
one that the test inverts to (Hollander, Wolfe, Chicken 2014, chapters 3 and 4), from the exact
distribution up to `EXACT_AT_MOST` values and from the normal one beyond.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from coracle_lab.stats.data import Floats, Interval

EXACT_AT_MOST = 50
PAIRS_OF_AT_MOST = 2000
"""More values than these have too many pairs to keep in memory."""


def walsh(difference: Floats) -> Floats:
    """Returns the sorted Walsh averages: means of all pairs, each value with itself too."""
    one, other = np.triu_indices(difference.size)
    return np.sort((difference[one] + difference[other]) / 2)


def pairwise(one: Floats, other: Floats) -> Floats:
    """Returns the sorted differences of all pairs across two groups."""
    return np.sort(np.subtract.outer(one, other).ravel())


def signed_rank_counts(n: int) -> Floats:
    """Returns in how many of the 2^n sign patterns the signed-rank sum is 0, 1, 2 ..."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1
    for rank in range(1, n + 1):
        counts[rank:] += counts[:-rank].copy()
    return counts


def rank_sum_counts(n: int, m: int) -> Floats:
    """Returns in how many orders of n and m values the U statistic is 0, 1, 2 ..."""
    counts = np.zeros(n * m + 1)
    counts[0] = 1
    for i in range(1, n + 1):
        # Gaussian binomial: multiply by 1 - q^(m + i), then divide by 1 - q^i.
        if m + i <= n * m:
            counts[m + i :] -= counts[: -(m + i)].copy()
        rows = -(-counts.size // i)
        padded = np.zeros(rows * i)
        padded[: counts.size] = counts
        counts = padded.reshape(rows, i).cumsum(axis=0).ravel()[: counts.size]
    return counts


def _depth(counts: Floats, level: float) -> int:
    """Returns how many of the sorted values each end of an exact interval leaves out, or -1."""
    below = np.cumsum(counts) / counts.sum()
    return int(np.searchsorted(below, (1 - level) / 2 * (1 + 1e-12), side="right")) - 1


def _depth_normal(mean: float, variance: float, level: float) -> int:
    z = float(stats.norm.ppf((1 + level) / 2))
    return math.floor(mean - z * math.sqrt(variance) - 0.5)


def _at_depth(ordered: Floats, depth: int, level: float) -> Interval | None:
    """Returns the interval that leaves `depth` values out on each side; None if there is none."""
    if depth < 0 or 2 * depth >= ordered.size:
        return None
    return Interval(level, float(ordered[depth]), float(ordered[ordered.size - 1 - depth]))


def paired_shift(difference: Floats, level: float) -> tuple[float, Interval | None]:
    """Returns the Hodges-Lehmann estimate of a shift over blocks, and its interval.

    The interval is None where no interval of ranks reaches the level: below 6 blocks at 95 %,
    below 10 at 99.7 %.
    """
    ordered = walsh(difference)
    n = int(difference.size)
    if n <= EXACT_AT_MOST:
        depth = _depth(signed_rank_counts(n), level)
    else:
        depth = _depth_normal(n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24, level)
    return float(np.median(ordered)), _at_depth(ordered, depth, level)


def group_shift(one: Floats, other: Floats, level: float) -> tuple[float, Interval | None]:
    """Returns the Hodges-Lehmann estimate of a shift between two groups, and its interval."""
    ordered = pairwise(one, other)
    n, m = int(one.size), int(other.size)
    if max(n, m) <= EXACT_AT_MOST:
        depth = _depth(rank_sum_counts(n, m), level)
    else:
        depth = _depth_normal(n * m / 2, n * m * (n + m + 1) / 12, level)
    return float(np.median(ordered)), _at_depth(ordered, depth, level)


def wilcoxon_p(difference: Floats) -> float:
    """Returns the two-sided p of Wilcoxon's signed-rank test; equal pairs are left out of it."""
    # The correction is for continuity; SciPy applies it where it takes the normal distribution.
    return float(stats.wilcoxon(difference, correction=True).pvalue)


def mann_whitney_p(one: Floats, other: Floats) -> float:
    """Returns the two-sided p of the test of Mann and Whitney."""
    return float(stats.mannwhitneyu(one, other, alternative="two-sided").pvalue)


def cliffs_delta(one: Floats, other: Floats) -> float:
    """Returns P(one > other) - P(one < other) for single values: 0 no effect, ±1 no overlap."""
    ranks = stats.rankdata(np.concatenate([one, other]))
    u = float(ranks[: one.size].sum()) - one.size * (one.size + 1) / 2
    return 2 * u / (one.size * other.size) - 1
