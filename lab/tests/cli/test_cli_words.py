"""The command line: words in, text and exit status out, without anything that runs long."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from coracle_lab.cli import arguments, main, progress, table, trial
from coracle_lab.design import expand, parse
from coracle_lab.errors import LabError
from coracle_lab.run.cells import cells
from coracle_lab.run.launch import cpus_of, substituted
from coracle_lab.run.records import Record
from coracle_lab.stats import compare


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "COMMAND"),
        (["frobnicate"], "invalid choice"),
        (["try", "-n", "3"], "no program is given"),
        (["try", "-n", "0", "--", "true"], '"0" is not a number of 1 or more'),
        (["try", "-n", "x", "--", "true"], '"x" is not a number'),
        (["try", "--timeout", "-1", "--", "true"], '"-1" is not a time'),
        (["try", "--env", "natvie", "--", "true"], "natvie"),
        (["try", "--margin", "7", "--", "true"], "margin"),
        (["try", "--pin", "first", "--", "true"], "pinning"),
        (["try", "--success", "(", "--", "true"], "success"),
        (["try", "-e", "A", "--", "true"], '"A" is not NAME=VALUE'),
        (["try", "--environments", "/nowhere", "--", "true"], "/nowhere"),
        (["run"], "FILE"),
        (["run", "/nowhere.toml"], "there is no such file"),
        (["run", "--", "true"], "FILE"),
        (["plan", "/nowhere.toml"], "there is no such file"),
        (["run", "x", "--site", "y", "--launcher", "z"], "exclude each other"),
        (["run", "x", "--system", "y"], "--system needs --site"),
        (["plan", "x", "--output-limit", "3"], "unrecognized arguments"),
    ],
)
def test_wrong_words_are_refused_with_status_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert said in errors
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_design_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(tmp_path)]) == 2
    assert "holds no design.toml" in capsys.readouterr().err


def test_a_directory_has_its_own_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "design.toml").write_text("")
    assert main(["run", str(tmp_path), "--records", "x"]) == 2
    assert "its own records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "has no application"),
        (
            'ranks = [1, 2]\n[application]\ncommand = ["true"]\n',
            "has ranks, and nothing that starts them",
        ),
    ],
)
def test_a_design_that_cannot_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, says: str
) -> None:
    path = tmp_path / "d.toml"
    path.write_text(f'seed = 1\nreplicates = 2\n[factors]\nenvironment = ["native"]\n{more}')
    assert main(["run", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_plan_says_what_it_will_run_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.toml"
    path.write_text(
        "seed = 1\nreplicates = 4\n[factors]\n"
        'environment = ["native", "native-again"]\nx = [1, 2]\n'
        '[[where]]\nleave_out = { x = 2, environment = "native-again" }\nreason = "for the test"\n'
        '[application]\ncommand = ["false"]\n'
    )
    assert main(["plan", str(path)]) == 0
    said = capsys.readouterr().out
    assert "3 cells, 4 blocks, 12 rows" in said
    assert "for the test" in said
    assert list(tmp_path.iterdir()) == [path]


WORD = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(some.lists(WORD, min_size=1, max_size=5).filter(lambda words: bool(words[0])))
@example(["/"])
@example(["sh", "-c", "a=1\necho ${a}"])
def test_any_words_arrive_through_the_design_file(words: list[str]) -> None:
    options = arguments.parse(["try", "--", *words])
    design = parse(trial.design_text(options, 1), "try")
    assert design.application is not None
    levels = {**design.application.parameters, **expand(design)[0].levels}
    command = design.application.command
    assert [substituted(word, levels) for word in command] == words


@pytest.mark.parametrize("word", ["{print}", "{environment}", "a{x}b{y}", "'{a}'"])
def test_braces_of_a_trial_are_not_factors(word: str) -> None:
    options = arguments.parse(["try", "--", "awk", word])
    design = parse(trial.design_text(options, 1), "try")
    assert design.application is not None
    for row in expand(design):
        levels = {**design.application.parameters, **row.levels}
        assert substituted(design.application.command[1], levels) == word
        assert set(row.levels) == {"environment"}


def test_native_and_native_again_are_always_there() -> None:
    options = arguments.parse(["try", "--env", "coracle:N1", "--env", "native", "--", "true"])
    design = parse(trial.design_text(options, 1), "try")
    factor = design.factor("environment")
    assert factor is not None
    assert factor.levels == ("native", "native-again", "coracle:N1")


def test_a_word_that_is_not_text_is_refused() -> None:
    with pytest.raises(LabError, match="is not UTF-8"):
        trial.quoted("\udcff")


def test_the_directory_is_mounted_unless_it_is_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = arguments.parse(["try", "--", "true"])
    monkeypatch.chdir(tmp_path)
    application = parse(trial.design_text(options, 1), "try").application
    assert application is not None
    assert application.volumes == (f"{tmp_path}:{tmp_path}",)
    monkeypatch.chdir("/usr")
    application = parse(trial.design_text(options, 1), "try").application
    assert application is not None
    assert application.volumes == ()


@pytest.mark.parametrize(
    ("text", "cpus"), [(None, ()), ("1", (1,)), ("0-2,5", (0, 1, 2, 5)), ("3,1", (3, 1))]
)
def test_lists_of_processors(text: str | None, cpus: tuple[int, ...]) -> None:
    assert cpus_of(text) == cpus


@pytest.mark.parametrize(
    ("value", "response", "text"),
    [
        (12.3456, "wall_s", "12.35 s"),
        (0.0123456, "wall_s", "12.35 ms"),
        (0.0000123, "user_s", "12.3 µs"),
        (4096.0, "max_rss_bytes", "4096"),
        (math.nan, "wall_s", "-"),
    ],
)
def test_amounts(value: float, response: str, text: str) -> None:
    assert table.amount(value, response) == text


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text


def record(row: int, block: int, environment: str, wall: float, outcome: str = "ok") -> Record:
    fields = {"row": row, "block": block, "attempt": 1, "levels": {"environment": environment}}
    return Record({**fields, "outcome": outcome, "responses": {}, "wall_s": wall})


DESIGN = parse(
    'seed = 3\nreplicates = 4\n[factors]\nenvironment = ["native", "native-again", "x"]\n', "d"
)


def test_values_are_in_the_order_of_blocks_with_gaps() -> None:
    rows = expand(DESIGN)
    made = {
        row.number: record(
            row.number,
            row.block,
            row.levels["environment"],
            row.block + len(row.levels["environment"]) / 100,
            "failed" if row.block == 2 and row.levels["environment"] == "x" else "ok",
        )
        for row in rows
        if row.block < 4
    }
    (cell,) = cells(DESIGN, rows, made, "wall_s")
    assert cell.paired
    assert list(cell.values) == ["native", "native-again", "x"]
    assert list(cell.values["native"]) == [1.06, 2.06, 3.06]
    assert cell.values["x"][0] == 1.01
    assert math.isnan(cell.values["x"][1])


def test_a_table_without_trust_has_no_verdicts() -> None:
    rows = expand(DESIGN)
    made = {
        row.number: record(row.number, row.block, row.levels["environment"], 1 + row.number / 50)
        for row in rows
    }
    (cell,) = cells(DESIGN, rows, made, "wall_s")
    compared = compare(cell.values, "native")
    beside = {"x": "another program file"}
    trusted = table.cell(cell, compared, table.Look("native", "wall_s", beside, True, ()))
    untrusted = table.cell(cell, compared, table.Look("native", "wall_s", beside, False, ()))
    assert compared[1].verdict in trusted[3]
    assert "not trusted (another program file)" in untrusted[3]
    assert compared[1].verdict not in "\n".join(untrusted)


def test_one_block_gives_no_interval() -> None:
    rows = expand(DESIGN)
    made = {r.number: record(r.number, 1, r.levels["environment"], 1.5) for r in rows[:3]}
    (cell,) = cells(DESIGN, rows, made, "wall_s")
    lines = table.cell(
        cell, compare(cell.values, "native"), table.Look("native", "wall_s", {}, True, ())
    )
    assert "no verdict: " in lines[3]
    assert " to " not in lines[3]
