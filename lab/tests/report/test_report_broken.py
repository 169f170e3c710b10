"""Broken inputs are told, and nothing is made of them that is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lab_made as made
import pytest
from test_report_page import text

from coracle_lab.cli import main
from coracle_lab.design import Row
from coracle_lab.run.store import Store

pytestmark = pytest.mark.long

Change = Callable[[list[dict[str, Any]]], None]


def rewritten(path: Path, change: Change) -> None:
    """Changes the lines of a file of records, as nothing of the lab would."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def said(
    directory: Path, capsys: pytest.CaptureFixture[str], command: str = "report"
) -> tuple[int, str]:
    """Returns the exit status, and what standard error says."""
    words = (
        [command, str(directory)]
        if command == "report"
        else [command, "--csv", "-", str(directory)]
    )
    status = main(words)
    return status, capsys.readouterr().err


def _another_design(lines: list[dict[str, Any]]) -> None:
    lines[3]["design"] = "f" * 64


def _swapped(lines: list[dict[str, Any]]) -> None:
    other = next(one for one in lines if one["levels"] != lines[0]["levels"])
    lines[0]["levels"], other["levels"] = other["levels"], lines[0]["levels"]


def _stale(lines: list[dict[str, Any]]) -> None:
    lines[0]["row"] = 1000


def _newer(lines: list[dict[str, Any]]) -> None:
    lines[5]["schema"] = 2


def _not_finite(lines: list[dict[str, Any]]) -> None:
    lines[5]["wall_s"] = float("nan")


def _wrong_hash(lines: list[dict[str, Any]]) -> None:
    lines[5]["output_sha256"] = "no hash"


@pytest.mark.parametrize("command", ["report", "export"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_another_design, "line 4: this record is of another design"),
        (_swapped, "the record of row 1 is labelled environment"),
        (_stale, "there is a record of row 1000, but the design has 60 rows"),
        (_newer, "line 6: schema 2; this coracle-lab reads up to 1"),
        (_not_finite, "line 6: a number is not finite"),
        (_wrong_hash, "line 6: output_sha256"),
    ],
)
def test_changed_records_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, change: Change, words: str
) -> None:
    made.make(tmp_path / "r", made.design())
    rewritten(tmp_path / "r/records.jsonl", change)
    status, error = said(tmp_path / "r", capsys, command)
    assert status == 2
    assert words in error
    assert not (tmp_path / "r/report/index.html").exists()


def test_changed_rows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.make(tmp_path / "r", made.design())
    path = tmp_path / "r/rows.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[2], lines[1], *lines[3:]]) + "\n")
    status, error = said(tmp_path / "r", capsys)
    assert status == 2
    assert "rows.csv" in error


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("design.toml", "it holds no records"),
        ("rows.csv", "it holds no rows.csv"),
        ("records.jsonl", "it holds no records.jsonl"),
    ],
)
def test_a_file_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str, words: str
) -> None:
    made.make(tmp_path / "r", made.design())
    (tmp_path / "r" / missing).unlink()
    status, error = said(tmp_path / "r", capsys)
    assert status == 2
    assert words in error


def test_no_records_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.make(tmp_path / "r", made.design())
    (tmp_path / "r/records.jsonl").write_text("")
    assert said(tmp_path / "r", capsys)[0] == 0
    assert "not made: it has no records of rows" in text(tmp_path / "r/report")
    assert said(tmp_path / "r", capsys, "export")[0] == 1
    assert said(tmp_path / "none", capsys)[0] == 2
    assert main(["report"]) == 2
    assert "no records are named" in capsys.readouterr().err


def test_cut_lines_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.make(tmp_path / "r", made.design())
    with (tmp_path / "r/records.jsonl").open("a") as file:
        file.write('{"schema": 1, "des')
    assert said(tmp_path / "r", capsys)[0] == 0
    assert "1 cut lines of the records were ignored" in text(tmp_path / "r/report")
    assert "1 cut lines are ignored" in said(tmp_path / "r", capsys, "export")[1]


def test_a_damaged_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.make(tmp_path / "r", made.design())
    path = tmp_path / "r/records.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], lines[4][:50], *lines[5:]]) + "\n")
    status, error = said(tmp_path / "r", capsys)
    assert status == 2
    assert "line 5: this is not a record, and more records follow" in error


def test_one_replicate_gives_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = made.design().replace("replicates = 12", "replicates = 1")
    made.make(tmp_path / "r", one)
    assert said(tmp_path / "r", capsys)[0] == 3
    page = text(tmp_path / "r/report")
    assert "no verdict: one block has both docker and native" in page
    assert "A/A could not be judged" in page
    assert "TOST)" not in page.partition("Methods")[0].replace("p (TOST)", "")


def test_equal_values_give_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.make(tmp_path / "r", made.design(), made.plain(dict.fromkeys(made.RATIOS, 1.0), 0.0))
    assert said(tmp_path / "r", capsys)[0] == 3
    page = text(tmp_path / "r/report")
    assert "no verdict: all 12 values of docker are equal" in page
    assert "Mixed model of wall_s: all values of each cell are equal." in page


def test_every_row_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        yield made.line(found, row, 1.0, **made.failed("the result is wrong"))

    made.make(tmp_path / "r", made.design(), maker)
    assert said(tmp_path / "r", capsys)[0] == 3
    page = text(tmp_path / "r/report")
    assert "No run has succeeded: there is nothing to draw." in page
    assert "the result is wrong" in page
    assert "40 more rows have failed: see the records" in page


def test_zero_is_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        for one in made.plain()(found, row):
            yield {**one, "wall_s": 0.0 if row.number == 4 else one["wall_s"]}

    made.make(tmp_path / "r", made.design(), maker)
    assert said(tmp_path / "r", capsys)[0] in (0, 3)
    assert re.search(r"no verdict: \S+ has the value 0 in block 1", text(tmp_path / "r/report"))


def test_a_response_that_no_record_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = 'command = ["x"]\nresponses = {gflops = "(x)"}'
    made.make(tmp_path / "r", made.design(more='responses = ["gflops"]', application=words))
    status, error = said(tmp_path / "r", capsys)
    assert status == 2
    assert 'no record has the response "gflops"' in error


def test_a_design_without_a_a_is_not_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make(tmp_path / "r", made.design(environments=("native", "docker")))
    assert said(tmp_path / "r", capsys)[0] == 3
    assert "no A/A: the design does not measure its base twice" in text(tmp_path / "r/report")


def test_a_design_that_changed_since_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make(tmp_path / "d-records", made.design())
    (tmp_path / "d.toml").write_text(made.design().replace("seed = 5", "seed = 6"))
    status, error = said(tmp_path / "d.toml", capsys)
    assert status == 0
    assert "has changed since" in error
    (tmp_path / "d.toml").write_text(made.design())
    assert "has changed since" not in said(tmp_path / "d.toml", capsys)[1]


def test_a_page_is_judged_by_the_margin_that_the_design_has_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make(tmp_path / "d-records", made.design())
    (tmp_path / "d.toml").write_text(made.design(more="margin = 0.5"))
    assert said(tmp_path / "d.toml", capsys)[0] == 0
    page = text(tmp_path / "d-records/report")
    assert "equal within ±50 % (TOST)" in page
    assert "margin was 0.01 in the design when it was begun, and is now 0.5" in page
    said(tmp_path / "d-records", capsys)
    assert "equal within ±50 %" not in text(tmp_path / "d-records/report")
