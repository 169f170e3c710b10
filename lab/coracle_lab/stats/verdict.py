"""The fixed words of a verdict, the A/A guard, and how many blocks a verdict takes.

A verdict is one of

    equal within ±1 % (TOST)
    slower by 2.1 to 3.4 %
    faster by 2.1 to 3.4 %
    undecided: about 40 more blocks
    no verdict: WHY

*Equal*: the two one-sided tests at 5 % put the ratio between 1/(1 + margin) and 1 + margin. These
bounds are symmetric on the log scale, so exchanging the sides changes no verdict. Each claim of
equality has its own 5 %. *Slower*, *faster*: not equal, and the t test, after Holm over all
comparisons, is below 5 %; the printed interval is the one of 95 %. A small difference that is
certain and lies within the margin is "equal": the margin says which differences matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy import stats

from coracle_lab.errors import LabError
from coracle_lab.stats.data import Interval
from coracle_lab.stats.estimate import Estimate

if TYPE_CHECKING:
    from coracle_lab.stats.compare import Comparison

ALPHA = 0.05
POWER = 0.8
"""Chance that the stated number of more blocks decides, if the estimates are right."""
BLOCKS_AT_MOST = 10_000_000


def percent(fraction: float) -> str:
    """Returns 0.01 as "1"."""
    return f"{fraction * 100:g}"


def _span(low: float, high: float) -> str:
    """Returns two fractions as "2.1 to 3.4 %", with as many decimals as tell them apart."""
    for decimals in range(1, 7):
        texts = [f"{value * 100:.{decimals}f}" for value in (low, high)]
        if texts[0] != texts[1] and float(texts[0]) > 0:
            break
    return f"{texts[0]} to {texts[1]} %"


def of_pairs(blocks: int) -> float:
    """Returns the degrees of freedom of a mean over so many blocks."""
    return blocks - 1


def judge(
    estimate: Estimate,
    ratio95: Interval,
    margin: float,
    holm_p: float,
    family: int,
    freedom: Callable[[int], float] = of_pairs,
) -> str:
    """Returns the verdict on one comparison; `family` comparisons share the 5 % by Holm.

    `freedom` says how many degrees of freedom so many blocks give.
    """
    if estimate.tost_p(math.log1p(margin)) < ALPHA:
        return f"equal within ±{percent(margin)} % (TOST)"
    if holm_p < ALPHA and not ratio95.holds(1.0):
        if ratio95.low > 1:
            return f"slower by {_span(ratio95.low - 1, ratio95.high - 1)}"
        return f"faster by {_span(1 - ratio95.high, 1 - ratio95.low)}"
    more = max(1, blocks_to_decide(estimate, margin, family, freedom) - estimate.blocks)
    return f"undecided: about {more} more block{'' if more == 1 else 's'}"


def blocks_to_decide(
    estimate: Estimate,
    margin: float,
    family: int = 1,
    freedom: Callable[[int], float] = of_pairs,
) -> int:
    """Returns the blocks that decide with 80 % power, if mean and spread stay what they are.

    The nearer decision counts: that the ratio is within the margin, or that it is not 1. Powers
    are those of normal means, with the t factor of the test.
    """
    bound = math.log1p(margin)
    size = abs(estimate.mean)

    def equal(n: int) -> bool:
        se = estimate.sd / math.sqrt(n)
        factor = stats.t.ppf(1 - ALPHA, freedom(n))
        above, below = (stats.norm.cdf((bound + side) / se - factor) for side in (size, -size))
        return bool(above + below - 1 >= POWER)

    def different(n: int) -> bool:
        se = estimate.sd / math.sqrt(n)
        factor = stats.t.ppf(1 - ALPHA / 2 / family, freedom(n))
        return bool(stats.norm.cdf(size / se - factor) >= POWER)

    return min(_smallest(equal) if size < bound else BLOCKS_AT_MOST, _smallest(different))


def blocks_needed(sd_of_log_ratio: float, margin: float, level: float) -> int:
    """Returns the smallest number of blocks whose t interval has a half width of `margin`.

    `sd_of_log_ratio` is that of one block; for independent runs with the variation s it is s √2.
    """
    for name, value in (("sd_of_log_ratio", sd_of_log_ratio), ("margin", margin)):
        if not (math.isfinite(value) and value > 0):
            raise LabError(f"blocks_needed: {name} is {value}", "it has to be more than 0")
    if not 0 < level < 1:
        raise LabError(f"blocks_needed: level is {level}", "it lies between 0 and 1")

    def enough(n: int) -> bool:
        factor = float(stats.t.ppf((1 + level) / 2, n - 1))
        return factor * sd_of_log_ratio / math.sqrt(n) <= margin

    return _smallest(enough)


def _smallest(enough: Callable[[int], bool]) -> int:
    """Returns the smallest n from 2 for which `enough(n)` holds (it is monotonic), by bisection."""
    high = 2
    while high < BLOCKS_AT_MOST and not enough(high):
        high *= 2
    low = max(2, high // 2)
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return min(high, BLOCKS_AT_MOST)


@dataclass(frozen=True)
class Guard:
    """What the A/A comparison says about all the others.

    If it is not `trusted`, the report opens with `text` in red, no verdict is printed, and the
    exit status is `errors.UNTRUSTED`.
    """

    trusted: bool
    text: str


def guard(again: Comparison | None) -> Guard:
    """Applies the A/A rule to the comparison of native with native (None: the design has none).

    Only "equal" and "undecided" are trusted.
    """
    if again is None:
        return Guard(False, "no A/A: the design does not measure its base twice")
    if again.verdict.startswith(("equal", "undecided")):
        return Guard(True, f"A/A holds: {again.environment} is {again.verdict}")
    if again.ratio is None:
        return Guard(False, f"A/A could not be judged: {again.verdict}")
    return Guard(
        False,
        f"A/A fails: {again.environment} is {again.verdict} than {again.base}, though both are the"
        " same; no verdict of this run is trusted",
    )
