"""Reads and appends records: lines of JSON, one for each attempt of a row, never rewritten.

A line is appended with one write and synced, so a process that is killed leaves whole lines,
and at most the last one is cut (a crash of the machine, a full disk). Reading tolerates lines
that are cut and counts them: at the end of the file, or before a note. `append` writes that
note when it finds a cut end, so that the file stays readable without a byte of it changed.
Anything else that is not a record is damage and is refused, and so is a newer schema.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from coracle_lab.errors import LabError

SCHEMA = 1
FACTOR = "environment"
"""The factor whose level is the row's environment."""
NOTE = {"schema": SCHEMA, "note": "the lines before this one that are not whole were cut off"}
"""What `append` writes after a cut line."""


@dataclass(frozen=True)
class Record:
    """One attempt of one row."""

    fields: Mapping[str, Any]

    @property
    def row(self) -> int:
        """The row's number; 0 for a thrown-away first run."""
        return int(self.fields["row"])

    @property
    def block(self) -> int:
        """The row's block; 0 for a thrown-away first run."""
        return int(self.fields["block"])

    @property
    def attempt(self) -> int:
        """1, and one more for each repetition."""
        return int(self.fields["attempt"])

    @property
    def session(self) -> str:
        """The start of the lab that made the record."""
        return str(self.fields["session"])

    @property
    def levels(self) -> Mapping[str, str]:
        """The row's levels by factor."""
        levels: Mapping[str, str] = self.fields["levels"]
        return levels

    @property
    def outcome(self) -> str:
        """One of `ok`, `failed`, `late`, `void`."""
        return str(self.fields["outcome"])

    @property
    def why(self) -> str:
        """Why the outcome is not `ok`; empty if it is."""
        return str(self.fields["why"] or "")

    def value(self, response: str) -> float:
        """Returns a response or a field as a number; NaN if the attempt is not `ok`."""
        if self.outcome != "ok":
            return math.nan
        found = self.fields["responses"].get(response, self.fields.get(response))
        return math.nan if found is None else float(found)

    def sentinel_s(self) -> float:
        """Returns the longer of the two sentinels' times, or NaN if there is none."""
        times = [self.fields[name] for name in ("sentinel_before_s", "sentinel_after_s")]
        return max((float(time) for time in times if time is not None), default=math.nan)


def spent_s(made: Sequence[Record]) -> float:
    """Returns how long the sessions of these records have taken, from first row to last one; those
    of a release that recorded no clock count nothing."""
    sessions: dict[str, list[float]] = {}
    for record in made:
        times = (record.fields.get(f"clock_{end}_s") for end in ("start", "end"))
        sessions.setdefault(record.session, []).extend(time for time in times if time is not None)
    return sum(max(times) - min(times) for times in sessions.values() if times)


@dataclass(frozen=True)
class Read:
    """What a file of records holds, and how many of its lines are cut off."""

    records: tuple[Record, ...]
    cut_lines: int = 0


@cache
def validator() -> Draft202012Validator:
    """Returns the check of one line."""
    path = Path(__file__).with_name("schema") / "record.json"
    return Draft202012Validator(json.loads(path.read_text()))


@cache
def _of(kind: str) -> Draft202012Validator:
    """Returns the check of a line that is known to be a record or a note."""
    schema = validator().schema
    return Draft202012Validator({**schema["$defs"][kind], "$defs": schema["$defs"]})


