"""Gathers everything that the page says of one design: pure, from its store and its records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coracle_lab import stats
from coracle_lab.design import Design
from coracle_lab.errors import LabError
from coracle_lab.facts import machine
from coracle_lab.report import judged, screened
from coracle_lab.report.judged import Judged, environment_of
from coracle_lab.report.screened import Screened
from coracle_lab.run import disturbed, records
from coracle_lab.run.cells import Cell, median, of_cell
from coracle_lab.run.records import FACTOR, Record
from coracle_lab.run.store import Store
from coracle_lab.stats import Mixed, Observation

PARTS = ("launch_s", "start_s", "work_s", "communication_s", "end_s")
"""Responses that the time of a run splits into, in their order."""
CELLS_AT_MOST = 60
"""The mixed model is not fitted to more fixed effects than these: it would take minutes."""


@dataclass(frozen=True)
class Disturbed:
    """What the sentinel's rule found: blocks, how many of them were repeated, changed verdicts."""

    blocks: tuple[int, ...]
    repeated: tuple[int, ...]
    above: float
    changed: tuple[tuple[str, str, str], ...]
    """(response, cell, verdict with first attempts) where the verdict is of another kind."""


@dataclass(frozen=True)
class Analysis:
    """Everything about the records of one design."""

    store: Store
    every: tuple[Record, ...]
    cut_lines: int
    responses: tuple[str, ...]
    judged: tuple[Judged, ...]
    split: tuple[Judged, ...]
    mixed: Mapping[str, Mixed]
    disturbed: Disturbed
    beside: Mapping[str, str]
    failed: tuple[Record, ...]
    left_out: tuple[tuple[str, int, int, str], ...]
    """(environment, rows without a record, all its rows, why)."""
    notes: tuple[str, ...]
    sessions: tuple[Mapping[str, Any], ...]
    cpus: int | None
    screened: tuple[Screened, ...] = ()
    """Of a fraction: the effects of its factors, in place of what is judged."""

    @property
    def design(self) -> Design:
        """The design."""
        return self.store.design

    @property
    def trusted(self) -> bool:
        """Whether the A/A guard trusts every cell."""
        return judged.trusted(self.judged) and screened.trusted(self.screened)

    def environments(self) -> tuple[str, ...]:
        """Returns the environments that were measured, in the design's order."""
        factor = self.design.factor(FACTOR)
        levels = factor.levels if factor is not None else (self.design.base,)
        measured = {environment_of(record.levels) for record in self.every if record.row}
        return tuple(level for level in levels if level in measured)

    def over(self) -> frozenset[str]:
        """Returns the numbers of ranks that are more than the processors."""
        factor = self.design.factor("ranks")
        if factor is None or self.cpus is None:
            return frozenset()
        return frozenset(x for x in factor.levels if x.isdigit() and int(x) > self.cpus)

    def dates(self) -> str:
        """Returns the day of the records, or the first and the last of several."""
        days = sorted({str(record.fields["started"])[:10] for record in self.every})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def analyse(store: Store, wanted: Sequence[str] | None = None) -> Analysis:
    """Reads and judges the records of a store; `wanted` are responses instead of the design's.

    Raises `LabError` where there is nothing to judge, or what is there contradicts itself.
    """
    made = records.read(store.directory / "records.jsonl", store.digest)
    every = made.records
    measured = [record for record in every if record.row]
    if not measured:
        raise LabError(
            f"{store.directory}: it has no records of rows",
            "coracle-lab run makes them" if not made.cut_lines else "all its lines are cut off",
        )
    judged.check_labels(store.rows, every)
    names = judged.responses(wanted or store.design.responses, every)
    _check_responses(store, measured, names, wanted or store.design.responses)
    latest = records.last_attempts(every)
    there = [part for part in PARTS if any(part in one.fields["responses"] for one in measured)]
    effects = screened.judge(store, latest, names) if store.design.screens else []
    if store.design.screens:
        names = there = []
    found = judged.judge(store, latest, names)
    split = judged.gather(store, latest, there)
    sessions = tuple(store.sessions())
    failed = sorted(
        (record for record in latest.values() if record.outcome != "ok"), key=lambda r: r.row
    )
    return Analysis(
        store=store,
        every=every,
        cut_lines=made.cut_lines,
        responses=tuple(
            dict.fromkeys([*(e.response for e in effects), *(f.response for f in found)])
        ),
        judged=tuple(found),
        split=tuple(split),
        mixed=_mixed(store, latest, found),
        disturbed=_disturbed(store, every, found, effects),
        beside={name: text for name, text in judged.differences(store, every).items() if text},
        failed=tuple(failed),
        left_out=_left_out(store, every, latest, sessions),
        notes=_notes(store, latest, sessions),
        sessions=sessions,
        cpus=_cpus(sessions),
        screened=tuple(effects),
    )


def _check_responses(
    store: Store, measured: Sequence[Record], names: Sequence[str], wanted: Sequence[str]
) -> None:
    """Refuses responses that no record has."""
    ok = [record for record in measured if record.outcome == "ok"]
    if not ok:
        return
    there = sorted({name for record in ok for name in record.fields["responses"]})
    missing = [name for name in names if all(math.isnan(record.value(name)) for record in ok)] or (
        [] if names else list(wanted)
    )
    if missing:
        raise LabError(
            f'{store.directory}: no record has the response "{missing[0]}"',
            f"there are wall_s, user_s, system_s, {', '.join(there)}".rstrip(", "),
        )


