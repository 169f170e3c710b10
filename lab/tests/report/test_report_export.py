"""Records as one flat table: nothing is left out, and nothing is invented."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from pathlib import Path

import lab_made as made
import pytest

from coracle_lab.cli import main

pytestmark = pytest.mark.long


def test_csv_has_one_line_for_each_attempt(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.csv"
    assert main(["export", "--csv", str(path), str(example / "ep"), str(example / "hpl")]) == 0
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    counts = [(example / one / "records.jsonl").read_text().count("\n") for one in ("ep", "hpl")]
    assert len(lines) == sum(counts)
    assert f"{sum(counts)} attempts" in capsys.readouterr().out
    first, last = lines[0], lines[-1]
    assert first["directory"] == str(example / "ep")
    assert set(first["ranks"]) <= set("124") and last["ranks"] == ""
    assert first["gflops"] == "" and float(last["gflops"]) > 5
    bad = next(line for line in lines if line["outcome"] == "failed")
    assert bad["why"] == "exit status 7"
    assert {line["attempt"] for line in lines} == {"1", "2"}


def test_a_directory_of_directories_is_all_of_them(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--csv", "-", str(example)]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {Path(line["directory"]).name for line in lines} == {"ep", "hpl", "pingpong", "starts"}


def test_json_keeps_what_a_table_cannot(tmp_path: Path) -> None:
    text = made.design().replace("replicates = 12", "replicates = 1")
    found = made.make(tmp_path / "r", text)
    mapped = [{"path": "/bin/x", "sha256": None, "program": True}]
    first = {**made.line(found, found.rows[0], 1.0), "row": 0, "block": 0, "mapped": mapped}
    made.records.append(tmp_path / "r/records.jsonl", first)
    assert main(["export", "--json", str(tmp_path / "x.json"), str(tmp_path / "r")]) == 0
    lines = json.loads((tmp_path / "x.json").read_text())
    assert [line["mapped"] for line in lines if "mapped" in line] == [mapped]
    assert lines[0]["environment"] == found.rows[0].levels["environment"]


def test_a_factor_with_the_name_of_a_field_keeps_its_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make(tmp_path / "r", made.design(factors='user_s = ["a"]'))
    assert main(["export", "--csv", "-", str(tmp_path / "r")]) == 0
    line = next(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (line["user_s"], line["response_user_s"]) == ("a", "0.0")


def test_parquet_needs_pyarrow_and_says_so(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.parquet"
    status = main(["export", "--parquet", str(path), str(example / "hpl")])
    if importlib.util.find_spec("pyarrow") is None:
        assert status == 2
        assert "pip install pyarrow" in capsys.readouterr().err
        assert not path.exists()
    else:
        assert status == 0
        assert path.read_bytes()[:4] == b"PAR1"


def test_a_place_that_cannot_be_written_is_named(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "x.csv"
    assert main(["export", "--csv", str(path), str(example / "hpl")]) == 1
    assert f"error: {path}: No such file" in capsys.readouterr().err
    assert main(["export", str(example / "hpl")]) == 2
