"""Many comparisons with one base: Holm's correction, and Dunnett's test where no blocks are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from coracle_lab.errors import LabError
from coracle_lab.stats.data import LEVELS, Floats, Interval, Refused, Values, positive, spread


def holm(p: Sequence[float]) -> list[float]:
    """Returns the p values adjusted by Holm (1979), in the order given."""
    order = sorted(range(len(p)), key=lambda at: p[at])
    adjusted = [0.0] * len(p)
    largest = 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[at]))
        adjusted[at] = largest
    return adjusted


@dataclass(frozen=True)
class Dunnett:
    """Dunnett's comparison of one environment with the base, on logs; `ratio` has joint intervals.

    `notes` say why one is missing.
    """

    environment: str
    p: float | None
    ratio: tuple[Interval, ...]
    notes: tuple[str, ...]


def dunnett(values: Values, base: str, seed: int = 1) -> list[Dunnett]:
    """Compares every environment with the base by Dunnett's test (1955): one spread for all.

    For designs without blocks. At 99.7 % SciPy's search for the interval often does not converge,
    and what it then returns can be wide by factors: that interval is left out, with a note.
    """
    if base not in values:
        raise LabError(f'there are no values of "{base}"', f"there are {sorted(values)}")
    logs: dict[str, Floats] = {}
    refused: dict[str, str] = {}
    for name in values:
        try:
            logs[name] = _logs(values, name)
        except Refused as why:
            refused[name] = str(why)
    if base in refused:
        return [Dunnett(n, None, (), (refused[base],)) for n in values if n != base]
    names = [name for name in logs if name != base]
    found = _dunnett([logs[name] for name in names], logs[base], seed) if names else []
    by_name = {n: Dunnett(n, *rest) for n, rest in zip(names, found, strict=True)}
    return [
        by_name.get(name, Dunnett(name, None, (), (refused.get(name, ""),)))
        for name in values
        if name != base
    ]


def _logs(values: Values, name: str) -> Floats:
    array = positive(values[name], name)
    array = array[~np.isnan(array)]
    if array.size < 2:
        raise Refused(f"{name} has {'one value' if array.size else 'no value'}")
    spread(array, name)
    return np.log(array)


def _dunnett(
    samples: list[Floats], control: Floats, seed: int
) -> list[tuple[float, tuple[Interval, ...], tuple[str, ...]]]:
    """Runs SciPy's Dunnett; returns p, intervals of the ratio and notes for each sample."""
    result = stats.dunnett(
        *samples, control=control, rng=np.random.Generator(np.random.PCG64(seed))
    )
    intervals: list[list[Interval]] = [[] for _ in samples]
    notes: list[str] = []
    for level in LEVELS:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            limits = result.confidence_interval(level)
        if told:
            notes.append(
                f"Dunnett's interval of {level * 100:g} % did not converge, and is left out: take"
                " Holm, or more values"
            )
            continue
        ends = zip(np.atleast_1d(limits.low), np.atleast_1d(limits.high), strict=True)
        for at, (low, high) in enumerate(ends):
            intervals[at].append(Interval(level, float(np.exp(low)), float(np.exp(high))))
    return [
        (float(p), tuple(found), tuple(notes))
        for p, found in zip(np.atleast_1d(result.pvalue), intervals, strict=True)
    ]