def problem(line: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with a record, or None."""
    error = next(iter(_of("note" if "note" in line else "record").iter_errors(line)), None)
    if error is None:
        numbers = [line.get("wall_s", 0.0), *line.get("responses", {}).values()]
        finite = all(math.isfinite(number) for number in numbers)
        return None if finite else "a number is not finite"
    place = "/".join(str(step) for step in error.absolute_path)
    return f"{place}: {error.message}" if place else error.message


def append(path: Path, *records: Mapping[str, Any]) -> None:
    """Appends records with one write and syncs them; a cut end of the file gets a note first.

    Raises `LabError` if one of them does not fit the schema (nothing is written then), or if they
    cannot be written: one that was written in part counts as a cut line.
    """
    for record in records:
        wrong = problem(record)
        if wrong is not None:
            raise LabError(f"{path}: a record was not written: {wrong}", status=1)
    lines = [json.dumps(record, sort_keys=True, allow_nan=False) for record in records]
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if _end_is_cut(file):
                lines = ["", json.dumps(NOTE), *lines]
            data = ("\n".join(lines) + "\n").encode()
            begin = os.fstat(file).st_size
            try:
                written = os.write(file, data)
                if written != len(data):
                    # The rest of a short write tells the errno, which is the disk's.
                    os.write(file, data[written:])
            except OSError:
                if len(records) > 1:
                    # Whole lines of it would be taken for all that there was.
                    os.ftruncate(file, begin)
                raise
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise LabError(
            f"{path}: a record cannot be written: {error.strerror}",
            "make room and give the same command again: it goes on with this row",
            status=1,
        ) from error


def _end_is_cut(file: int) -> bool:
    """Tells whether the last line is without its end, or is not JSON."""
    size = os.fstat(file).st_size
    tail = os.pread(file, min(size, 1 << 20), max(0, size - (1 << 20)))
    if not tail:
        return False
    if not tail.endswith(b"\n"):
        return True
    return _parse(tail[:-1].rpartition(b"\n")[2]) is None


def _parse(line: bytes) -> dict[str, Any] | None:
    """Returns the object that a line holds, or None if the line is not whole."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def size(path: Path) -> int:
    """Returns how many bytes a file of records has, which need not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def lines(path: Path, begin: int) -> bytes:
    """Returns the whole lines of a file of records from a byte on, as they are."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            found = file.read()
    except FileNotFoundError:
        return b""
    return found[: found.rfind(b"\n") + 1]


def read(path: Path, design: str | None = None) -> Read:
    """Returns the records of a file, which need not exist.

    With `design` (a digest), records of another design are refused. Raises `LabError` with the
    number of the line.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Read(())
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    records: list[Record] = []
    cut = waiting = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        value = _parse(line)
        if value is None:
            waiting += 1
            continue
        _check(path, number, value, design)
        if "note" in value:
            cut += waiting
            waiting = 0
        elif waiting:
            raise LabError(
                f"{path}, line {number - 1}: this is not a record, and more records follow",
                "the file was damaged; restore it from a copy, or measure into another directory",
            )
        else:
            records.append(Record(value))
    return Read(tuple(records), cut + waiting)


def _check(path: Path, number: int, value: Mapping[str, Any], design: str | None) -> None:
    """Refuses a line of a newer schema, of another design, or with a wrong field."""
    schema = value.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise LabError(
            f"{path}, line {number}: schema {schema}; this coracle-lab reads up to {SCHEMA}",
            "install the coracle-lab that wrote these records, or a newer one",
        )
    wrong = problem(value)
    if wrong is not None:
        raise LabError(f"{path}, line {number}: {wrong}")
    if design is not None and "note" not in value and value["design"] != design:
        raise LabError(
            f"{path}, line {number}: this record is of another design"
            f" ({value['design'][:12]}; the design is {design[:12]})",
            "restore the design file, or name another directory with --records",
        )


def last_attempts(records: Sequence[Record]) -> dict[int, Record]:
    """Returns the attempt of each row that counts: the latest of its block that is whole.

    A repetition that was cut off does not count, or a block would mix rows of a disturbed time with
    rows of a calm one.
    """
    first, last = _by_row(records, later=False), _by_row(records, later=True)
    whole = set(repeated(records))
    return {row: last[row] if record.block in whole else record for row, record in first.items()}


def repeated(records: Sequence[Record]) -> list[int]:
    """Returns the blocks that were measured again, each of their rows."""
    # A row that is void by the design is not measured again.
    once = {(one.block, one.row) for one in records if one.row and one.outcome != "void"}
    again = {(record.block, record.row) for record in records if record.row and record.attempt > 1}
    return sorted({block for block, _ in again} - {block for block, _ in once - again})


def first_attempts(records: Sequence[Record]) -> dict[int, Record]:
    """Returns the first attempt of each row (first runs left out)."""
    return _by_row(records, later=False)


def _by_row(records: Sequence[Record], later: bool) -> dict[int, Record]:
    result: dict[int, Record] = {}
    for record in records:
        kept = result.get(record.row)
        if record.row and (kept is None or (record.attempt > kept.attempt) == later):
            result[record.row] = record
    return result
