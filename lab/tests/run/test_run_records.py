"""Records: any prefix of a file is readable, nothing is rewritten, damage is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from coracle_lab.errors import LabError
from coracle_lab.run import records

DESIGN = "d" * 64


def record(row: int = 1, attempt: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "design": DESIGN,
        "row": row,
        "block": (row + 1) // 2,
        "attempt": attempt,
        "session": "s",
        "levels": {"environment": "native"},
        "outcome": "ok",
        "why": None,
        "exit_status": 0,
        "wall_s": 1.5,
        "user_s": 1.0,
        "system_s": 0.1,
        "max_rss_bytes": 4096,
        "minor_faults": 1,
        "major_faults": 0,
        "voluntary_switches": 2,
        "involuntary_switches": 3,
        "output_sha256": "0" * 64,
        "responses": {"rate": 2.0},
        "sentinel_before_s": 0.05,
        "sentinel_after_s": 0.06,
        "steal_ticks": 0,
        "started": "2026-01-01T00:00:00Z",
        "host": "h",
        **fields,
    }


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r"
    for row in (1, 2):
        records.append(path, record(row))
    found = records.read(path, DESIGN)
    assert [one.row for one in found.records] == [1, 2]
    assert found.cut_lines == 0


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert records.read(tmp_path / "r").records == ()


WHOLE = "".join(json.dumps(record(row, levels={"a": "é\n"})) + "\n" for row in (1, 2, 3)).encode()


@given(some.integers(0, len(WHOLE)))
def test_any_prefix_is_readable_and_can_be_gone_on_with(tmp_path_factory: Any, size: int) -> None:
    path = tmp_path_factory.mktemp("r") / "r"
    path.write_bytes(WHOLE[:size])
    before = records.read(path, DESIGN)
    complete = WHOLE[:size].count(b"\n")
    assert len(before.records) in (complete, complete + 1)
    records.append(path, record(9))
    after = records.read(path, DESIGN)
    assert path.read_bytes().startswith(WHOLE[:size])
    assert [one.row for one in after.records] == [*(one.row for one in before.records), 9]


@given(some.lists(some.integers(1, 400), min_size=1, max_size=4))
def test_cut_again_and_again(tmp_path_factory: Any, cuts: list[int]) -> None:
    path = tmp_path_factory.mktemp("r") / "r"
    for row, cut in enumerate(cuts, start=1):
        size = path.stat().st_size if path.exists() else 0
        records.append(path, record(row))
        data = path.read_bytes()
        path.write_bytes(data[: max(size, len(data) - cut)])
    records.append(path, record(99))
    assert records.read(path).records[-1].row == 99


def test_a_damaged_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text(json.dumps(record(1)) + "\n" + '{"schema": 1, "de\n' + json.dumps(record(2)))
    with pytest.raises(LabError, match="line 2: this is not a record"):
        records.read(path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text(json.dumps(record(schema=2, unheard_of=1)) + "\n")
    with pytest.raises(LabError, match="schema 2; this coracle-lab reads up to 1"):
        records.read(path)


def test_another_design_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r"
    records.append(path, record(design="e" * 64))
    with pytest.raises(LabError, match="another design"):
        records.read(path, DESIGN)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "fine"},
        {"row": -1},
        {"attempt": 0},
        {"wall_s": "1"},
        {"wall_s": math.nan},
        {"responses": {"rate": math.inf}},
        {"levels": {"ranks": 1}},
        {"started": "yesterday"},
        {"surprise": 1},
    ],
)
def test_a_wrong_record_is_not_written(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(LabError):
        records.append(tmp_path / "r", record(**wrong))
    assert not (tmp_path / "r").exists()


def test_a_missing_field_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    line = record()
    del line["wall_s"]
    path.write_text(json.dumps(record()) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(LabError, match="line 2: 'wall_s' is a required property"):
        records.read(path)


def test_a_full_disk_is_told() -> None:
    with pytest.raises(LabError, match="No space left on device") as error:
        records.append(Path("/dev/full"), record())
    assert error.value.status == 1
    assert error.value.hint is not None


def test_an_attempt_counts_if_its_block_was_repeated_whole() -> None:
    """Rows 1 and 2 are a block, and so are 3 and 4, whose repetition was cut off."""
    every = [
        records.Record(record(row, attempt, wall_s=float(attempt)))
        for row, attempt in ((0, 1), (3, 1), (4, 1), (1, 1), (2, 1), (3, 2), (1, 2), (2, 2))
    ]
    first, last = records.first_attempts(every), records.last_attempts(every)
    assert {row: one.attempt for row, one in first.items()} == {1: 1, 2: 1, 3: 1, 4: 1}
    assert {row: one.attempt for row, one in last.items()} == {1: 2, 2: 2, 3: 1, 4: 1}
    assert records.repeated(every) == [1]


def test_a_void_row_does_not_keep_a_repetition_from_counting() -> None:
    """It is not measured again."""
    every = [
        records.Record(record(row, attempt, outcome=outcome))
        for row, attempt, outcome in ((1, 1, "ok"), (2, 1, "void"), (1, 2, "ok"))
    ]
    assert records.repeated(every) == [1]
    last = records.last_attempts(every)
    assert (last[1].attempt, last[2].attempt) == (2, 1)


def test_records_of_a_launch_are_there_or_not(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with pytest.raises(LabError):
        records.append(path, record(1), record(2, wall_s="x"))
    assert records.read(path).records == () and records.size(path) == 0
    records.append(path, record(1), record(2))
    begin = records.size(path)
    records.append(path, record(3))
    assert [one.row for one in records.read(path).records] == [1, 2, 3]
    with path.open("ab") as file:
        file.write(b'{"cut')
    assert records.lines(path, begin).count(b"\n") == 1
    assert records.lines(tmp_path / "none", 0) == b""


def test_a_failed_row_has_no_value() -> None:
    fine, failed = records.Record(record()), records.Record(record(outcome="failed", why="x"))
    assert (fine.value("wall_s"), fine.value("rate")) == (1.5, 2.0)
    assert math.isnan(failed.value("wall_s"))
    assert math.isnan(fine.value("unheard_of"))


def test_the_time_spent_is_that_between_first_and_last_row_of_each_session() -> None:
    def record(session: str, start: float, end: float) -> records.Record:
        return records.Record({"session": session, "clock_start_s": start, "clock_end_s": end})

    made = [record("a", 100, 101), record("a", 160, 162), record("b", 5, 8)]
    assert records.spent_s(made) == 62 + 3
    assert records.spent_s([]) == 0
