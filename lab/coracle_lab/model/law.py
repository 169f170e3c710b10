"""The law: T(p) = launch(p) + work / p + sum over messages (latency + size / bandwidth).

launch(p)   the expected slowest of p starts (`tail`). What a launcher and MPI_Init cost besides
            is taken from the one-rank run, if it tells that, and supposed to be the same for all p
work        the one-rank run's work; if only its wall time is known, less the mean start. In weak
            scaling each rank has all of it: it is not divided by p
messages    the program's profile by the measured ping-pong table (`messages`)

All parts are means of measured values, so T is an expected time. Its uncertainty is that of the
inputs: starts, work and ping-pong are drawn again, independently of each other, with a kept seed.
In simulations (60 starts, 10 runs) the intervals of 95 % hold the truth in 90 to 93 % of cases.
What the law leaves out is not in these intervals: load imbalance, ranks that wait for each other,
memory bandwidth that ranks share, messages that overlap with work, links that messages share,
and the slower start of many at once. The error on measured points (`check`) shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from coracle_lab.errors import LabError
from coracle_lab.model import tail
from coracle_lab.model.check import Error, claim, compared
from coracle_lab.model.messages import Messages, exchange
from coracle_lab.model.profile import Plan
from coracle_lab.model.sample import (
    RESAMPLES,
    SEED,
    Indices,
    Sample,
    Samples,
    generator,
    intervals,
    resampled,
)
from coracle_lab.stats.data import Floats, Interval


@dataclass(frozen=True)
class Tables:
    """The measured inputs of the law.

    `work` is that of one rank. `work_has_start` says that it is a wall time with a start in it.
    `outside` is what the one-rank run took besides its work, a start among it.
    """

    starts: Samples
    work: Samples
    messages: Messages | None = None
    work_has_start: bool = False
    outside: Samples | None = None

    def parts(self) -> dict[str, Samples]:
        """Returns the inputs by name."""
        found: dict[str, Samples] = {"starts": self.starts, "work": self.work}
        if self.messages is not None:
            found["messages"] = self.messages.times
        if self.outside is not None:
            found["outside"] = self.outside
        return found

    def environments(self) -> list[str]:
        """Returns the environments; raises `LabError` if the inputs have different ones."""
        parts = self.parts()
        for name, part in parts.items():
            missing = sorted(set(self.starts) ^ set(part))
            if missing:
                has = {one: sorted(some) for one, some in parts.items()}
                told = "; ".join(f"{one}: {', '.join(some) or 'none'}" for one, some in has.items())
                raise LabError(
                    f"starts and {name} were measured in different environments ({told})",
                    "choose those that all have: --env native --env NAME",
                )
        return list(self.starts)


@dataclass(frozen=True)
class Point:
    """A modelled time, and the three parts that it consists of."""

    environment: str
    ranks: int
    total_s: float
    launch_s: float
    work_s: float
    messages_s: float
    intervals: Mapping[float, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class Effect:
    """A modelled ratio to the base, and what the model may say about it."""

    environment: str
    ranks: int
    ratio: float
    intervals: Mapping[float, Interval]
    words: str


@dataclass(frozen=True)
class Prediction:
    """What the law says."""

    base: str
    profile: Plan
    points: tuple[Point, ...]
    effects: tuple[Effect, ...]
    error: Error
    seed: int
    resamples: int
    notes: tuple[str, ...]


def predict(
    tables: Tables,
    profile: Plan,
    ranks: Sequence[int],
    base: str = "native",
    measured: Mapping[tuple[str, int], Sample] | None = None,
    seed: int = SEED,
    resamples: int = RESAMPLES,
) -> Prediction:
    """Returns the law's times at `ranks`, their ratios to the base, and the law's error.

    `measured` holds times at (environment, ranks) that the law is compared with; points of one
    rank are left out, because the work is fitted to them. They need not be in `ranks`.
    """
    names = tables.environments()
    if base not in names:
        raise LabError(f'"{base}" is in none of the inputs', f"there are: {', '.join(names)}")
    _check(tables, profile, ranks)
    unseen = {key: one for key, one in (measured or {}).items() if key[1] > 1 and key[0] in names}
    asked = sorted(set(ranks) | {p for _, p in unseen})
    drawn = _bootstrap(tables, profile, asked, seed, resamples)
    plain = {name: _plain(tables, profile, asked, name) for name in names}
    modelled = {
        (name, p): float(plain[name][at].sum()) for name in names for at, p in enumerate(asked)
    }
    error = compared(modelled, unseen, base)
    count = min(one.units for part in tables.parts().values() for one in part.values())
    points, effects = [], []
    for name in names:
        for p in sorted(set(ranks)):
            at = asked.index(p)
            points.append(_point(name, p, plain[name][at], intervals(drawn[name][:, at], count)))
            if name != base:
                found = intervals(drawn[name][:, at] / drawn[base][:, at], count)
                ratio = modelled[name, p] / modelled[base, p]
                words = claim(found.get(0.95), error.of_claims(p))
                effects.append(Effect(name, p, ratio, found, words))
    notes = _notes(tables, sorted(set(ranks)), count)
    return Prediction(
        base, profile, tuple(points), tuple(effects), error, seed, resamples, tuple(notes)
    )


def _check(tables: Tables, profile: Plan, ranks: Sequence[int]) -> None:
    """Refuses what no time can be had for."""
    if not ranks:
        raise LabError("no number of ranks is given", "--ranks 2,4,8")
    for p in ranks:
        if p < 1:
            raise LabError(f"{p} ranks: a run has 1 or more", "--ranks 2,4,8")
    if not profile.is_silent and tables.messages is None:
        raise LabError(
            f'the profile "{profile.name}" has messages, and no ping-pong was measured',
            "give its records by --messages DIR; or --profile none, if the ranks exchange nothing",
        )
    for name, one in tables.starts.items():
        tail.check(one.count, max(ranks), f"starts of {name}")
    for name, one in tables.work.items():
        start = float(np.mean(tables.starts[name].values)) if tables.work_has_start else 0.0
        if float(np.mean(one.values)) <= start:
            raise LabError(
                f"work of {name}: one rank takes {np.mean(one.values):.4g} s, and a start alone"
                f" {start:.4g} s",
                "measure a longer run, or starts of the same program",
            )


def _parts(
    tables: Tables, profile: Plan, asked: Sequence[int], name: str, at: Mapping[str, Indices]
) -> Floats:
    """Returns launch, work and messages for each of the resamples (first axis) and ranks."""
    starts = np.sort(tables.starts[name].values[at["starts"]], axis=-1)
    work = tables.work[name].values[at["work"]].mean(axis=-1)
    if tables.work_has_start:
        work = work - starts.mean(axis=-1)
    launch = np.stack([tail.slowest(starts, p) for p in asked], axis=-1)
    if tables.outside is not None:
        outside = tables.outside[name].values[at["outside"]].mean(axis=-1)
        launch = launch + (outside - starts.mean(axis=-1))[..., np.newaxis]
    exchanged = np.zeros_like(launch)
    if tables.messages is not None:
        sizes = tables.messages.sizes
        times = tables.messages.times[name].values[at["messages"]].mean(axis=-2)
        weights = np.stack([exchange(sizes, profile, p) for p in asked], axis=-1)
        exchanged = times @ weights
    among = np.ones(len(asked)) if profile.is_weak else np.asarray(asked, dtype=np.float64)
    shared = work[..., np.newaxis] / among
    return np.stack([launch, shared, exchanged], axis=-1)


def _plain(tables: Tables, profile: Plan, asked: Sequence[int], name: str) -> Floats:
    """Returns launch, work and messages of the inputs as they were measured."""
    all_of = {key: np.arange(part[name].count) for key, part in tables.parts().items()}
    return _parts(tables, profile, asked, name, all_of)


def _bootstrap(
    tables: Tables, profile: Plan, asked: Sequence[int], seed: int, resamples: int
) -> dict[str, Floats]:
    """Returns times by environment: a row for each resample, a column for each of `asked`."""
    # One generator for each input: an input that is added does not change how others are drawn.
    # Work and what is outside it are of the same runs: they are drawn together.
    seeds = {"starts": seed, "work": seed + 1, "messages": seed + 2, "outside": seed + 1}
    streams = {
        key: resampled(generator(seeds[key]), part, resamples)
        for key, part in tables.parts().items()
    }
    found: dict[str, list[Floats]] = {name: [] for name in tables.starts}
    for drawn in zip(*streams.values(), strict=True):
        by_part = dict(zip(streams, drawn, strict=True))
        for name, some in found.items():
            at = {key: indices[name] for key, indices in by_part.items()}
            some.append(_parts(tables, profile, asked, name, at).sum(axis=-1))
    return {name: np.concatenate(some) for name, some in found.items()}


def _point(name: str, ranks: int, parts: Floats, found: Mapping[float, Interval]) -> Point:
    launch, work, messages = (float(part) for part in parts)
    return Point(name, ranks, launch + work + messages, launch, work, messages, found)


def _notes(tables: Tables, ranks: Sequence[int], count: int) -> list[str]:
    """Returns what the reader has to know about the inputs."""
    notes = []
    least = min(one.count for one in tables.starts.values())
    fitted = [p for p in ranks if not tail.by_draws(least, p)]
    if fitted:
        notes.append(
            f"launch at {', '.join(map(str, fitted))} ranks is extrapolated by an exponential"
            f" tail: {least} starts tell the slowest of {max(1, least // tail.ENOUGH)} at most"
        )
    few = [p for p in ranks if tail.by_draws(least, p) and least < tail.ENOUGH * p]
    if few:
        notes.append(
            f"{least} starts are few for {', '.join(map(str, few))} ranks: the upper ends of the"
            " intervals are too low"
        )
    if count < 30:
        level = "99.7 %" if count >= 8 else "95 or 99.7 %"
        notes.append(f"no interval of {level} from {count} values of an input")
    return notes
