"""Knows the messages of the lab's own kernels, from their sources.

Each function returns (number, bytes) of the messages that the rank with the most of them sends in
a whole run. The wave kernel prints both itself, so this can be compared with a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coracle_lab.errors import LabError
from coracle_lab.model.profile import SILENT, Plan

Parameters = Mapping[str, str]
Messages = list[tuple[float, float]]
WAVE_FIELDS = (3, 6)
"""Fields that the wave exchanges after each half step: velocities, then stresses."""
WAVE_PLANES = 2


@dataclass(frozen=True)
class Kernel:
    """The profile of a kernel with given parameters."""

    name: str
    pattern: Callable[[Parameters, int], Messages]
    parameters: Parameters
    is_weak: bool = False

    @property
    def is_silent(self) -> bool:
        """A kernel that is known communicates."""
        return False

    def plan(self, ranks: int) -> Messages:
        """Returns (number, bytes) of the messages of a run with so many ranks."""
        return self.pattern(self.parameters, ranks) if ranks > 1 else []


def _whole(parameters: Parameters, name: str) -> int:
    text = parameters.get(name, "")
    if not text.isdigit() or int(text) < 1:
        raise LabError(
            f'the messages depend on "{name}", which is "{text}" here',
            "give one level of it by --where, or a profile by --profile FILE",
        )
    return int(text)


def _ep(_: Parameters, ranks: int) -> Messages:
    """Two reductions to rank 0: two sums, and a count."""
    deep = math.ceil(math.log2(ranks))
    return [(deep, 16.0), (deep, 8.0)]


def shares(ranks: int) -> tuple[int, int]:
    """Returns how a grid of two dimensions is shared out, as MPI_Dims_create does it."""
    short = next(part for part in range(math.isqrt(ranks), 0, -1) if ranks % part == 0)
    return ranks // short, short


def _wave(parameters: Parameters, ranks: int) -> Messages:
    """Halos of a rank with the most neighbours: two planes of each field, twice a step.

    Each message is told for the largest share: points that do not divide evenly are rounded up.
    """
    if parameters.get("kind", "source") not in ("source", "box"):
        raise LabError("the wave's periodic kinds send messages to themselves", "--profile FILE")
    points, steps = _whole(parameters, "points"), _whole(parameters, "steps")
    parts = shares(ranks)
    found = []
    for axis, other in ((0, 1), (1, 0)):
        neighbours = min(parts[axis] - 1, 2)
        side = math.ceil(points / parts[other])
        for fields in WAVE_FIELDS:
            size = float(fields * WAVE_PLANES * side * points * 8)
            # One exchange more before the first step.
            found.append((float(neighbours * (steps + 1)), size))
    return [(number, size) for number, size in found if number]


def _hopping(parameters: Parameters, ranks: int) -> Messages:
    """Half spinors, 6 complex numbers a site, of both faces in each direction that is shared out.

    All directions are periodic, so each rank has two neighbours in each. The checks before the
    sweeps are left out.
    """
    length, sweeps = _whole(parameters, "lattice"), _whole(parameters, "sweeps")
    directions = sum(parts > 1 for parts in shares(ranks))
    return [(2.0 * directions * sweeps, length**3 * 6 * 16.0)]


KNOWN: Mapping[str, Callable[[Parameters, int], Messages]] = {
    "ep": _ep,
    "hopping": _hopping,
    "wave": _wave,
}
WEAK = {"hopping"}


def known(name: str, parameters: Parameters) -> Plan:
    """Returns the profile of a kernel, or raises `LabError`; `none` is that without messages."""
    if name == "none":
        return SILENT
    if name not in KNOWN:
        raise LabError(
            f'the messages of "{name}" are not known',
            f"give a profile by --profile FILE, a kernel ({', '.join(sorted(KNOWN))}), or none",
        )
    return Kernel(name, KNOWN[name], parameters, name in WEAK)


def parameters_of(
    given: Mapping[str, str], factors: Mapping[str, Sequence[str]], where: Mapping[str, str]
) -> dict[str, str]:
    """Returns an application's parameters, with those that a design makes factors."""
    chosen = dict(given)
    for name, levels in factors.items():
        if name in where or len(levels) == 1:
            chosen[name] = where.get(name, levels[0])
        else:
            chosen.pop(name, None)
    return chosen
