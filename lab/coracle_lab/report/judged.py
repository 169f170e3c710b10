"""Judges the records of a design: the same for the terminal's table and for the page.

The statistics are imported where they are needed, because `coracle-lab run` does without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coracle_lab.design import Design, Row
from coracle_lab.design.parse import AGAIN
from coracle_lab.errors import LabError
from coracle_lab.facts import same
from coracle_lab.run.cells import Cell, cells
from coracle_lab.run.records import FACTOR, Record
from coracle_lab.run.store import Store

if TYPE_CHECKING:
    from coracle_lab.stats import Comparison, Guard

AMOUNT = {"slower": "more", "faster": "less"}
"""Words of a verdict on bytes in place of those on times."""
ANY = "@*"
"""`NAME@*` means the whole series NAME."""


@dataclass(frozen=True)
class Judged:
    """One response in one cell: comparisons of all environments with the base.

    `runs` has the single values as they were measured, those of rates too; `cell` has them as
    they are compared: times, or the inverse of rates. Without the base nothing is compared.
    """

    response: str
    cell: Cell
    runs: Mapping[str, Sequence[float]]
    compared: Sequence[Comparison]
    guard: Guard | None

    def of(self, environment: str) -> Comparison | None:
        """Returns the comparison of an environment, if there is one."""
        return next((one for one in self.compared if one.environment == environment), None)


def trusted(every: Iterable[Judged]) -> bool:
    """Tells whether the A/A guard trusts all of them."""
    return all(one.guard is None or one.guard.trusted for one in every)


def judge(store: Store, latest: Mapping[int, Record], responses: Sequence[str]) -> list[Judged]:
    """Compares all environments in all cells; Holm's family is all of these comparisons."""
    found = gather(store, latest, responses)
    return judge_cells([(one.response, one.cell, one.runs) for one in found], store.design)


def gather(store: Store, latest: Mapping[int, Record], responses: Sequence[str]) -> list[Judged]:
    """Returns the values of all cells, not compared."""
    return [
        Judged(response, cell, _runs(store, latest, response, cell), (), None)
        for response in responses
        for cell in sorted(
            cells(store.design, store.rows, latest, response),
            key=lambda cell: _standard(store.design, cell),
        )
    ]


def _standard(design: Design, cell: Cell) -> list[int]:
    """Returns the place of a cell in the order in which the design names its levels."""
    levels = {factor.name: factor.levels for factor in design.factors}
    return [levels[name].index(level) for name, level in cell.levels.items()]


def judge_cells(
    found: Sequence[tuple[str, Cell, Mapping[str, Sequence[float]]]], design: Design
) -> list[Judged]:
    """Compares the environments of cells that are there: (response, cell, runs)."""
    from coracle_lab import stats

    base = design.base
    with_base = [at for at, (_, cell, _) in enumerate(found) if base in cell.values]
    paired = all(found[at][1].paired for at in with_base)
    compared = stats.compare_cells(
        [found[at][1].values for at in with_base],
        base,
        design.margin,
        paired,
        design.seed % (1 << 32),
    )
    by_place = dict(zip(with_base, compared, strict=True))
    result = []
    for at, (response, cell, runs) in enumerate(found):
        own = by_place.get(at)
        if own is not None and is_amount(response):
            own = [replace(found, verdict=_of_amount(found.verdict)) for found in own]
        again = next((one for one in own or () if one.environment == base + AGAIN), None)
        guard = None if own is None else stats.guard(again)
        result.append(Judged(response, cell, runs, tuple(own or ()), guard))
    return result


def is_amount(response: str) -> bool:
    """Tells whether a response is a number of bytes, which is not slow."""
    return response.partition("@")[0].endswith("_bytes")


def _of_amount(verdict: str) -> str:
    kind, space, rest = verdict.partition(" ")
    return AMOUNT.get(kind, kind) + space + rest


