"""What the terminal shows after the last row: tables, A/A, what was left out, what failed."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coracle_lab.cli import table
from coracle_lab.cli.values import Cell, cells
from coracle_lab.errors import FAILED, UNTRUSTED, LabError
from coracle_lab.facts import same
from coracle_lab.run import disturbed, records
from coracle_lab.run.launch import FACTOR
from coracle_lab.run.records import Record
from coracle_lab.run.store import Store

if TYPE_CHECKING:
    from coracle_lab.stats import Comparison

AGAIN = "-again"
SHOWN = 5
"""So many failed rows are told one by one."""
RED, PLAIN = "\033[31m", "\033[0m"


@dataclass(frozen=True)
class Ended:
    """What a session leaves to say besides its records."""

    left_out: Mapping[str, str]
    unusable: Mapping[str, str]
    not_run: Sequence[int]
    cpus: int | None = None
    """Processors for the ranks of a row; None if that is a matter of the site."""


def show(store: Store, ended: Ended) -> int:
    """Prints the report; returns the exit status."""
    made = records.read(store.directory / "records.jsonl", store.digest)
    if made.cut_lines:
        print(f"note: {made.cut_lines} cut lines of the records were ignored", file=sys.stderr)
    latest = records.last_attempts(made.records)
    left_out = {**ended.unusable, **ended.left_out}
    trusted = _tables(store, made.records, latest, left_out, ended.cpus)
    for name, why in left_out.items():
        rows = sum(1 for row in store.rows if row.levels.get(FACTOR, "native") == name)
        missing = sum(
            1
            for row in store.rows
            if row.levels.get(FACTOR, "native") == name and row.number not in latest
        )
        print(f"left out: {name}, {missing} of its {rows} rows: {why}")
    for text in uncertain([record.fields for record in latest.values()]):
        print(f"note: {text}")
    failed = [record for record in latest.values() if record.outcome != "ok"]
    _failures(failed)
    if ended.not_run:
        numbers = ", ".join(map(str, ended.not_run))
        print(f"not run: rows {numbers}: their timer was ended twice")
    print(f"records: {store.directory}")
    if failed or ended.left_out or ended.not_run:
        return FAILED
    return 0 if trusted else UNTRUSTED


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


def _failures(failed: Sequence[Record]) -> None:
    """Prints which rows have failed, and why."""
    for record in failed[:SHOWN]:
        levels = ", ".join(record.levels.values())
        print(f"{record.outcome}: row {record.row} ({levels}): {record.why}")
    if len(failed) > SHOWN:
        print(f"... and {len(failed) - SHOWN} more rows have failed")


def _tables(
    store: Store,
    every: Sequence[Record],
    latest: Mapping[int, Record],
    left_out: Mapping[str, str],
    cpus: int | None,
) -> bool:
    """Prints the tables of all cells; returns whether the A/A guard trusts all of them."""
    try:
        from coracle_lab import stats
    except ImportError as error:
        print(f"no table: {error}; install coracle-lab[report] here or where the records go")
        return True
    design = store.design
    response = design.responses[0]
    beside = differences(store, every)
    trusted = True
    for cell in cells(design, store.rows, latest, response):
        if design.base not in cell.values:
            print(f"no table of {cell.name or response}: the design has no {design.base}")
            continue
        if cell.name:
            ranks = cell.levels.get("ranks", "")
            over = cpus is not None and ranks.isdigit() and int(ranks) > cpus
            print(cell.name + (" (oversubscribed)" if over else ""))
        compared = stats.compare(
            cell.values, design.base, design.margin, cell.paired, seed=design.seed % (1 << 32)
        )
        again = next((c for c in compared if c.environment == design.base + AGAIN), None)
        guard = stats.guard(again)
        red = (RED, PLAIN) if sys.stdout.isatty() else ("", "")
        if not guard.trusted:
            print(f"{red[0]}{guard.text}{red[1]}")
        look = table.Look(design.base, response, beside, guard.trusted, set(left_out))
        print("\n".join(table.cell(cell, compared, look)))
        if guard.trusted:
            print(guard.text)
        print(_repeated(store, every, cell, compared, response), end="")
        trusted = trusted and guard.trusted
    _disturbed(store, every)
    return trusted


def repeated(every: Sequence[Record]) -> list[int]:
    """Returns the blocks that have a second attempt."""
    return sorted({record.block for record in every if record.attempt > 1 and record.block})


def _disturbed(store: Store, every: Sequence[Record]) -> None:
    """Prints how many blocks the sentinel's rule found, if not all of them were repeated."""
    above = store.design.sentinel_above
    found, again = disturbed.disturbed(every, above), repeated(every)
    if len(found) > len(again):
        print(
            f"disturbed blocks: {len(found)} (sentinel more than {above * 100:g} % above its"
            f" session's lower quartile), of which {len(again)} were repeated"
        )


def _repeated(
    store: Store,
    every: Sequence[Record],
    cell: Cell,
    compared: Sequence[Comparison],
    response: str,
) -> str:
    """Returns what the sentinel's rule did to the verdicts: both analyses are told."""
    from coracle_lab import stats

    again = repeated(every)
    if not again:
        return ""
    first = records.first_attempts(every)
    before = next(
        one for one in cells(store.design, store.rows, first, response) if one.levels == cell.levels
    )
    others = stats.compare(
        before.values,
        store.design.base,
        store.design.margin,
        cell.paired,
        seed=store.design.seed % (1 << 32),
    )
    changed = [
        f"{old.environment}: {old.verdict}"
        for old, new in zip(others, compared, strict=True)
        if old.verdict.split()[0] != new.verdict.split()[0]
    ]
    blocks = ", ".join(map(str, again))
    words = "; ".join(changed) if changed else "each verdict is of the same kind"
    return f"repeated blocks: {blocks}; with their first attempts: {words}\n"


def differences(store: Store, every: Sequence[Record]) -> dict[str, str]:
    """Returns what is beside the verdicts: which environments executed other files than the
    base did, as the first runs saw it."""
    mapped: dict[str, same.Mapped] = {}
    for record in every:
        if record.row == 0 and record.outcome == "ok" and "mapped" in record.fields:
            mapped[record.levels.get(FACTOR, "native")] = record.fields["mapped"]
    base = mapped.get(store.design.base)
    if base is None:
        return {}
    found = {name: same.compare(base, files) for name, files in mapped.items()}
    return {name: likeness.text() for name, likeness in found.items() if likeness is not None}


def narrow_enough(store: Store, made: Sequence[Record]) -> bool:
    """Tells whether the design's precision is reached in every cell."""
    try:
        from coracle_lab import stats
    except ImportError as error:
        raise LabError(
            f"a precision to reach needs the statistics: {error}", "install coracle-lab[report]"
        ) from error
    precision = store.design.precision
    assert precision is not None
    spent = sum(record.fields["wall_s"] for record in made)
    if precision.hours_at_most is not None and spent > precision.hours_at_most * 3600:
        return True
    latest = records.last_attempts(made)
    for cell in cells(store.design, store.rows, latest, store.design.responses[0]):
        for one in stats.compare(cell.values, store.design.base, store.design.margin, cell.paired):
            if all(math.isnan(value) for value in cell.values[one.environment]):
                continue
            interval = one.interval(precision.level)
            if one.ratio is None or interval is None:
                return False
            if (interval.high - interval.low) / 2 / one.ratio > precision.half_width:
                return False
    return True
