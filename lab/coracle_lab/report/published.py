"""The paper's printed numbers, each beside what was measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coracle_lab.report import numbers
from coracle_lab.report.judged import Judged
from coracle_lab.report.tables import Shown, Table
from coracle_lab.run.records import FACTOR

ROLES: Mapping[str, Sequence[str]] = {
    "singularity": ("singularity", "apptainer", "apptainer-sid"),
    "docker": ("docker", "podman"),
}
"""What stands for a paper's program where it was measured: itself, else what has its role. Ours is
always named, so a reader sees which it was."""


def table(rows: Sequence[Mapping[str, Any]], judged: Sequence[Judged], shown: Shown) -> Table:
    """Returns the published rows with ours beside: the same environment, and Coracle."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = []
    for row in rows:
        cells = _cells(row, judged)
        lines.append((
            *(_text(row.get(key)) for key in keys),
            _ours(cells, _same(cells, str(row[FACTOR])) if FACTOR in row else [], shown),
            _ours(cells, _coracle(cells), shown),
        ))  # fmt: skip
    head = (*(key.replace("_", " ") for key in keys), "the same or its role here", "Coracle here")
    return Table("Published numbers beside ours (ratio to the base, 95 %)",
                 head, tuple(lines), len(head))  # fmt: skip


def _text(value: Any) -> str:
    if value is None:
        return numbers.NONE
    return numbers.signed(f"{value:g}") if isinstance(value, float) else str(value)


def _cells(row: Mapping[str, Any], judged: Sequence[Judged]) -> list[Judged]:
    """Returns the cells that a published row speaks of: those whose levels it names."""
    return [
        one
        for one in judged
        if all(str(row[key]) == level for key, level in one.cell.levels.items() if key in row)
        and ("response" not in row or one.response.partition("@")[0] == row["response"])
        and ("key" not in row or one.response.partition("@")[2] == str(row["key"]))
    ]


def _same(cells: Sequence[Judged], name: str) -> list[str]:
    """Returns our environment to compare a paper's program with: the first of its role."""
    there = {one for cell in cells for one in cell.cell.values}
    for one in ROLES.get(name, (name,)):
        if one in there:
            return [one]
    return [name]


def _coracle(cells: Sequence[Judged]) -> list[str]:
    names = dict.fromkeys(name for one in cells for name in one.cell.values)
    return [name for name in names if "coracle" in name.split(":")]


def _ours(cells: Sequence[Judged], names: Sequence[str], shown: Shown) -> str:
    """Returns the ratios of environments in cells; the levels where several cells match."""
    parts = []
    for one in cells:
        for name in names:
            found = one.of(name)
            if name == shown.base and name in one.cell.values:
                parts.append("1 (the base)")
            elif found is not None and found.ratio is not None:
                where = f" at {one.cell.name}" if len(cells) > 1 and one.cell.name else ""
                what = f" {one.response}" if len({c.response for c in cells}) > 1 else ""
                span = numbers.span(found.ratio_intervals, 0.95)
                parts.append(f"{name}{what}{where}: {numbers.ratio(found.ratio)} ({span})")
    if len(parts) > 6:
        parts = [*parts[:6], f"and {len(parts) - 6} more"]
    return "; ".join(parts) or "not measured"
