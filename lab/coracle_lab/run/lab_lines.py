"""Reads the lines that programs with `lab.h` print: results, and the times of each rank.

A line `lab {json}` holds results: each number is a response of its name. With a series each line
that has the series' key holds the results at one value: `one_way_s` of the line with
`"bytes": 1024` is the response `one_way_s@1024`.

A line `lab-rank {json}` holds the times of one rank. Its clock is the timer's if both run since
the same boot; then what lies before the first instruction and after the work is known too. For
each part the slowest rank counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RESULT, RANK = "lab ", "lab-rank "
PARTS = ("launch_s", "start_s", "work_s", "communication_s", "end_s")
ORDER = ("first_ns", "init_ns", "work_ns", "end_ns")
NS = 1e-9
DIGITS = 7
"""A look at the clock takes longer than a tenth of a microsecond."""


class Wrong(Exception):
    """The output is not that of a right run; the text says why."""


@dataclass(frozen=True)
class Timer:
    """What the timer knows: its boot, and the start and the end of the launch line."""

    boot: str
    start_s: float
    end_s: float


@dataclass
class Told:
    """What the lines say."""

    responses: dict[str, float] = field(default_factory=dict)
    ranks: list[dict[str, float | int | None]] = field(default_factory=list)


def read(lines: Iterable[str], series: str | None, timer: Timer, ranks: int) -> Told:
    """Returns what the lines of an output say. Raises `Wrong`."""
    told = Told()
    times: list[Mapping[str, Any]] = []
    for line in lines:
        if line.startswith(RESULT):
            _add(told.responses, _object(line[len(RESULT) :]), series)
        elif line.startswith(RANK):
            times.append(_object(line[len(RANK) :]))
    if times:
        _add_ranks(told, times, timer, ranks)
    return told


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Wrong(f"a line of the lab is not JSON: {text.strip()[:100]}") from error
    if not isinstance(value, dict):
        raise Wrong(f"a line of the lab holds no names: {text.strip()[:100]}")
    return value


def _numbers(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if not math.isfinite(number):
                raise Wrong(f"the response {name} is {number}")
            yield name, number


def _add(responses: dict[str, float], line: Mapping[str, Any], series: str | None) -> None:
    """Adds the numbers of a line of results."""
    at = ""
    if series is not None and series in line:
        at = f"@{line[series]}"
    for name, value in _numbers(line):
        if at and name == series:
            continue
        if f"{name}{at}" in responses:
            raise Wrong(f"the response {name}{at} is there twice")
        responses[f"{name}{at}"] = value


def _add_ranks(told: Told, times: Sequence[Mapping[str, Any]], timer: Timer, ranks: int) -> None:
    """Adds the parts of each rank, and the responses that are made of them."""
    try:
        seen = sorted(int(one.get("rank", -1)) for one in times)
    except (TypeError, ValueError) as error:
        raise Wrong(f"the number of a rank is none: {error}") from error
    if len(set(seen)) < len(seen):
        raise Wrong(
            f"{len(seen)} processes say that they are rank {seen[0]}: the program's MPI does not"
            " understand its launcher"
        )
    if len(seen) != ranks:
        raise Wrong(f"{len(seen)} of {ranks} ranks have told their times")
    ordered = sorted(times, key=lambda one: int(one["rank"]))
    told.ranks = [_parts(one, timer) for one in ordered]
    for name in PARTS:
        found = [one[name] for one in told.ranks]
        known = [value for value in found if value is not None]
        if len(known) == len(found):
            told.responses.setdefault(name, max(known))
    if len({one.get("boot") for one in times}) == 1:
        first = [int(one["first_ns"]) for one in times]
        told.responses.setdefault("arrival_spread_s", (max(first) - min(first)) * NS)


def _parts(line: Mapping[str, Any], timer: Timer) -> dict[str, float | int | None]:
    """Returns the parts of one rank's time."""
    try:
        rank = int(line["rank"])
        first, init, work, end = (int(line[name]) for name in ORDER)
        communication = int(line.get("communication_ns", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise Wrong(f"a line of a rank has not all of its times: {error}") from error
    if not first <= init <= work <= end or not 0 <= communication <= work - init:
        raise Wrong(f"the times of rank {rank} are not in their order")
    launch = after = None
    if line.get("boot") and line["boot"] == timer.boot:
        launch = round(first * NS - timer.start_s, DIGITS)
        after = round(timer.end_s - work * NS, DIGITS)
        if launch < 0 or after < 0:
            raise Wrong(f"the clock of rank {rank} is not the timer's")
    return {
        "rank": rank,
        "launch_s": launch,
        "start_s": round((init - first) * NS, DIGITS),
        "work_s": round((work - init - communication) * NS, DIGITS),
        "communication_s": round(communication * NS, DIGITS),
        "end_s": after,
    }
