"""Compares two sessions by their ratios to native: a ratio of ratios, with fixed words.

Times of two sessions are never compared: the same baseline differs by some percent from one
session to the next. Each session has its own base, so what is compared is how an environment
stands to it. The two estimates are independent; their log-ratios are subtracted, with the degrees
of freedom of Satterthwaite (1946).

    unchanged within ±1 % (TOST)
    slower than before by 2.1 to 3.4 %
    faster than before by 2.1 to 3.4 %
    undecided: about 40 more blocks
    not compared: WHY
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coracle_lab.stats.compare import AGAIN, Comparison
from coracle_lab.stats.data import FLAT, LEVELS, Interval
from coracle_lab.stats.estimate import Estimate
from coracle_lab.stats.many import holm
from coracle_lab.stats.verdict import judge

WORDS = {"equal": "unchanged", "slower": "slower than before", "faster": "faster than before"}


@dataclass(frozen=True)
class Change:
    """How the ratio of one environment changed; `ratio` above 1: it is slower than before."""

    environment: str
    verdict: str
    old: float | None = None
    new: float | None = None
    ratio: float | None = None
    intervals: tuple[Interval, ...] = ()
    holm_p: float | None = None
    tost_p: float | None = None


def changes(pairs: Sequence[tuple[Comparison, Comparison]], margin: float) -> list[Change]:
    """Compares (old, new) of environments; Holm's family is all of them but the A/A controls."""
    found = [_one(old, new, margin) for old, new in pairs]
    family = [
        at
        for at, (change, estimate) in enumerate(found)
        if estimate is not None and not change.environment.endswith(AGAIN)
    ]
    p = holm([estimate.p() for at in family if (estimate := found[at][1]) is not None])
    adjusted = dict(zip(family, p, strict=True))
    result = []
    for at, (change, estimate) in enumerate(found):
        if estimate is not None:
            own = adjusted.get(at, estimate.p())
            count = len(family) if at in adjusted else 1
            change = replace(
                change, holm_p=own, verdict=_words(estimate, change, margin, own, max(1, count))
            )
        result.append(change)
    return result


def _one(old: Comparison, new: Comparison, margin: float) -> tuple[Change, Estimate | None]:
    begin = Change(new.environment, "", old.ratio, new.ratio)
    for which, one in (("old", old), ("new", new)):
        if one.ratio is None or one.sd_of_log_ratio is None:
            why = one.verdict.removeprefix("no verdict: ")
            return replace(begin, verdict=f"not compared: {which}: {why}"), None
    assert old.ratio is not None and new.ratio is not None
    errors = [(one.sd_of_log_ratio or 0.0) / math.sqrt(one.blocks) for one in (old, new)]
    total = sum(error**2 for error in errors)
    if math.sqrt(total) < FLAT:
        return replace(begin, verdict="not compared: nothing varies"), None
    freedom = total**2 / sum(
        error**4 / (one.blocks - 1) for error, one in zip(errors, (old, new), strict=True)
    )
    blocks = min(old.blocks, new.blocks)
    estimate = Estimate(math.log(new.ratio / old.ratio), math.sqrt(total), freedom, blocks)
    ends = [estimate.interval(level) for level in LEVELS]
    return (
        replace(
            begin,
            ratio=math.exp(estimate.mean),
            intervals=tuple(one.mapped(math.exp(one.low), math.exp(one.high)) for one in ends),
            tost_p=estimate.tost_p(math.log1p(margin)),
        ),
        estimate,
    )


def _words(estimate: Estimate, change: Change, margin: float, p: float, family: int) -> str:
    """Returns the words: those of a verdict on a ratio, said of a change."""
    text = judge(estimate, change.intervals[0], margin, p, family)
    kind, space, rest = text.partition(" ")
    return WORDS.get(kind, kind) + space + rest
