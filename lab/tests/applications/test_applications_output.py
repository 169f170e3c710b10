"""What programs print: lines of `lab.h`, texts, and outputs that are wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from coracle_lab.cli import table
from coracle_lab.design import expand, parse
from coracle_lab.facts.same import Likeness
from coracle_lab.run import judge, lab_lines, records
from coracle_lab.run.cells import cells
from coracle_lab.run.lab_lines import Timer, Wrong
from coracle_lab.run.piece import Piece, Task
from coracle_lab.run.records import Record
from coracle_lab.stats import compare

TIMER = Timer("0a1b2c3d", 100.0, 110.0)
SECOND = 10**9


def rank(number: int = 0, boot: str = "0a1b2c3d", **times: int) -> dict[str, Any]:
    """Returns a rank's line: 2 s after the start, 1 s of MPI_Init, 4 s of work, 2 s after it."""
    first = times.get("first", 102 * SECOND + number)
    return {
        "rank": number,
        "boot": boot,
        "first_ns": first,
        "init_ns": first + SECOND,
        "work_ns": first + 5 * SECOND,
        "end_ns": first + 6 * SECOND,
        "communication_ns": times.get("communication", 0),
    }


def lines(*ranks: dict[str, Any], results: Sequence[str] = ()) -> list[str]:
    return [*(f"lab {one}\n" for one in results), *(f"lab-rank {json.dumps(r)}\n" for r in ranks)]


def read(*ranks: dict[str, Any], expected: int | None = None) -> lab_lines.Told:
    return lab_lines.read(lines(*ranks), None, TIMER, expected or len(ranks))


def test_the_parts_of_a_rank_are_the_whole_time() -> None:
    told = read(rank(communication=SECOND))
    assert told.responses == {
        "launch_s": pytest.approx(2),
        "start_s": pytest.approx(1),
        "work_s": pytest.approx(3),
        "communication_s": pytest.approx(1),
        "end_s": pytest.approx(3),
        "arrival_spread_s": 0,
    }
    assert sum(told.responses.values()) == pytest.approx(TIMER.end_s - TIMER.start_s)
    assert told.ranks[0]["rank"] == 0


@given(some.lists(some.integers(0, SECOND), min_size=1, max_size=8))
def test_the_slowest_rank_counts(late: list[int]) -> None:
    ranks = [rank(at, first=102 * SECOND + by) for at, by in enumerate(late)]
    told = read(*reversed(ranks))
    assert [one["rank"] for one in told.ranks] == list(range(len(late)))
    assert told.responses["launch_s"] == pytest.approx(2 + max(late) / SECOND)
    assert told.responses["end_s"] == pytest.approx(3 - min(late) / SECOND)
    assert told.responses["arrival_spread_s"] == pytest.approx((max(late) - min(late)) / SECOND)


def test_the_clock_of_another_boot_is_not_compared() -> None:
    told = read(rank(0), rank(1, boot="ffffffff", first=5))
    assert told.ranks[1]["launch_s"] is None
    assert {"launch_s", "end_s", "arrival_spread_s"}.isdisjoint(told.responses)
    assert told.responses["work_s"] == pytest.approx(4)
    # Two nodes, neither of which is the timer's: what they have in common is still known.
    told = read(rank(0, boot="ffffffff", first=5), rank(1, boot="ffffffff", first=7))
    assert told.responses["arrival_spread_s"] == pytest.approx(2e-9)


@pytest.mark.parametrize(
    ("ranks", "expected", "said"),
    [
        ([rank(0), rank(0)], 2, "MPI does not understand its launcher"),
        ([rank(0)], 2, "1 of 2 ranks have told"),
        ([{**rank(0), "init_ns": 5}], 1, "not in their order"),
        ([rank(0, communication=5 * SECOND)], 1, "not in their order"),
        ([rank(0, first=99 * SECOND)], 1, "is not the timer's"),
        ([rank(0, first=106 * SECOND)], 1, "is not the timer's"),
        ([{"rank": 0}], 1, "has not all of its times"),
        ([{**rank(0), "work_ns": None}], 1, "has not all of its times"),
    ],
)
def test_ranks_that_cannot_be_right_are_refused(
    ranks: list[dict[str, Any]], expected: int, said: str
) -> None:
    with pytest.raises(Wrong, match=said):
        read(*ranks, expected=expected)


def test_numbers_are_responses_and_a_series_is_told_apart() -> None:
    printed = lines(results=['{"bytes": 8, "one_way_s": 1e-6, "kind": "warm"}', '{"pairs": 3}'])
    printed.append("laboratory {\n")
    told = lab_lines.read(printed, "bytes", TIMER, 1)
    assert told.responses == {"one_way_s@8": 1e-6, "pairs": 3}
    assert lab_lines.read(printed, None, TIMER, 1).responses["bytes"] == 8


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (['{"x": 1}', '{"x": 1}'], "x is there twice"),
        (['{"bytes": 8, "x": 1}', '{"bytes": 8, "x": 2}'], "x@8 is there twice"),
        (["{"], "is not JSON"),
        (["3"], "holds no names"),
        (['{"x": NaN}'], "response x is nan"),
    ],
)
def test_results_that_say_nothing_sure_are_refused(results: list[str], said: str) -> None:
    with pytest.raises(Wrong, match=said):
        lab_lines.read(lines(results=results), "bytes", TIMER, 1)


