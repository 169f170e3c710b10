"""Compares each environment with the base: ratio, intervals, tests, effect sizes, verdict.

The response is taken by its logarithm, so the effect is a ratio: exchanging the sides inverts it,
and the unit does not matter. With blocks, each block gives one log-ratio and drift cancels;
without, the two groups are compared by Welch's t. Everything else (bootstrap, ranks, permutation)
is computed beside it and printed with it; the verdict comes from the t statistics alone, so
nothing is chosen after it was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coracle_lab.errors import LabError
from coracle_lab.stats import ranks, resample
from coracle_lab.stats.data import LEVELS, Floats, Interval, Refused, Values, groups, pairs
from coracle_lab.stats.estimate import Estimate, paired, welch
from coracle_lab.stats.many import holm
from coracle_lab.stats.verdict import judge

AGAIN = "-again"
"""`native-again` is the base a second time (A/A). It is a control: Holm's family is without it."""


@dataclass(frozen=True)
class Comparison:
    """One environment compared with the base.

    Ratios are of times: above 1 is slower. Intervals are keyed by level (0.95, 0.997) and absent
    where they could not be had; `notes` say why. `ratio` and all that follows from it is None
    with the verdict "no verdict: WHY".
    """

    environment: str
    base: str
    margin: float
    paired: bool
    verdict: str
    blocks: int = 0
    missing: int = 0
    ratio: float | None = None
    ratio_intervals: tuple[Interval, ...] = ()
    bootstrap_intervals: tuple[Interval, ...] = ()
    hodges_lehmann: float | None = None
    hodges_lehmann_intervals: tuple[Interval, ...] = ()
    rank_test: str = ""
    rank_p: float | None = None
    permutation_p: float | None = None
    t_p: float | None = None
    holm_p: float | None = None
    tost_p: float | None = None
    cliffs_delta: float | None = None
    difference: float | None = None
    difference_intervals: tuple[Interval, ...] = ()
    sd_of_log_ratio: float | None = None
    notes: tuple[str, ...] = ()

    def interval(self, level: float) -> Interval | None:
        """Returns the t interval of the ratio at this level, if there is one."""
        return next((found for found in self.ratio_intervals if found.level == level), None)


def compare(
    values: Values, base: str, margin: float = 0.01, paired: bool = True, seed: int = 1
) -> list[Comparison]:
    """Compares every environment but the base with it, in the order given.

    `values` has one time a block for each environment, the same blocks in each (`paired`), or
    independent runs. A block in which one of the two is missing is left out of that comparison
    and counted. Raises `LabError` only for what the caller can mend: an unknown base, series of
    different lengths, a margin that is none.
    """
    return compare_cells([values], base, margin, paired, seed)[0]


def compare_cells(
    cells: Sequence[Values], base: str, margin: float = 0.01, paired: bool = True, seed: int = 1
) -> list[list[Comparison]]:
    """Compares as `compare` does in each of several cells, whose verdicts are read together.

    Holm's family is all comparisons of all cells. The A/A controls of the cells are another one,
    so that a figure of many cells alarms as seldom as one of a single cell.
    """
    for values in cells:
        _checked(values, base, margin, paired)
    found = [
        (at, *_one(values, name, base, margin, paired, seed))
        for at, values in enumerate(cells)
        for name in values
        if name != base
    ]
    families: dict[bool, list[int]] = {True: [], False: []}
    for place, (_, comparison, estimate) in enumerate(found):
        if estimate is not None:
            families[comparison.environment == base + AGAIN].append(place)
    judged: list[list[Comparison]] = [[] for _ in cells]
    adjusted: dict[int, tuple[float, int]] = {}
    for family in families.values():
        p = holm([estimate.p() for at in family if (estimate := found[at][2]) is not None])
        adjusted |= {at: (one, len(family)) for at, one in zip(family, p, strict=True)}
    for place, (at, comparison, estimate) in enumerate(found):
        if estimate is not None:
            comparison = _judged(comparison, estimate, *adjusted[place])
        judged[at].append(comparison)
    return judged


def precise(comparisons: Sequence[Comparison], half_width: float, level: float) -> bool:
    """Says whether every ratio's interval is as narrow as a design asks for.

    `half_width` is a fraction (0.01: ±1 %). A comparison without an interval is not precise.
    """
    intervals = [comparison.interval(level) for comparison in comparisons]
    return all(i is not None and (i.high - i.low) / 2 <= half_width for i in intervals)


