"""What the terminal shows after the last row: tables, A/A, what was left out, what failed."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coracle_lab.cli import effects, table
from coracle_lab.design.parse import AGAIN
from coracle_lab.errors import FAILED, UNTRUSTED, LabError
from coracle_lab.report import judged
from coracle_lab.report.judged import differences, uncertain
from coracle_lab.run import disturbed, records
from coracle_lab.run.cells import cells
from coracle_lab.run.launch import is_in
from coracle_lab.run.records import FACTOR, Record
from coracle_lab.run.store import Store

if TYPE_CHECKING:
    from coracle_lab.stats import Comparison

SHOWN = 5
"""So many failed rows are told one by one."""
RED, PLAIN = "\033[31m", "\033[0m"

__all__ = ["AGAIN", "Ended", "narrow_enough", "show", "uncertain"]


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
        own = [row for row in store.rows if is_in(store.design, row.levels, name)]
        missing = sum(1 for row in own if row.number not in latest)
        print(f"left out: {name}, {missing} of its {len(own)} rows: {why}")
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
    response = store.design.responses[0]
    names = judged.responses([response], every)
    if store.design.screens:
        return effects.show(store, every, names)
    try:
        found = judged.judge(store, latest, names)
        earlier = judged.judge(store, records.first_attempts(every), names)
    except ImportError as error:
        print(f"no table: {error}; install coracle-lab[report] here or where the records go")
        return True
    beside = differences(store, every)
    for at, one in enumerate(found):
        if one.guard is None:
            print(f"no table of {one.cell.name or response}: {store.design.base} was not run in it")
            continue
        _title(one, response, cpus)
        red = (RED, PLAIN) if sys.stdout.isatty() else ("", "")
        if not one.guard.trusted:
            print(f"{red[0]}{one.guard.text}{red[1]}")
        gone = {
            name
            for name in one.cell.values
            if any(
                is_in(store.design, {**one.cell.levels, FACTOR: name}, place) for place in left_out
            )
        }
        look = table.Look(store.design.base, one.response, beside, one.guard.trusted, gone)
        print("\n".join(table.cell(one.cell, one.compared, look)))
        if one.guard.trusted:
            print(one.guard.text)
        print(_repeated(every, earlier[at].compared, one.compared), end="")
    _disturbed(store, every)
    return judged.trusted(found)


def _title(one: judged.Judged, response: str, cpus: int | None) -> None:
    """Prints which cell follows, if there are several."""
    ranks = one.cell.levels.get("ranks", "")
    over = cpus is not None and ranks.isdigit() and int(ranks) > cpus
    parts = [one.response if one.response != response else "", one.cell.name]
    text = ", ".join(part for part in parts if part)
    if one.cell.rate:
        text = f"{text or response} (larger is better; ratios are of its inverse)"
    if text:
        print(text + (" (oversubscribed)" if over else ""))


def _disturbed(store: Store, every: Sequence[Record]) -> None:
    """Prints how many blocks the sentinel's rule found, if not all of them were repeated."""
    above = store.design.sentinel_above
    found, again = disturbed.disturbed(every, above), records.repeated(every)
    if len(found) > len(again):
        print(
            f"disturbed blocks: {len(found)} (sentinel more than {above * 100:g} % above its"
            f" session's lower quartile), of which {len(again)} were repeated"
        )


def _repeated(
    every: Sequence[Record], before: Sequence[Comparison], after: Sequence[Comparison]
) -> str:
    """Returns what the sentinel's rule did to the verdicts: both analyses are told."""
    again = records.repeated(every)
    if not again:
        return ""
    other = judged.changed(before, after)
    words = "; ".join(other) if other else "each verdict is of the same kind"
    return f"repeated blocks: {', '.join(map(str, again))}; with their first attempts: {words}\n"


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
    hours = precision.hours_at_most
    if hours is not None and records.spent_s(made) > hours * 3600:
        return True
    latest = records.last_attempts(made)
    names = judged.responses(store.design.responses[:1], made)
    every = [
        cell
        for name in names
        for cell in cells(store.design, store.rows, latest, name)
        if store.design.base in cell.values
    ]
    for cell in every:
        for one in stats.compare(cell.values, store.design.base, store.design.margin, cell.paired):
            if all(math.isnan(value) for value in cell.values[one.environment]):
                continue
            interval = one.interval(precision.level)
            if one.ratio is None or interval is None:
                return False
            if (interval.high - interval.low) / 2 / one.ratio > precision.half_width:
                return False
    return bool(every)