def _runs(
    store: Store, latest: Mapping[int, Record], response: str, cell: Cell
) -> Mapping[str, Sequence[float]]:
    """Returns the single values of a cell by environment; those that failed not.

    They are in the order in which they were measured: a block that was repeated comes later.
    """
    found: dict[str, list[tuple[str, int, float]]] = {name: [] for name in cell.values}
    for row in store.rows:
        record = latest.get(row.number)
        if record is None or any(row.levels[name] != level for name, level in cell.levels.items()):
            continue
        value, name = record.value(response), environment_of(row.levels)
        if not math.isnan(value) and name in found:
            found[name].append((str(record.fields["started"]), row.number, value))
    return {name: [value for *_, value in sorted(some)] for name, some in found.items()}


def environment_of(levels: Mapping[str, str]) -> str:
    """Returns the environment of a row's levels."""
    return levels.get(FACTOR, "native")


def responses(wanted: Sequence[str], every: Sequence[Record]) -> list[str]:
    """Returns the responses that names mean: `NAME@*` becomes all that the records have of it,
    in the order of their keys."""
    there = dict.fromkeys(name for record in every for name in record.fields["responses"])
    result: list[str] = []
    for name in wanted:
        if name.endswith(ANY):
            start = name.removesuffix("*")
            result += sorted((one for one in there if one.startswith(start)), key=_by_key)
        else:
            result.append(name)
    return list(dict.fromkeys(result))


def _by_key(response: str) -> tuple[float, str]:
    key = response.partition("@")[2]
    try:
        return float(key), key
    except ValueError:
        return math.inf, key


def check_labels(rows: Sequence[Row], every: Sequence[Record]) -> None:
    """Refuses records whose levels or block are not those of their rows: labels were exchanged."""
    by_number = {row.number: row for row in rows}
    for record in every:
        if record.row == 0:
            continue
        row = by_number.get(record.row)
        if row is None:
            raise LabError(
                f"there is a record of row {record.row}, but the design has {len(rows)} rows",
                "restore rows.csv and records.jsonl from a copy of the same time",
            )
        if dict(record.levels) != dict(row.levels) or record.block != row.block:
            raise LabError(
                f"the record of row {record.row} is labelled {_text(record.levels)} in block"
                f" {record.block}; the row is {_text(row.levels)} in block {row.block}",
                "records are never changed after they are written; restore them from a copy",
            )


def _text(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {level}" for name, level in levels.items())


def changed(before: Sequence[Comparison], after: Sequence[Comparison]) -> list[str]:
    """Returns the verdicts on first attempts that are of another kind than the later ones."""
    return [
        f"{old.environment}: {old.verdict}"
        for old, new in zip(before, after, strict=True)
        if old.verdict.split()[0] != new.verdict.split()[0]
    ]


def uncertain(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what happened to the machine while rows ran, and makes their times uncertain."""
    said = []
    speeds = [row["frequency_mhz"] for row in rows if row.get("frequency_mhz")]
    if speeds and max(speeds) > 1.05 * min(speeds):
        said.append(f"processors ran at {min(speeds):.0f} to {max(speeds):.0f} MHz")
    stopped = sum(1 for row in rows if (row.get("throttled_s") or 0) > 0)
    if stopped:
        said.append(f"{stopped} rows were stopped for a time by the control group's limit")
    stepped = sum(1 for row in rows if abs(row.get("clock_step_s", 0)) > 0.5)
    if stepped:
        said.append(f"the civil clock was set during {stepped} rows; the times are of another one")
    return said


def differences(store: Store, every: Sequence[Record]) -> dict[str, str]:
    """Returns what is beside the verdicts: which environments executed other files than the
    base did, as the first runs saw it."""
    mapped: dict[str, same.Mapped] = {}
    for record in every:
        if record.row == 0 and record.outcome == "ok" and "mapped" in record.fields:
            mapped[environment_of(record.levels)] = record.fields["mapped"]
    base = mapped.get(store.design.base)
    if base is None:
        return {}
    found = {name: same.compare(base, files) for name, files in mapped.items()}
    return {name: likeness.text() for name, likeness in found.items() if likeness is not None}
