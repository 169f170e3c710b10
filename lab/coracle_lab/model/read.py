"""Reads the inputs of the models from directories of records.

Only rows that are right (`ok`) are taken, the latest attempt of each. A design with further
factors (the kind of a ping-pong, the class of EP) has to be narrowed by `where` until one level
of each is left; the number of ranks and the size of a message are taken care of here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coracle_lab.design.parse import AGAIN
from coracle_lab.errors import LabError
from coracle_lab.model.law import Tables
from coracle_lab.model.messages import Messages
from coracle_lab.model.sample import Sample, sample
from coracle_lab.run import records, store
from coracle_lab.run.launch import FACTOR, cpus_of
from coracle_lab.run.records import Record
from coracle_lab.run.store import Store

RANKS = "ranks"
SIZED = ("sizes", "bytes")
"""Factors that only say which sizes of messages a row measures."""
NATIVE = "native"
OUTSIDE = ("launch_s", "start_s", "end_s")
"""Responses whose sum is what a run takes besides work and communication."""
WALL = "wall_s"
WORK = "work_s"
MESSAGE = re.compile(r"one_way_s@([0-9]+)\Z")
SEVERAL = 1_000_000
"""A block's second value has the number block + SEVERAL, and so on."""


@dataclass(frozen=True)
class Source:
    """A directory of records, and the latest attempt of each of its rows."""

    store: Store
    latest: Mapping[int, Record]

    @property
    def directory(self) -> Path:
        """The directory."""
        return self.store.directory

    def cpus(self) -> int | None:
        """Returns how many processors the rows had, by the last session's facts."""
        pinned = cpus_of(self.store.design.pinning)
        sessions = self.store.sessions()
        if pinned or not sessions:
            return len(pinned) or None
        return len(sessions[-1]["facts"]["process"]["affinity"])

    def machines(self) -> set[str]:
        """Returns the ids of the machines of all sessions."""
        return {str(one["facts"]["machine"]["id"]) for one in self.store.sessions()}


def opened(directory: Path) -> Source:
    """Returns the records of a directory, or raises `LabError`."""
    kept = directory / "design.toml"
    if not kept.exists():
        raise LabError(
            f"{directory}: it holds no design.toml",
            "name a directory that coracle-lab run or try has made",
        )
    its = store.create(directory, store.read_text(kept), str(kept))
    made = records.read(directory / "records.jsonl", its.digest)
    latest = records.last_attempts(made.records)
    if not any(record.outcome == "ok" for record in latest.values()):
        raise LabError(f"{directory}: it has no row that is right", f"coracle-lab run {directory}")
    return Source(its, latest)


def _chosen(source: Source, where: Mapping[str, str]) -> list[Record]:
    """Returns the right rows, in run order, after `where`; one level of each factor is left."""
    found = [one for _, one in sorted(source.latest.items()) if one.outcome == "ok"]
    for factor in source.store.design.factors:
        if factor.name in (FACTOR, RANKS, *SIZED):
            continue
        wanted = where.get(factor.name)
        if wanted is not None and wanted not in factor.levels:
            raise LabError(
                f'{source.directory}: {factor.name} has no level "{wanted}"',
                f"there are: {', '.join(factor.levels)}",
            )
        if wanted is None and len(factor.levels) > 1:
            raise LabError(
                f"{source.directory}: {factor.name} has the levels {', '.join(factor.levels)},"
                " and the model takes one",
                f"--where {factor.name}={factor.levels[0]}",
            )
        found = [one for one in found if wanted in (None, one.levels[factor.name])]
    return found


def _ranks(record: Record) -> int:
    return int(record.levels.get(RANKS, "1"))


def _by_environment(source: Source, rows: Sequence[Record]) -> dict[str, list[Record]]:
    """Returns rows by environment, in the order of the design's levels."""
    factor = source.store.design.factor(FACTOR)
    levels = factor.levels if factor is not None else (NATIVE,)
    found: dict[str, list[Record]] = {level: [] for level in levels}
    for row in rows:
        found[row.levels.get(FACTOR, NATIVE)].append(row)
    return {name: some for name, some in found.items() if some}


def _summed(record: Record, responses: Sequence[str]) -> float:
    return math.fsum(record.value(name) for name in responses)


def _has(rows: Sequence[Record], responses: Sequence[str]) -> bool:
    """Says whether each of the rows has all of the responses."""
    return bool(rows) and all(not math.isnan(_summed(row, responses)) for row in rows)


def _sample(rows: Sequence[Record], responses: Sequence[str], what: str, source: Source) -> Sample:
    """Returns the sum of responses of rows, with the blocks of the rows."""
    values = [_summed(row, responses) for row in rows]
    if any(math.isnan(value) for value in values):
        missing = next(one for one in responses if math.isnan(rows[0].value(one)))
        there = ", ".join([WALL, *sorted(rows[0].fields["responses"])])
        raise LabError(
            f'{source.directory}: {what}: a row has no response "{missing}"', f"there are: {there}"
        )
    if source.store.design.nested is not None:
        # Starts of one launch have much in common; a launch that lacks some is not told apart.
        launches = [row.block for row in rows]
        together = len(rows) // len(set(launches))
        if launches == [block for block in dict.fromkeys(launches) for _ in range(together)]:
            return sample(values, f"{source.directory}: {what}", launches, together)
    seen: dict[int, int] = {}
    blocks = []
    for row in rows:
        before = seen.get(row.block, 0)
        seen[row.block] = before + 1
        blocks.append(row.block + SEVERAL * before)
    return sample(values, f"{source.directory}: {what}", blocks)


