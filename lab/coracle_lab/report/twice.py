"""Compares two directories of records of the same application, by ratios to their own bases."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coracle_lab import stats
from coracle_lab.design import Application
from coracle_lab.errors import LabError
from coracle_lab.report import judged
from coracle_lab.report.analysis import Analysis
from coracle_lab.report.judged import Judged
from coracle_lab.stats import Change

ALONE = ("command", "source_sha256", "variables", "parameters", "success")
"""What two applications have to have in common to be the same."""


@dataclass(frozen=True)
class Cell:
    """One cell that both have: its changes, and how the base itself differs.

    `base` is the ratio of the bases' medians, new to old. It is told, and nothing is judged by it.
    """

    name: str
    response: str
    changes: tuple[Change, ...]
    base: float | None


@dataclass(frozen=True)
class Twice:
    """The result; `only` says which environments and cells one side alone has."""

    cells: tuple[Cell, ...]
    only: tuple[str, ...]
    alarms: tuple[str, ...]


def check_same(old: Analysis, new: Analysis) -> None:
    """Refuses two records that are not of the same application, base and direction."""
    one, other = old.design.application, new.design.application
    assert one is not None and other is not None
    for name in ALONE:
        before, after = _of(one, name), _of(other, name)
        if before != after:
            raise LabError(
                f"the two are not of the same application: {name} was {_text(before)} and is"
                f" {_text(after)}",
                "compare records of the same program with the same words",
            )
    for name in set(old.responses) & set(new.responses):
        if one.is_rate(name) != other.is_rate(name):
            raise LabError(
                f"larger values of {name} are better in one of the two, and worse in the other",
                "give both designs the same rates",
            )
    if old.design.base != new.design.base:
        raise LabError(
            f"the bases differ: {old.design.base} and {new.design.base}",
            "ratios to different bases cannot be compared",
        )


def _of(application: Application, name: str) -> object:
    value: object = getattr(application, name, None)
    return dict(value) if isinstance(value, Mapping) else value


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else repr(value)


def compare(old: Analysis, new: Analysis) -> Twice:
    """Compares what both have: cells by response and levels, environments by name."""
    check_same(old, new)
    before = {_key(one): one for one in old.judged}
    after = {_key(one): one for one in new.judged}
    shared = [key for key in after if key in before]
    if not shared:
        raise LabError(
            "the two have no cell in common",
            f"old: {_names(before)}; new: {_names(after)}",
        )
    only = [f"{_say(one)}: old only" for key, one in before.items() if key not in after]
    only += [f"{_say(one)}: new only" for key, one in after.items() if key not in before]
    pairs, places = [], []
    for key in shared:
        was, now = before[key], after[key]
        for name in dict.fromkeys([*was.cell.values, *now.cell.values]):
            one, other = was.of(name), now.of(name)
            if one is not None and other is not None:
                pairs.append((one, other))
                places.append(key)
            elif name not in was.cell.values or name not in now.cell.values:
                only.append(f"{name}: {'old' if name in was.cell.values else 'new'} only")
    found = stats.changes(pairs, new.design.margin)
    cells = tuple(
        Cell(
            after[key].cell.name,
            after[key].response,
            tuple(one for one, at in zip(found, places, strict=True) if at == key),
            _base(before[key], after[key], new.design.base),
        )
        for key in shared
    )
    return Twice(cells, tuple(dict.fromkeys(only)), _alarms(old, new))


Key = tuple[str, tuple[tuple[str, str], ...]]


def _key(one: Judged) -> Key:
    return one.response, tuple(sorted(one.cell.levels.items()))


def _say(one: Judged) -> str:
    return ", ".join(part for part in (one.response, one.cell.name) if part)


def _names(found: Mapping[Key, Judged]) -> str:
    return "; ".join(_say(one) for one in list(found.values())[:5])


def _alarms(old: Analysis, new: Analysis) -> tuple[str, ...]:
    return tuple(
        f"{which}: {one.guard.text}"
        for which, side in (("old", old), ("new", new))
        for one in side.judged
        if one.guard is not None and not one.guard.trusted
    )


def _base(was: Judged, now: Judged, base: str) -> float | None:
    """Returns the ratio of the bases' medians."""
    one, other = (_values(side.runs.get(base, ())) for side in (was, now))
    if not one or not other:
        return None
    middle = statistics.median(one)
    return statistics.median(other) / middle if middle else None


def _values(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]


def trusted(old: Analysis, new: Analysis) -> bool:
    """Tells whether both A/A guards hold."""
    return judged.trusted(old.judged) and judged.trusted(new.judged)