def _checked(values: Values, base: str, margin: float, paired: bool) -> None:
    if base not in values:
        raise LabError(f'there are no values of "{base}"', f"there are {sorted(values)}")
    if not (math.isfinite(margin) and 0 < margin < 1):
        raise LabError(f"the margin is {margin}", "it is a fraction: 0.01 is ±1 %")
    lengths = {name: len(series) for name, series in values.items()}
    if paired and len(set(lengths.values())) > 1:
        raise LabError(
            f"the environments have different numbers of blocks: {lengths}",
            "give NaN where a value is missing, or compare without blocks",
        )


def _judged(comparison: Comparison, estimate: Estimate, holm_p: float, family: int) -> Comparison:
    """Adds Holm's p and the verdict."""
    ratio95 = next(i for i in comparison.ratio_intervals if i.level == LEVELS[0])
    verdict = judge(estimate, ratio95, comparison.margin, holm_p, family)
    return replace(comparison, holm_p=holm_p, verdict=verdict)


def _one(
    values: Values, name: str, base: str, margin: float, with_blocks: bool, seed: int
) -> tuple[Comparison, Estimate | None]:
    """Computes everything about one environment that does not depend on the others."""
    begin = Comparison(name, base, margin, with_blocks, "")
    try:
        one, other, missing = (pairs if with_blocks else groups)(values, name, base)
    except Refused as why:
        return replace(begin, verdict=f"no verdict: {why}"), None
    mean: Callable[[Floats, Floats], Estimate] = paired if with_blocks else welch
    estimate = mean(np.log(one), np.log(other))
    plain = mean(one, other)
    what = "blocks left out: a value is missing" if with_blocks else "values are missing"
    notes = [f"{missing} {what}"] if missing else []
    comparison = replace(
        begin,
        blocks=estimate.blocks,
        missing=missing,
        ratio=math.exp(estimate.mean),
        ratio_intervals=tuple(_exp(estimate.interval(level)) for level in LEVELS),
        t_p=estimate.p(),
        tost_p=estimate.tost_p(math.log1p(margin)),
        cliffs_delta=ranks.cliffs_delta(one, other),
        difference=plain.mean,
        difference_intervals=tuple(plain.interval(level) for level in LEVELS),
        sd_of_log_ratio=estimate.sd,
    )
    comparison = _with_ranks(comparison, np.log(one), np.log(other), notes)
    return _with_resampling(comparison, np.log(one), np.log(other), seed, notes), estimate


def _exp(interval: Interval) -> Interval:
    return interval.mapped(_power(interval.low), _power(interval.high))


def _power(log: float) -> float:
    """Returns e to that power; the interval of two blocks can reach beyond all numbers."""
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf


def _with_ranks(comparison: Comparison, one: Floats, other: Floats, notes: list[str]) -> Comparison:
    """Adds the Hodges-Lehmann ratio with its intervals, and the rank test's p."""
    rank_test = "Wilcoxon" if comparison.paired else "Mann-Whitney"
    p = ranks.wilcoxon_p(one - other) if comparison.paired else ranks.mann_whitney_p(one, other)
    comparison = replace(comparison, rank_test=rank_test, rank_p=p)
    if max(one.size, other.size) > ranks.PAIRS_OF_AT_MOST:
        notes.append(f"no Hodges-Lehmann estimate of more than {ranks.PAIRS_OF_AT_MOST} values")
        return comparison
    shift = 0.0
    intervals = []
    for level in LEVELS:
        if comparison.paired:
            shift, interval = ranks.paired_shift(one - other, level)
        else:
            shift, interval = ranks.group_shift(one, other, level)
        if interval is None:
            notes.append(
                f"no Hodges-Lehmann interval of {level * 100:g} % from {comparison.blocks} blocks"
            )
        else:
            intervals.append(_exp(interval))
    return replace(
        comparison,
        hodges_lehmann=math.exp(shift),
        hodges_lehmann_intervals=tuple(intervals),
    )


def _with_resampling(
    comparison: Comparison, one: Floats, other: Floats, seed: int, notes: list[str]
) -> Comparison:
    """Adds the bootstrap's intervals and the permutation test's p; keeps the notes."""
    samples = (one - other,) if comparison.paired else (one, other)
    found, refused = resample.bca(samples, seed)
    return replace(
        comparison,
        bootstrap_intervals=tuple(_exp(interval) for interval in found.values()),
        permutation_p=resample.permutation_p(one, other, comparison.paired, seed),
        notes=(*notes, *refused),
    )
