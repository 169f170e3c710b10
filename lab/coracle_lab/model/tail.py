"""Computes the expected slowest of p starts from a table of measured starts.

A job of p ranks begins when its slowest rank has started. From n measured starts:

- p ≤ n: the mean of the largest of p values over all choices of p of the n. That is a sum of the
  sorted values with fixed weights, without bias and without an assumption about the distribution.
- p > n: the values do not reach so far. The mean excess m over a threshold u that k values exceed
  continues them by an exponential tail: u + m (ln(p k / n) + 0.577). That is a model. It is
  right for normal, exponential and log-normal starts, too high for starts with an upper bound,
  and too low for starts with a power law.

A bootstrap cannot draw a value above the largest that was measured. So its interval of the
slowest of p is far too narrow unless n is several times p: in simulations (95 % stated, five
distributions) it holds the truth in 56 to 80 % of cases at n = 1.6 p and in 5 % at n = p / 8. So
from `ENOUGH` p on the order statistics are taken, and below it the tail. n draws hold n / p groups
of p, so the interval is widened as one from n / p values (`groups_in`): then 84 to 98 % hold.

`median_slowest` has a distribution-free interval: the slowest of p is below x with probability
F(x)^p, so its median is the quantile 0.5^(1/p) of a single start, between two order statistics.

All starts are taken as independent. Ranks that start at the same moment compete for processors
and disks, which starts measured one after another do not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from coracle_lab.errors import LabError
from coracle_lab.stats.data import LEVELS, Floats, Interval

ENOUGH = 8
"""From this many draws for each rank on, the draws themselves tell the slowest of the ranks."""
UPPER = 0.2
"""Share of the values that the exponential tail is fitted to."""
FEWEST = 20
"""Fewer values than these have no tail to fit."""


def by_draws(count: int, of: int) -> bool:
    """Says whether the slowest of `of` is told by `count` draws; else by the fitted tail."""
    return count >= ENOUGH * of or (of <= count < FEWEST)


def groups_in(count: int, of: int) -> int:
    """Returns how many values an interval of the slowest of `of` rests on."""
    return count // of if by_draws(count, of) else count


def check(count: int, of: int, what: str) -> None:
    """Raises `LabError` if the slowest of `of` cannot be had from so many draws."""
    if of < 1:
        raise LabError(f"the slowest of {of}: the number is not 1 or more")
    if of > count and count < FEWEST:
        raise LabError(
            f"{what}: {count} draws say nothing about the slowest of {of}",
            f"measure {FEWEST} or more to extrapolate, {ENOUGH * of} to measure it",
        )


def weights(count: int, of: int) -> Floats:
    """Returns the weights of the sorted values in the expected largest of `of` (`of` ≤ count).

    The i-th smallest is the largest of a choice with probability C(i-1, p-1) / C(n, p).
    """
    at = np.arange(1, count + 1, dtype=np.float64)
    logs = np.full(count, -np.inf)
    top = at[of - 1 :]
    logs[of - 1 :] = _log_choose(top - 1, of - 1) - _log_choose(np.float64(count), of)
    return np.asarray(np.exp(logs), dtype=np.float64)


def _log_choose(whole: Floats | np.float64, part: int) -> Floats:
    rest = whole - part + 1
    found = special.gammaln(whole + 1) - special.gammaln(part + 1) - special.gammaln(rest)
    return np.asarray(found, dtype=np.float64)


def extrapolated(ordered: Floats, of: int) -> Floats:
    """Returns the expected largest of `of` by an exponential tail; sorted along the last axis."""
    count = ordered.shape[-1]
    above = min(max(10, int(UPPER * count)), count // 2)
    threshold = ordered[..., count - above - 1]
    excess = ordered[..., count - above :].mean(axis=-1) - threshold
    reach = max(math.log(of * above / count) + float(np.euler_gamma), 0.0)
    return np.asarray(threshold + excess * reach, dtype=np.float64)


def slowest(ordered: Floats, of: int) -> Floats:
    """Returns the expected slowest of `of`; the values are sorted along the last axis."""
    count = ordered.shape[-1]
    if by_draws(count, of):
        return np.asarray(ordered @ weights(count, of), dtype=np.float64)
    return extrapolated(ordered, of)


def slowest_measured(values: Floats, of: int) -> float:
    """Returns the expected slowest of `of` ≤ n by the draws alone, however few they are."""
    return float(np.sort(values) @ weights(values.size, of))


@dataclass(frozen=True)
class Median:
    """The median of the slowest of p, with its distribution-free intervals.

    `lower` holds the lower ends of levels whose upper end lies above all draws.
    """

    value: float | None
    intervals: dict[float, Interval]
    lower: dict[float, float]


def median_slowest(values: Floats, of: int) -> Median:
    """Returns the median slowest of `of`; None where the draws do not reach as far."""
    ordered = np.sort(values)
    count = ordered.size
    q = 0.5 ** (1 / of)
    value = float(np.quantile(ordered, q)) if count * (1 - q) >= 0.5 else None
    found: dict[float, Interval] = {}
    lower: dict[float, float] = {}
    for level in LEVELS:
        low = int(stats.binom.ppf((1 - level) / 2, count, q))
        high = int(stats.binom.ppf((1 + level) / 2, count, q)) + 1
        if low < 1:
            continue
        lower[level] = float(ordered[low - 1])
        if high <= count:
            found[level] = Interval(level, lower[level], float(ordered[high - 1]))
    return Median(value, found, lower)


def groups(values: Floats, of: int) -> tuple[float, ...]:
    """Returns the slowest of each whole group of `of` draws that follow each other."""
    whole = values.size // of
    return tuple(float(top) for top in values[: whole * of].reshape(whole, of).max(axis=1))


@dataclass(frozen=True)
class TailError:
    """How far the fitted tail was off on draws that it was not fitted to.

    `relative` is the root mean square of the relative errors of `folds` predictions, each of the
    slowest of `of` from `count` draws, compared with the other draws.
    """

    relative: float
    folds: int
    count: int
    of: int

    def words(self, wanted: float) -> str:
        """Returns the error in words; `wanted` is how far the model extrapolates."""
        done = self.of / self.count
        text = (
            f"{self.relative * 100:.1f} % (root mean square of {self.folds} predictions of the"
            f" slowest of {self.of} from {self.count} draws)"
        )
        if done < 0.9 * wanted:
            text += f"; checked {done:.1f} times beyond the draws, used {wanted:.1f} times"
        return text


def tail_error(values: Floats, of: int) -> TailError | None:
    """Returns the error of the tail on held-out draws, or None if too few are left for it.

    Pieces of the draws, in run order, predict the slowest of as many times their number as `of`
    is of all draws; the truth is the mean largest of so many of the draws outside the piece.
    """
    count = values.size
    ratio = max(of / count, 1.0)
    size = max(FEWEST, int(count / (1 + ratio)))
    held = min(int(ratio * size), count - size)
    if held < size // 2 or held < 2:
        return None
    off = []
    for begin in range(0, count - size + 1, size):
        inside = np.sort(values[begin : begin + size])
        outside = np.concatenate([values[:begin], values[begin + size :]])
        truth = slowest_measured(outside, held)
        off.append(float(extrapolated(inside, held)) / truth - 1)
    return TailError(math.sqrt(float(np.mean(np.square(off)))), len(off), size, held)