MEASURED = {
    "outcome": "ok",
    "why": None,
    "exit_status": 0,
    "wall_s": 10.0,
    "user_s": 1.0,
    "system_s": 1.0,
    "max_rss_bytes": 1,
    "minor_faults": 1,
    "major_faults": 0,
    "voluntary_switches": 1,
    "involuntary_switches": 1,
    "output_sha256": "0" * 64,
    "steal_ticks": 0,
    "started": "2026-01-01T00:00:00Z",
    "host": "h",
    "boot": TIMER.boot,
    "clock_start_s": TIMER.start_s,
    "clock_end_s": TIMER.end_s,
}


def judged(directory: Path, output: str, texts: dict[str, str] | None = None) -> dict[str, Any]:
    (directory / "output").write_text(output)
    piece = Piece(
        design="d",
        session="s",
        records="r",
        kept="k",
        success="right",
        responses={"energy_j": r"energy (\S+)"},
        reads="lab",
        series="bytes",
        texts={"evidence": r"evidence (.*)"},
    )
    task = Task(1, 1, 1, {"environment": "x"}, ("true",), {}, texts=texts or {})
    record = judge.record(piece, task, MEASURED, directory)
    assert records.problem(record) is None
    return record


RIGHT = "right\nenergy 2.5\nevidence 0x1.8p+3\n"


def test_a_right_output_gives_responses_texts_and_ranks(tmp_path: Path) -> None:
    record = judged(tmp_path, RIGHT + "".join(lines(rank(), results=['{"pairs": 3}'])))
    assert record["outcome"] == "ok"
    assert record["responses"]["energy_j"] == 2.5
    assert record["responses"]["pairs"] == 3
    assert record["texts"] == {"evidence": "0x1.8p+3"}
    assert record["ranks"][0]["work_s"] == pytest.approx(4)


@pytest.mark.parametrize(
    ("output", "texts", "said"),
    [
        (RIGHT.replace("right", "wrong"), {}, "does not contain what a right one contains: right"),
        (RIGHT.replace("energy", "mass"), {}, "the response energy_j is not in the output"),
        (RIGHT.replace("2.5", "low"), {}, "is 'low', and not a number"),
        (RIGHT.replace("2.5", "inf"), {}, "the response energy_j is inf"),
        (RIGHT.replace("evidence", "proof"), {}, "the text evidence is not in the output"),
        (RIGHT, {"evidence": "0x1.9p+3"}, "in the first run of the base it was '0x1.9p"),
        (RIGHT + "lab {\n", {}, "is not JSON"),
    ],
)
def test_a_wrong_output_is_a_failed_row(
    tmp_path: Path, output: str, texts: dict[str, str], said: str
) -> None:
    record = judged(tmp_path, output, texts)
    assert record["outcome"] == "failed"
    assert said in record["why"]


@pytest.mark.parametrize(
    ("errors", "last"),
    [
        ("one\ntwo \n\n", ": two"),
        ("RULE\nMPI_ABORT was invoked\nwith errorcode 1.\nRULE\n", ": MPI_ABORT was invoked"),
        ("one\nno such file\nRULE\nA process has ended.\nRULE\nRULE\nMore.\n", ": no such file"),
        ("RULE\n", ""),
        ("", ""),
    ],
)
def test_a_programs_last_words_count_more_than_its_launchers(
    tmp_path: Path, errors: str, last: str
) -> None:
    (tmp_path / "errors").write_text(errors.replace("RULE", "-" * 74))
    task = Task(row=1, block=1, attempt=1, levels={}, words=("a",), request={})
    piece = Piece(design="d", session="s", records="r", kept="k")
    record = judge.record(piece, task, {**MEASURED, "exit_status": 1}, tmp_path)
    assert record["why"] == f"exit status 1{last}"


def test_ratios_of_a_rate_are_of_times() -> None:
    design = parse(
        'seed = 1\nreplicates = 4\n[factors]\nenvironment = ["native", "x"]\n'
        '[application]\ncommand = ["a"]\nrates = ["speed"]\n',
        "d",
    )
    rows = expand(design)
    made = {
        row.number: Record(
            {
                "outcome": "ok",
                "responses": {
                    "speed@8": (50 if row.levels["environment"] == "x" else 100) + row.number / 99,
                    "speed": 0.0,
                },
            }
        )
        for row in rows
    }
    (cell,) = cells(design, rows, made, "speed@8")
    assert cell.rate
    (compared,) = compare(cell.values, "native")
    assert compared.ratio == pytest.approx(2, rel=0.01)
    assert "slower" in compared.verdict
    shown = table.cell(cell, [compared], table.Look("native", "speed@8", {}, True, ()))
    assert shown[1].split()[2].startswith("100.")
    # Nothing is concluded from a rate of zero.
    (cell,) = cells(design, rows, made, "speed")
    (compared,) = compare(cell.values, "native")
    assert compared.ratio is None
    assert table.amount(3e9, "bytes_per_s") == "3e+09"
    assert table.amount(3e-6, "one_way_s@1024") == "3 µs"


def test_a_design_says_which_files_have_to_be_the_same() -> None:
    libraries = Likeness("same", ("libm",))
    assert not libraries.breaks(None)
    assert not libraries.breaks("program")
    assert libraries.breaks("files")
    assert Likeness("other").breaks("program")
    # What was not seen is not known to differ.
    assert not Likeness("unseen").breaks("files")
