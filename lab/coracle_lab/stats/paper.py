"""The "as in the paper" view: the statistics of the five papers, by the formulas they used.

It stands beside the lab's own statistics and decides nothing. What is weak in it is known: the
bars of 3 s/√n cover 98.5 % at n = 10, not 99.7 %; Eq. 1 of the udocker paper is the spread of a
ratio of two single runs, not the uncertainty of the ratio of means (here both are given); the
best of three has no uncertainty at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coracle_lab.errors import LabError
from coracle_lab.stats.data import Floats, Values

WHISKER = 1.5
"""Tukey's factor. The udocker paper masks outliers by a rule that it does not state."""
BEST_OF = 3


@dataclass(frozen=True)
class Masked:
    """The ratio of means with Eq. 1 of the udocker paper, after outliers are masked.

    `spread` is Eq. 1, with standard deviations. `error` is the same with those of the means.
    """

    ratio: float
    spread: float | None
    error: float | None
    masked: int
    masked_base: int


@dataclass(frozen=True)
class PaperView:
    """One environment as the papers would have reported it. NaN values are left out.

    `bar` is 3 s/√n. `overhead` is that of the means, in percent of the base. `best_ratio` is the
    best of the first three values over the base's.
    """

    environment: str
    count: int
    mean: float | None
    sd: float | None
    bar: float | None
    overhead: float | None
    first: float | None
    mean_without_first: float | None
    best: float | None
    best_ratio: float | None
    masked: Masked | None


def as_in_paper(values: Values, base: str, larger_is_better: bool = False) -> dict[str, PaperView]:
    """Returns the papers' statistics of each environment, the base included.

    `larger_is_better` is for rates (GFLOPS): the best of three is then the largest.
    """
    if base not in values:
        raise LabError(f'there are no values of "{base}"', f"there are {sorted(values)}")
    kept = {
        name: np.asarray([v for v in series if not math.isnan(v)], dtype=np.float64)
        for name, series in values.items()
    }
    return {name: _view(name, own, kept[base], larger_is_better) for name, own in kept.items()}


def _view(name: str, own: Floats, base: Floats, larger_is_better: bool) -> PaperView:
    mean, base_mean = _mean(own), _mean(base)
    sd = float(np.std(own, ddof=1)) if own.size > 1 else None
    best = _best(own, larger_is_better)
    return PaperView(
        environment=name,
        count=int(own.size),
        mean=mean,
        sd=sd,
        bar=None if sd is None else 3 * sd / math.sqrt(own.size),
        overhead=None if mean is None or not base_mean else (mean / base_mean - 1) * 100,
        first=float(own[0]) if own.size else None,
        mean_without_first=_mean(own[1:]),
        best=best,
        best_ratio=_over(best, _best(base, larger_is_better)),
        masked=eq1(own, base),
    )


def _mean(array: Floats) -> float | None:
    return float(np.mean(array)) if array.size else None


def _best(array: Floats, larger_is_better: bool) -> float | None:
    first = array[:BEST_OF]
    if not first.size:
        return None
    return float(np.max(first) if larger_is_better else np.min(first))


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def tukey(array: Floats) -> Floats:
    """Returns the values within 1.5 interquartile ranges of the quartiles.

    Below four values nothing is masked: quartiles of three values say nothing about a fourth.
    """
    if array.size < 4:
        return array
    low, high = (float(np.quantile(array, q)) for q in (0.25, 0.75))
    reach = WHISKER * (high - low)
    kept: Floats = array[(array >= low - reach) & (array <= high + reach)]
    return kept


def eq1(own: Floats, base: Floats) -> Masked | None:
    """Returns t/t_host with ΔR = t/t_host √((Δt/t)² + (Δt_host/t_host)²), outliers masked."""
    one, other = tukey(own), tukey(base)
    t, host = _mean(one), _mean(other)
    if not t or not host:
        return None
    ratio = t / host
    masked = (int(own.size - one.size), int(base.size - other.size))
    if one.size < 2 or other.size < 2:
        return Masked(ratio, None, None, *masked)
    parts = [(float(np.std(a, ddof=1)) / m) ** 2 for a, m in ((one, t), (other, host))]
    spread = ratio * math.sqrt(parts[0] + parts[1])
    error = ratio * math.sqrt(parts[0] / one.size + parts[1] / other.size)
    return Masked(ratio, spread, error, *masked)
