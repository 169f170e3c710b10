"""Groups of environments in a campaign: `@native`, `@modes`, `@fast`, `@kinds`, `@peers`.

A group stands for those of its members that are usable on this host, which is found out by
starting something in them, once for each. What a group leaves out is kept with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coracle_lab import environments
from coracle_lab.environments import Probe

PREFIX = "@"
GROUPS: Mapping[str, Sequence[str]] = {
    "@native": ("native", "native-again"),
    "@fast": ("coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2"),
    "@kinds": (
        "coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2",
        "bwrap", "apptainer-sid", "udocker:P1",
    ),
    "@modes": (
        "coracle:N1", "coracle:I1", "coracle:I2", "coracle:P1", "coracle:P2", "coracle:F1",
        "coracle:F2", "coracle:R1", "coracle:R2", "coracle:R3", "coracle:S1",
    ),
    "@peers": (
        "bwrap", "podman", "docker", "apptainer", "apptainer-sid", "singularity", "charliecloud",
        "runc", "crun", "proot", "fakechroot", "udocker:P1", "udocker:F3", "udocker:R1",
    ),
}  # fmt: skip
CONTROLS = GROUPS["@native"]
"""These are never left out: without them there is nothing to compare with."""

Ask = Callable[[str], Probe]


@dataclass
class Host:
    """Probes environments of this host, each of them once."""

    files: Sequence[Path] = ()
    told: Callable[[str], None] = lambda name: None
    found: dict[str, Probe] = field(default_factory=dict)

    def probe(self, name: str) -> Probe:
        """Returns whether an environment is usable, as it was when it was first asked."""
        if name not in self.found:
            self.told(name)
            self.found[name] = environments.find(name, self.files).probe()
        return self.found[name]

    def one_rank(self, name: str) -> str | None:
        """Returns why ranks of MPI cannot be in an environment, if they cannot."""
        return environments.find(name, self.files).one_rank


@dataclass(frozen=True)
class Expanded:
    """The levels of the factor, and the members of groups that are left out, with reasons."""

    levels: tuple[str, ...]
    left_out: Mapping[str, str]


def expanded(levels: Iterable[Any], ask: Ask, without: Mapping[str, str]) -> Expanded:
    """Returns levels with each group replaced by its usable members.

    A name that stands alone stays, usable or not: the session says why it leaves it out. Names of
    `without` leave groups for the reason given there.
    """
    kept: dict[str, None] = {}
    left_out: dict[str, str] = {}
    for level in map(str, levels):
        if level not in GROUPS:
            kept[level] = None
            continue
        for name in GROUPS[level]:
            why = "" if name in CONTROLS else without.get(name) or _why(ask(name))
            if why:
                left_out[name] = why
            else:
                kept[name] = None
    return Expanded(tuple(kept), {name: why for name, why in left_out.items() if name not in kept})


def _why(probe: Probe) -> str:
    return "" if probe.usable else probe.why or "it is not usable"


def without_levels(
    entries: Sequence[Mapping[str, Any]], factor: str, levels: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the entries of a `where` without levels that the factor has no more.

    An entry that would name no level of the factor is dropped: it would leave nothing out.
    """
    result = []
    for entry in entries:
        rule = dict(entry["leave_out"])
        if factor in rule:
            given = rule[factor] if isinstance(rule[factor], list) else [rule[factor]]
            named = [name for one in given for name in GROUPS.get(one, (one,))]
            rule[factor] = [name for name in named if name in levels]
            if not rule[factor]:
                continue
        result.append({**entry, "leave_out": rule})
    return result