@dataclass(frozen=True)
class Taken:
    """An input: its values by environment, and which responses they are the sum of."""

    samples: Mapping[str, Sample]
    responses: tuple[str, ...]


def starts(source: Source, where: Mapping[str, str], response: str | None = None) -> Taken:
    """Returns the starts of one rank: what a run takes besides its work.

    Without `response` that is launch_s + start_s + end_s where the rows have them, else wall_s.
    """
    rows = [row for row in _chosen(source, where) if _ranks(row) == 1]
    if not rows:
        raise LabError(f"{source.directory}: no right row has one rank", "measure ranks = [1]")
    if response is not None:
        responses: tuple[str, ...] = (response,)
    else:
        responses = OUTSIDE if _has(rows, OUTSIDE) else (WALL,)
    return Taken(
        {
            name: _sample(some, responses, f"starts of {name}", source)
            for name, some in _by_environment(source, rows).items()
        },
        responses,
    )


def work(source: Source, where: Mapping[str, str], response: str | None = None) -> Taken:
    """Returns the work of one rank: work_s where the rows have it, else wall_s."""
    rows = [row for row in _chosen(source, where) if _ranks(row) == 1]
    if not rows:
        raise LabError(
            f"{source.directory}: no right row has one rank", "measure ranks = [1, 2, ...]"
        )
    own = response or (WORK if _has(rows, (WORK,)) else WALL)
    return Taken(
        {
            name: _sample(some, (own,), f"work of {name}", source)
            for name, some in _by_environment(source, rows).items()
        },
        (own,),
    )


def outside(source: Source, where: Mapping[str, str]) -> Taken | None:
    """Returns what the one-rank run took besides its work, or None if the rows do not tell."""
    rows = [row for row in _chosen(source, where) if _ranks(row) == 1]
    return starts(source, where) if _has(rows, OUTSIDE) else None


def makespans(source: Source, where: Mapping[str, str]) -> dict[tuple[str, int], Sample]:
    """Returns wall times by environment and number of ranks."""
    found: dict[tuple[str, int], list[Record]] = {}
    for row in _chosen(source, where):
        key = (row.levels.get(FACTOR, NATIVE), _ranks(row))
        found.setdefault(key, []).append(row)
    return {
        (name, ranks): _sample(rows, (WALL,), f"{name} with {ranks} ranks", source)
        for (name, ranks), rows in found.items()
        if len(rows) > 1
    }


def messages(source: Source, where: Mapping[str, str]) -> Messages:
    """Returns the ping-pong table: one_way_s@SIZE of all sizes that every block has."""
    tables = {
        name: _table(rows) for name, rows in _by_environment(source, _chosen(source, where)).items()
    }
    if not any(block for table in tables.values() for block in table.values()):
        raise LabError(
            f"{source.directory}: no row has a response one_way_s@BYTES",
            "measure the application pingpong, of kind warm or cold",
        )
    sizes = sorted(
        set.intersection(*(set(block) for table in tables.values() for block in table.values()))
    )
    if not sizes:
        raise LabError(
            f"{source.directory}: no size of a message was measured in every block",
            "measure all sizes in each row, or finish the run",
        )
    samples = {
        name: sample(
            [[block[size] for size in sizes] for block in table.values()],
            f"{source.directory}: messages of {name}",
            list(table),
        )
        for name, table in tables.items()
    }
    return Messages(tuple(sizes), samples)


def _table(rows: Sequence[Record]) -> dict[int, dict[int, float]]:
    """Returns the times of one environment by block and size."""
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        block = found.setdefault(row.block, {})
        for name, value in row.fields["responses"].items():
            if (size := MESSAGE.match(name)) is not None:
                block[int(size[1])] = float(value)
    return found


def same_environments(tables: Tables, wanted: Sequence[str]) -> Tables:
    """Returns the inputs for the wanted environments only (if none is, for all).

    The control of A/A is left out where an input lacks it. Raises `LabError` if an input lacks
    a wanted environment.
    """
    parts = tables.parts()
    everywhere = set.intersection(*(set(part) for part in parts.values()))
    for name, part in parts.items():
        for missing in (one for one in wanted if one not in part):
            raise LabError(
                f'{name} were not measured in "{missing}"', f"there are: {', '.join(part)}"
            )
    keep = set(wanted) or {
        name
        for part in parts.values()
        for name in part
        if name in everywhere or not name.endswith(AGAIN)
    }
    narrowed = {
        key: {name: one for name, one in part.items() if name in keep}
        for key, part in parts.items()
    }
    made = None
    if tables.messages is not None:
        made = Messages(tables.messages.sizes, narrowed["messages"])
    return replace(
        tables,
        starts=narrowed["starts"],
        work=narrowed["work"],
        messages=made,
        outside=narrowed.get("outside"),
    )
