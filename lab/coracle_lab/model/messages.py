"""Takes the time of a message from a measured ping-pong table, piecewise by size.

Between two measured sizes a message costs latency + size / bandwidth with the latency and the
bandwidth of that piece: the straight line through both. So the time is a weighted sum of the two
measured times, and the whole exchange of a program a weighted sum of the table. Sizes outside the
table are refused: protocols change with the size, and a line would not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coracle_lab.errors import LabError
from coracle_lab.model.profile import Plan
from coracle_lab.model.sample import Samples
from coracle_lab.stats.data import Floats


@dataclass(frozen=True)
class Messages:
    """A ping-pong table: seconds one way of each size, a row for each block."""

    sizes: tuple[int, ...]
    times: Samples

    def __post_init__(self) -> None:
        """Checks that there are two sizes or more, in order, and a column for each."""
        if len(self.sizes) < 2:
            raise LabError(
                f"messages: {len(self.sizes)} size was measured, and a line needs two",
                'measure the smallest and the largest message too: sizes = "1,1024,1048576"',
            )
        if list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise LabError(f"messages: the sizes are not in order: {self.sizes}")
        for name, one in self.times.items():
            if one.values.ndim != 2 or one.values.shape[1] != len(self.sizes):
                raise LabError(f"messages of {name}: not one time for each of the sizes")


@dataclass(frozen=True)
class Piece:
    """Between two sizes: the line's value at size 0 (can be negative), and bytes a second."""

    smallest: int
    largest: int
    latency_s: float
    bytes_per_s: float


def pieces(sizes: Sequence[int], times: Floats) -> list[Piece]:
    """Returns latency and bandwidth of each piece; `times` has one value for each size."""
    found = []
    for at in range(len(sizes) - 1):
        rise = float(times[at + 1] - times[at])
        width = sizes[at + 1] - sizes[at]
        bandwidth = width / rise if rise > 0 else float("inf")
        latency = float(times[at]) - sizes[at] * rise / width
        found.append(Piece(sizes[at], sizes[at + 1], latency, bandwidth))
    return found


def shares(sizes: Sequence[int], size: float) -> Floats:
    """Returns the weight of each measured size in the time of a message of `size` bytes."""
    if not sizes[0] <= size <= sizes[-1]:
        raise LabError(
            f"a message of {size:g} bytes is outside the measured sizes, {sizes[0]} to {sizes[-1]}",
            f'measure {size:.0f} bytes too: parameters = {{ sizes = "...,{size:.0f}" }}',
        )
    found = np.zeros(len(sizes))
    after = int(np.searchsorted(sizes, size))
    if sizes[after] == size:
        found[after] = 1.0
        return found
    low, high = sizes[after - 1], sizes[after]
    found[after] = (size - low) / (high - low)
    found[after - 1] = 1 - found[after]
    return found


def exchange(sizes: Sequence[int], profile: Plan, ranks: int) -> Floats:
    """Returns the weights of the measured times in the communication of a run."""
    total = np.zeros(len(sizes))
    for number, size in profile.plan(ranks):
        total += number * shares(sizes, size)
    return total


def interpolation_error(messages: Messages) -> dict[str, float]:
    """Returns, by environment, the largest relative error at a size that is left out; nothing of
    two sizes, between which no other was measured.

    Each inner size is predicted from its neighbours, as a message between two sizes is. The
    distance is twice that of the table, so this is an upper estimate.
    """
    found: dict[str, float] = {}
    for name, one in messages.times.items() if len(messages.sizes) > 2 else ():
        mean = one.values.mean(axis=0)
        worst = 0.0
        for at in range(1, len(messages.sizes) - 1):
            left = [*messages.sizes[:at], *messages.sizes[at + 1 :]]
            guess = float(shares(left, messages.sizes[at]) @ np.delete(mean, at))
            worst = max(worst, abs(guess / float(mean[at]) - 1))
        found[name] = worst
    return found
