"""What the terminal shows for given records, and the exit status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coracle_lab.cli import report
from coracle_lab.design import Row
from coracle_lab.errors import LabError
from coracle_lab.run import records, store

DESIGN = """
seed = 5
replicates = 8
[factors]
environment = ["native", "native-again", "x"]
[application]
command = ["true"]
"""
NONE = report.Ended({}, {}, ())


def made(
    directory: Path, wall: Callable[[Row], float], outcome: Callable[[Row], str] | None = None
) -> store.Store:
    """Returns a store with one record for each row."""
    found = store.create(directory / "r", DESIGN, "d.toml")
    for row in found.rows:
        write(found, row, 1, wall(row), outcome(row) if outcome else "ok")
    return found


def write(found: store.Store, row: Row, attempt: int, wall: float, outcome: str = "ok") -> None:
    fields = {
        "schema": 1,
        "design": found.digest,
        "row": row.number,
        "block": row.block,
        "attempt": attempt,
        "session": "s",
        "levels": dict(row.levels),
        "outcome": outcome,
        "why": None if outcome == "ok" else "exit status 7",
        "exit_status": 0,
        "wall_s": wall,
        "user_s": 0.0,
        "system_s": 0.0,
        "max_rss_bytes": 1,
        "minor_faults": 1,
        "major_faults": 0,
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "output_sha256": "0" * 64,
        "responses": {},
        "sentinel_before_s": 0.05,
        "sentinel_after_s": 0.05,
        "steal_ticks": 0,
        "started": "2026-01-01T00:00:00Z",
        "host": "h",
    }
    records.append(found.directory / "records.jsonl", fields)


def noise(row: Row) -> float:
    """Returns a small number that depends on the row alone."""
    return (row.number * 7919 % 101 - 50) / 50 * 1e-3


def times(**ratios: float) -> Callable[[Row], float]:
    def wall(row: Row) -> float:
        name = row.levels["environment"].replace("-", "_")
        return ratios.get(name, 1.0) + noise(row)

    return wall


def test_a_slower_environment_is_called_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(tmp_path, times(x=1.1))
    assert report.show(found, NONE) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: line for line in said.splitlines()}
    assert "slower by 9." in lines["x"]
    assert "equal within ±1 % (TOST)" in lines["native-again"]
    assert "A/A holds" in said
    assert str(found.directory) in said


def test_a_failing_a_a_is_not_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = made(tmp_path, times(native_again=1.2, x=1.1))
    assert report.show(found, NONE) == 3
    said = capsys.readouterr().out
    assert said.startswith("A/A fails")
    assert "not trusted" in said
    assert "slower by 9." not in said


def test_failed_rows_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = made(tmp_path, times(), lambda row: "failed" if row.number < 9 else "ok")
    assert report.show(found, NONE) == 1
    said = capsys.readouterr().out
    assert "failed: row 1 (" in said
    assert "exit status 7" in said
    assert "... and 3 more rows have failed" in said


def test_what_was_left_out_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = store.create(tmp_path / "r", DESIGN, "d.toml")
    for row in found.rows:
        if row.levels["environment"] != "x":
            write(found, row, 1, times()(row))
    assert report.show(found, report.Ended({}, {"x": "it is not here"}, ())) == 0
    said = capsys.readouterr().out
    assert "left out: x, 8 of its 8 rows: it is not here" in said
    assert report.show(found, report.Ended({"x": "it fails"}, {}, ())) == 1


def test_both_analyses_of_repeated_blocks_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(
        tmp_path,
        lambda row: times(x=1.1, native=9.0 if row.block == 2 else 1.0)(row),
    )
    report.show(found, NONE)
    assert "undecided" in capsys.readouterr().out
    for row in found.rows:
        if row.block == 2:
            write(found, row, 2, times(x=1.1)(row))
    assert report.show(found, NONE) == 0
    said = capsys.readouterr().out
    assert "slower by 9." in said
    (told,) = (line for line in said.splitlines() if line.startswith("repeated blocks: 2;"))
    assert "x: undecided" in told


def test_rows_that_changed_are_refused(tmp_path: Path) -> None:
    found = made(tmp_path, times())
    csv = found.directory / "rows.csv"
    lines = csv.read_text().splitlines()
    csv.write_text("\n".join([lines[0], lines[2], lines[1], *lines[3:]]) + "\n")
    with pytest.raises(LabError, match=r"rows\.csv"):
        store.create(found.directory, DESIGN, "d.toml")


def test_records_without_their_design_are_refused(tmp_path: Path) -> None:
    found = made(tmp_path, times())
    (found.directory / "design.toml").unlink()
    with pytest.raises(LabError, match="not their design"):
        store.create(found.directory, DESIGN, "d.toml")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"frequency_mhz": 1200.0}, "1200 to 3000 MHz"),
        ({"throttled_s": 0.5}, "1 rows were stopped"),
        ({"clock_step_s": -3600.0}, "clock was set during 1 rows"),
    ],
)
def test_what_happens_to_the_machine_is_told(fields: dict[str, float], said: str) -> None:
    quiet = {"frequency_mhz": 3000.0, "throttled_s": 0.0, "clock_step_s": 1e-6}
    assert report.uncertain([quiet, quiet]) == []
    (told,) = report.uncertain([quiet, {**quiet, **fields}])
    assert said in told


def test_a_cut_line_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = made(tmp_path, times())
    with (found.directory / "records.jsonl").open("a") as file:
        file.write('{"schema": 1, "des')
    report.show(found, NONE)
    assert "1 cut lines of the records were ignored" in capsys.readouterr().err