def _cpus(sessions: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns the fewest processors that a session could use; None if ranks ran elsewhere."""
    counts = [len(one["facts"]["process"]["affinity"]) for one in sessions if not one.get("site")]
    return min(counts) if counts and len(counts) == len(sessions) else None


def _left_out(
    store: Store,
    every: Sequence[Record],
    latest: Mapping[int, Record],
    sessions: Sequence[Mapping[str, Any]],
) -> tuple[tuple[str, int, int, str], ...]:
    """Returns what has rows without records, and why as far as the records know."""
    factor = store.design.factor(FACTOR)
    found = []
    for name in factor.levels if factor is not None else ():
        rows = [row for row in store.rows if environment_of(row.levels) == name]
        missing = [row for row in rows if row.number not in latest]
        if missing and len(missing) == len(rows):
            found.append((name, len(rows), len(rows), _why(name, every, sessions)))
            continue
        begun = {_cell(row.levels) for row in rows if row.number in latest}
        reasons: dict[str, int] = {}
        for row in missing:
            why = None if _cell(row.levels) in begun else _failed_first(row.levels, every)
            if why is None and store.design.precision is None:
                why = "the run has not come so far"
            if why is not None:
                reasons[why] = reasons.get(why, 0) + 1
        found += [(name, count, len(rows), why) for why, count in reasons.items()]
    return tuple(found)


def _cell(levels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns a cell as a key."""
    return tuple(sorted(of_cell(levels).items()))


def _failed_first(levels: Mapping[str, str], every: Sequence[Record]) -> str | None:
    """Returns why the first run failed in the place of a row, if it did.

    The place is an environment with an image, which depends on some of the levels: it is that of
    the first run that has most levels in common with the row.
    """
    nearest, most = None, -1
    for record in every:
        if record.row == 0 and environment_of(record.levels) == environment_of(levels):
            common = sum(1 for k, v in record.levels.items() if levels.get(k) == v)
            if common >= most:
                nearest, most = record, common
    if nearest is None or nearest.outcome == "ok":
        return None
    return f"the program failed in it: {nearest.why}"


def _why(name: str, every: Sequence[Record], sessions: Sequence[Mapping[str, Any]]) -> str:
    """Returns why an environment has no record of a row."""
    for record in reversed(every):
        if record.row == 0 and environment_of(record.levels) == name and record.outcome != "ok":
            return f"the program failed in it: {record.why}"
    versions = [one.get("environments", {}).get(name, "") for one in sessions]
    return "no row of it was run" if any(versions) else "it could not be used there"


def _notes(
    store: Store, latest: Mapping[int, Record], sessions: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Returns what makes the times uncertain, or the design weak."""
    said = list(store.design.notes)
    said += judged.uncertain([record.fields for record in latest.values()])
    for one in sessions:
        said += machine.warnings(one["facts"])
    machines = {one["facts"]["machine"]["id"] for one in sessions}
    if len(machines) > 1:
        said.append(
            f"{len(machines)} machines made these records: they are compared within blocks only"
        )
    return tuple(dict.fromkeys(said))


def _disturbed(
    store: Store,
    every: Sequence[Record],
    found: Sequence[Judged],
    effects: Sequence[Screened],
) -> Disturbed:
    """Returns what the sentinel's rule found, and both analyses where blocks were repeated."""
    above = store.design.sentinel_above
    again = records.repeated(every)
    changed: list[tuple[str, str, str]] = []
    if again:
        names = list(dict.fromkeys(one.response for one in found))
        before = judged.judge(store, records.first_attempts(every), names)
        for old, new in zip(before, found, strict=True):
            changed += [
                (new.response, new.cell.name, text)
                for text in judged.changed(old.compared, new.compared)
            ]
        responses = [one.response for one in effects]
        before_effects = screened.judge(store, records.first_attempts(every), responses)
        changed += screened.changed(before_effects, effects)
    blocks = tuple(sorted(disturbed.disturbed(every, above)))
    return Disturbed(blocks, tuple(again), above, tuple(changed))


def _mixed(
    store: Store, latest: Mapping[int, Record], found: Sequence[Judged]
) -> Mapping[str, Mixed]:
    """Fits the mixed model to each response (a series is one) of a design with blocks."""
    design = store.design
    if design.kind == "completely-randomised" or design.screens:
        return {}
    groups: dict[str, list[Judged]] = {}
    for one in found:
        groups.setdefault(one.response.partition("@")[0], []).append(one)
    return {name: _fitted(store, latest, group) for name, group in groups.items()}


def _fitted(store: Store, latest: Mapping[int, Record], group: Sequence[Judged]) -> Mixed:
    effects = sum(len(one.cell.values) for one in group)
    if effects > CELLS_AT_MOST:
        return Mixed(why=f"not fitted: it would have {effects} means")
    # Starts of one launch have much in common: their median is one observation.
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for one in group:
        series = one.response.partition("@")[2]
        levels = one.cell.levels
        # "4" rather than "ranks 4" where there is nothing else.
        name = next(iter(levels.values())) if len(levels) == 1 and not series else one.cell.name
        place = ", ".join(part for part in (name, series) if part)
        for row in store.rows:
            record = latest.get(row.number)
            if record is None or not _in(row.levels, one.cell):
                continue
            value = record.value(one.response)
            if store.design.application is not None and store.design.application.is_rate(
                one.response
            ):
                value = 1 / value if value else math.nan
            key = environment_of(row.levels), place, record.session, str(row.block)
            values.setdefault(key, []).append(value)
    table = [Observation(median(some), *key) for key, some in values.items()]
    return stats.mixed(table, store.design.base)


def _in(levels: Mapping[str, str], cell: Cell) -> bool:
    return all(levels[name] == level for name, level in cell.levels.items())
