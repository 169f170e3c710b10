"""Describes the messages that a program exchanges: count and size a step, for p ranks.

A profile is a file (TOML, or JSON of the same form):

    name = "seismic wave, slabs"
    steps = 300
    scaling = "strong"       # default; "weak": each rank has the one-rank run's work
    [[message]]
    count = 2                # one after another, on the rank that sends most
    bytes = 131072
    grows = "line"           # of count with p: constant (default), log2, others, line
    bytes_power = -0.5       # bytes * p^-0.5; default 0
    per = "step"             # or "run": once, not in each step

`grows`: `constant` is count for every p; `log2` is count * ceil(log2 p) (a tree: a reduction);
`others` is count * (p - 1) (all-to-all); `line` is count at two ranks and 2 count beyond (a halo
of slabs: the ends have one neighbour). One rank sends nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coracle_lab.errors import LabError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

GROWS = ("constant", "log2", "others", "line")
PER = ("step", "run")
SCALING = ("strong", "weak")
KEYS = {"name", "steps", "scaling", "message"}
MESSAGE_KEYS = {"count", "bytes", "grows", "bytes_power", "per"}


class Plan(Protocol):
    """What the law needs of a profile."""

    @property
    def name(self) -> str:
        """What the profile is called."""

    @property
    def is_silent(self) -> bool:
        """Tells that no number of ranks exchanges anything."""

    @property
    def is_weak(self) -> bool:
        """Tells that each rank has the one-rank run's work, instead of a share of it."""

    def plan(self, ranks: int) -> list[tuple[float, float]]:
        """Returns (number, bytes) of the messages of a run with so many ranks."""


@dataclass(frozen=True)
class Message:
    """Messages of one size: how many on the busiest rank, and how both change with p."""

    count: float
    bytes: float
    grows: str = "constant"
    bytes_power: float = 0.0
    per: str = "step"

    def number(self, ranks: int, steps: int) -> float:
        """Returns how many there are in the whole run with so many ranks."""
        if ranks < 2:
            return 0.0
        factor = {
            "constant": 1,
            "log2": math.ceil(math.log2(ranks)),
            "others": ranks - 1,
            "line": min(ranks - 1, 2),
        }[self.grows]
        return self.count * factor * (steps if self.per == "step" else 1)

    def size(self, ranks: int) -> float:
        """Returns the bytes of one, at least 1."""
        return max(1.0, float(self.bytes * ranks**self.bytes_power))


@dataclass(frozen=True)
class Profile:
    """All messages of a program."""

    name: str
    steps: int
    messages: tuple[Message, ...]
    is_weak: bool = False

    @property
    def is_silent(self) -> bool:
        """Tells that no number of ranks exchanges anything."""
        return not self.messages

    def plan(self, ranks: int) -> list[tuple[float, float]]:
        """Returns (number, bytes) of the messages of a run with so many ranks."""
        found = [(one.number(ranks, self.steps), one.size(ranks)) for one in self.messages]
        return [(number, size) for number, size in found if number > 0]


SILENT = Profile("no messages", 1, ())
"""The profile of a program whose ranks do not communicate."""


def parse(text: str, name: str) -> Profile:
    """Returns the profile that a file's text holds; `name` is the file's, in errors."""
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        raise LabError(f"{name}: it is neither TOML nor JSON: {error}") from error
    _known(value, KEYS, name)
    steps = _number(value.get("steps", 1), f"{name}: steps")
    if steps < 1 or steps != int(steps):
        raise LabError(f"{name}: steps is {steps:g}, not a whole number of 1 or more")
    messages = value.get("message", [])
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise LabError(f"{name}: message is not a list of tables", "write [[message]]")
    made = tuple(
        _message(one, f"{name}: message {number}") for number, one in enumerate(messages, start=1)
    )
    if not made:
        raise LabError(f"{name}: it has no messages", "write [[message]], or --profile none")
    scaling = _one_of(value.get("scaling", SCALING[0]), SCALING, f"{name}: scaling")
    return Profile(str(value.get("name", name)), int(steps), made, scaling == "weak")


def _message(value: Mapping[str, Any], where: str) -> Message:
    _known(value, MESSAGE_KEYS, where)
    for key in ("count", "bytes"):
        if key not in value:
            raise LabError(f"{where} has no {key}", "count = 2, bytes = 4096")
    count = _number(value["count"], f"{where}: count")
    size = _number(value["bytes"], f"{where}: bytes")
    if count <= 0 or size < 1:
        raise LabError(f"{where}: count {count:g} of {size:g} bytes is no message")
    grows = _one_of(value.get("grows", GROWS[0]), GROWS, f"{where}: grows")
    per = _one_of(value.get("per", PER[0]), PER, f"{where}: per")
    power = _number(value.get("bytes_power", 0), f"{where}: bytes_power")
    return Message(count, size, grows, power, per)


def _known(value: Mapping[str, Any], keys: set[str], where: str) -> None:
    unknown = sorted(set(value) - keys)
    if unknown:
        raise LabError(f'{where}: unknown key "{unknown[0]}"', f"known: {', '.join(sorted(keys))}")


def _one_of(given: Any, allowed: tuple[str, ...], where: str) -> str:
    if given not in allowed:
        raise LabError(f'{where} is "{given}"', f"one of {', '.join(allowed)}")
    return str(given)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise LabError(f"{where} is {value!r}, not a number")
    return float(value)
