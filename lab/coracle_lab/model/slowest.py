"""Tells the slowest of p starts from a table of starts: what was measured apart from a model.

Measured are the expected slowest of p ≤ n draws, the median slowest with its distribution-free
interval, and the slowest of each group of p draws in run order. With fewer than `tail.ENOUGH` p
draws the fitted tail is told beside it, as a model, with its error on draws that it was not
fitted to. The draws are starts one after another, not at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coracle_lab.errors import LabError
from coracle_lab.model import tail
from coracle_lab.model.check import claim
from coracle_lab.model.sample import (
    RESAMPLES,
    SEED,
    Sample,
    Samples,
    generator,
    intervals,
    resampled,
)
from coracle_lab.stats.data import Floats, Interval


@dataclass(frozen=True)
class Line:
    """One value that is told; None if the draws do not reach as far."""

    environment: str
    kind: Literal["model", "measured"]
    what: str
    draws: int
    value: float | None
    intervals: Mapping[float, Interval] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True)
class RatioToBase:
    """The ratio of the expected slowest to the base's."""

    environment: str
    ratio: float
    intervals: Mapping[float, Interval]
    words: str


@dataclass(frozen=True)
class Slowest:
    """What is known about the slowest of `of` starts in each environment.

    `error` is the largest of the models, None if one is unknown, 0 if nothing is modelled; so is
    `error_of_ratios`, for ratios to the base.
    """

    of: int
    base: str
    lines: tuple[Line, ...]
    effects: tuple[RatioToBase, ...]
    error: float | None
    error_of_ratios: float | None
    error_words: str
    seed: int
    resamples: int
    notes: tuple[str, ...]


def tell(
    starts: Samples,
    of: int,
    base: str = "native",
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> Slowest:
    """Returns the slowest of `of` starts of each environment, and ratios to the base."""
    if base not in starts:
        raise LabError(f'"{base}" has no starts', f"there are: {', '.join(starts)}")
    for name, one in starts.items():
        tail.check(one.count, of, f"starts of {name}")
    drawn = _bootstrap(starts, of, seed, resamples)
    errors = {
        name: tail.tail_error(one.values, of)
        for name, one in starts.items()
        if not tail.by_draws(one.count, of)
    }
    lines: list[Line] = []
    for name, one in starts.items():
        lines += _lines(name, one, of, drawn[name], errors.get(name))
    effects = []
    of_ratios: list[float | None] = []
    for name in starts:
        if name != base:
            both = {key: errors[key] for key in (name, base) if key in errors}
            of_ratios.append(_all(both.values(), sum))
            effects.append(_effect(name, base, starts, of, drawn, bool(both), of_ratios[-1]))
    return Slowest(
        of,
        base,
        tuple(lines),
        tuple(effects),
        _all(errors.values(), max),
        None if None in of_ratios else max((one for one in of_ratios if one), default=0.0),
        _words(starts, errors, of),
        seed,
        resamples,
        ("the draws are starts one after another: starts at the same time are not measured here",),
    )


def _all(
    errors: Iterable[tail.TailError | None], how: Callable[[list[float]], float]
) -> float | None:
    """Returns the largest, or the sum, of errors: 0 of none, None if one is unknown."""
    known: list[float] = []
    for error in errors:
        if error is None:
            return None
        known.append(error.relative)
    return how(known) if known else 0.0


def _bootstrap(starts: Samples, of: int, seed: int, resamples: int) -> dict[str, Floats]:
    found: dict[str, list[Floats]] = {name: [] for name in starts}
    for drawn in resampled(generator(seed), starts, resamples):
        for name, some in found.items():
            ordered = np.sort(starts[name].values[drawn[name]], axis=-1)
            some.append(tail.slowest(ordered, of))
    return {name: np.concatenate(some) for name, some in found.items()}


def _independent(one: Sample, of: int) -> int:
    """Returns how many independent values an interval of the slowest of `of` rests on."""
    return min(tail.groups_in(one.count, of), one.units)


def _lines(
    name: str, one: Sample, of: int, drawn: Floats, error: tail.TailError | None
) -> list[Line]:
    count, values = one.count, one.values
    lines = []
    measured = tail.by_draws(count, of)
    if count >= of:
        found = intervals(drawn, _independent(one, of)) if measured else {}
        words = "" if measured else f"no interval from fewer than {tail.ENOUGH * of} draws"
        if measured and count < tail.ENOUGH * of:
            found, words = {}, f"{count} draws are few: it can be higher"
        value = tail.slowest_measured(values, of)
        lines.append(Line(name, "measured", "expected", count, value, found, words))
        lines.append(_median(name, one, of))
        tops = tail.groups(values, of)
        told = ", ".join(f"{top:.4g}" for top in tops[:5]) + (", ..." if len(tops) > 5 else "")
        words = f"{len(tops)} x {of} draws in run order: {told} s"
        lines.append(Line(name, "measured", "groups", count, float(np.mean(tops)), {}, words))
    if not measured:
        words = f"exponential tail fitted to {count} draws; error {_told(error, count, of)}"
        value = float(tail.extrapolated(np.sort(values), of))
        found = intervals(drawn, _independent(one, of))
        lines.append(Line(name, "model", "expected", count, value, found, words))
    return lines


def _median(name: str, one: Sample, of: int) -> Line:
    found = tail.median_slowest(one.values, of)
    words = ""
    if 0.95 not in found.intervals:
        lower = found.lower.get(0.95)
        words = "no upper end from so few draws" + (f"; above {lower:.4g} s" if lower else "")
    return Line(name, "measured", "median", one.count, found.value, found.intervals, words)


def _told(error: tail.TailError | None, count: int, of: int) -> str:
    return "unknown" if error is None else error.words(of / count)


def _effect(
    name: str,
    base: str,
    starts: Samples,
    of: int,
    drawn: Mapping[str, Floats],
    is_model: bool,
    error: float | None,
) -> RatioToBase:
    one, other = (float(tail.slowest(np.sort(starts[key].values), of)) for key in (name, base))
    fewest = min(_independent(starts[key], of) for key in (name, base))
    found = intervals(drawn[name] / drawn[base], fewest)
    return RatioToBase(name, one / other, found, claim(found.get(0.95), error, is_model))


def _words(starts: Samples, errors: Mapping[str, tail.TailError | None], of: int) -> str:
    if not errors:
        return f"nothing is modelled: there are {tail.ENOUGH * of} draws or more of each"
    said = [f"{name} {_told(error, starts[name].count, of)}" for name, error in errors.items()]
    return f"error of the model on draws that it was not fitted to: {'; '.join(said)}"
