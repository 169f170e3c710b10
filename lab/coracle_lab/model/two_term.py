"""Splits a measured overhead into two terms: work / p + communication * the ping-pong ratio.

From the base's makespans, communication(p) = T(p) - T(1) / p. An environment whose messages take
r times as long should then need its own T(1) / p + communication(p) * r. Nothing of the
environment at p ranks is used, so the difference to its measured overhead is the error of the
model on points that it was not fitted to.

r depends on the size of the messages, which a makespan does not tell: the size is an assumption,
given by the caller. Load imbalance and launch count as communication, and are multiplied with r
although the network does not change them. Ranks on one node do not use the network: there, the
model is wrong by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coracle_lab.errors import LabError
from coracle_lab.model.check import Checked, Error, percent
from coracle_lab.model.sample import (
    RESAMPLES,
    SEED,
    Indices,
    Sample,
    Samples,
    generator,
    intervals,
    resampled,
    sample,
)
from coracle_lab.stats.data import Floats, Interval

Cells = Mapping[int, Mapping[str, Sequence[float]]]
"""Number of ranks, or bytes → environment → times."""


@dataclass(frozen=True)
class Term:
    """The model of one overhead, for one assumed size of message.

    Overheads are fractions of the base's makespan (0.33: a third slower).
    """

    environment: str
    ranks: int
    bytes: int
    work_s: float
    communication_s: float
    message_ratio: float
    modelled: float
    measured: float | None
    intervals: Mapping[float, Interval]
    words: str

    @property
    def error(self) -> float | None:
        """Modelled less measured overhead, or None if it was not measured."""
        return None if self.measured is None else self.modelled - self.measured


@dataclass(frozen=True)
class TwoTerm:
    """The models of all environments, ranks and sizes; the error is that of ratios."""

    base: str
    terms: tuple[Term, ...]
    error: Error
    seed: int
    resamples: int


def split(
    times: Cells,
    messages: Cells,
    sizes: Sequence[int],
    ranks: Sequence[int] | None = None,
    base: str = "native",
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> TwoTerm:
    """Returns the two-term model of every environment that `times` and `messages` have.

    `times` are makespans by number of ranks, one rank among them; `messages` are one-way times
    by size. Units only need to be the same within each.
    """
    made = _cells(times, "makespans")
    table = _cells(messages, "messages")
    for size in sizes:
        if size not in table:
            there = ", ".join(map(str, sorted(table)))
            raise LabError(f"messages of {size} bytes were not measured", f"there are: {there}")
    if 1 not in made:
        raise LabError("there is no makespan of one rank", "measure ranks = [1, ...]")
    asked = sorted(p for p in made if p > 1) if ranks is None else sorted(set(ranks))
    _known(made, asked)
    names = [name for name in made[1] if name != base and all(name in table[s] for s in sizes)]
    if base not in made[1] or not names:
        raise LabError(
            f"makespans of {', '.join(made[1])} and messages of {', '.join(table[sizes[0]])}: no"
            f" environment besides {base} is in both",
            "measure the same environments in both designs",
        )
    terms = []
    for number, name in enumerate(names):
        for p in asked:
            for size in sizes:
                cells = [made[1][base], made[p][base], made[1][name]]
                cells += [table[size][base], table[size][name]]
                drawn = _drawn(cells, p, seed + number, resamples)
                own = made[p].get(name)
                terms.append(_term(name, p, size, cells, drawn, own))
    error = Error(
        ratios=tuple(
            Checked(one.environment, one.ranks, 1 + one.modelled, 1 + one.measured)
            for one in terms
            if one.measured is not None
        )
    )
    return TwoTerm(base, tuple(terms), error, seed, resamples)


def _cells(cells: Cells, what: str) -> dict[int, dict[str, Sample]]:
    return {
        key: {name: sample(values, f"{what} of {name} at {key}") for name, values in some.items()}
        for key, some in cells.items()
    }


def _known(made: Mapping[int, Samples], asked: Sequence[int]) -> None:
    for p in asked:
        if p < 2 or p not in made:
            there = ", ".join(str(one) for one in sorted(made) if one > 1)
            raise LabError(f"there is no makespan of {p} ranks to split", f"there are: {there}")


def _overhead(means: Sequence[Floats], ranks: int) -> Floats:
    """Returns the modelled overhead from the five means."""
    one, many, own, message, own_message = means
    communication = np.maximum(many - one / ranks, 0)
    modelled = own / ranks + communication * own_message / message
    return np.asarray(modelled / many - 1, dtype=np.float64)


def _drawn(cells: Sequence[Sample], ranks: int, seed: int, resamples: int) -> Floats:
    """Returns overheads of resampled values; each cell is drawn on its own."""
    streams = [
        resampled(generator(seed * 1000 + number), {"": one}, resamples)
        for number, one in enumerate(cells)
    ]
    found = []
    for drawn in zip(*streams, strict=True):
        indices: list[Indices] = [one[""] for one in drawn]
        means = [one.values[at].mean(axis=-1) for one, at in zip(cells, indices, strict=True)]
        found.append(_overhead(means, ranks))
    return np.concatenate(found)


def _term(
    name: str, ranks: int, size: int, cells: Sequence[Sample], drawn: Floats, own: Sample | None
) -> Term:
    means = [np.asarray(one.values.mean()) for one in cells]
    one, many, _, message, own_message = (float(mean) for mean in means)
    modelled = float(_overhead(means, ranks))
    measured = None if own is None else float(own.values.mean()) / many - 1
    found = intervals(drawn, min(cell.count for cell in cells))
    return Term(
        environment=name,
        ranks=ranks,
        bytes=size,
        work_s=one / ranks,
        communication_s=max(many - one / ranks, 0.0),
        message_ratio=own_message / message,
        modelled=modelled,
        measured=measured,
        intervals=found,
        words=_words(modelled, measured, found.get(0.95)),
    )


def _words(modelled: float, measured: float | None, found: Interval | None) -> str:
    """Says how far the model is off, or that it cannot tell."""
    if measured is None:
        return "model cannot tell: its error is unknown"
    error = abs(modelled - measured)
    said = f"measured {percent(1 + measured):+.1f} %, model {percent(1 + modelled):+.1f} %"
    if error >= abs(measured) or found is None or found.holds(0.0):
        return f"model cannot tell: {said}"
    return f"{said}: off by {error * 100:.1f} %, less than the effect"
