"""A design whose factors are options: its rows get the words, it is stopped, and it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coracle_lab.design import digest, parse
from coracle_lab.run import records

pytestmark = pytest.mark.real

TABLE = """
[[environment]]
name = "options"
text = "the host, with options before the program"
takes = "host"
command = [["env", ["{option}"]]]

[[environment]]
name = "none"
text = "the host, without options"
takes = "host"
command = [["env", ["{variable}"]]]
"""
DESIGN = r"""
seed = 7
replicates = 2
kind = "fractional"
fractional = { generator = "a b" }
sentinel = { above = 9.0 }
[factors]
environment = ["options"]
slow = ["no", "yes"]
word = ["a", "b"]
[options]
slow = { yes = ["SLOW=0.1"] }
word = { a = ["WORD=a"], b = ["WORD=b"] }
[application]
command = ["sh", "-c", 'sleep "${SLOW:-0.01}"; echo "$WORD" is {word}; echo "slow ${SLOW:-0.01}"']
success = '(?m)^(a is a|b is b)$'
responses = { asked_s = 'slow (\S+)' }
"""
ROOT = str(Path(__file__).parents[2])


def lab(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coracle_lab.cli", *words],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT},
    )


def files(directory: Path, design: str = DESIGN) -> None:
    (directory / "table.toml").write_text(TABLE)
    (directory / "d.toml").write_text(design)


def test_options_reach_the_program_and_a_cut_run_goes_on(tmp_path: Path) -> None:
    files(tmp_path)
    first = lab(tmp_path, "run", "--environments", "table.toml", "d.toml")
    assert first.returncode == 0, first
    assert "\nslow: no, yes" in first.stdout
    assert "no A/A: no factor of the design changes nothing" in first.stdout
    path = tmp_path / "d-records" / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]))
    again = lab(tmp_path, "run", "d-records")
    assert again.returncode == 0, again
    made = records.read(path, digest(parse(DESIGN, "d"))).records
    rows = [record for record in made if record.row]
    assert sorted(record.row for record in rows) == list(range(1, 9))
    assert [record.outcome for record in rows] == ["ok"] * 8
    for record in rows:
        wanted = 0.1 if record.levels["slow"] == "yes" else 0.01
        assert record.value("asked_s") == wanted
    # What was not cut off was not measured again.
    assert path.read_text().startswith("".join(lines[:-3]))


@pytest.mark.parametrize("name", ["none", "native"])
def test_an_environment_without_a_place_for_options_is_refused(tmp_path: Path, name: str) -> None:
    files(tmp_path, DESIGN.replace('["options"]', f'["{name}"]'))
    said = lab(tmp_path, "run", "--environments", "table.toml", "d.toml")
    assert said.returncode == 2
    assert name in said.stderr
    assert "it takes no options of a design" in said.stderr
    assert not (tmp_path / "d-records" / "records.jsonl").exists()


def test_a_fraction_that_lacks_an_image_measures_nothing(tmp_path: Path) -> None:
    """Its effects could not be told apart any more."""
    design = DESIGN.replace('["options"]', '["picky"]').replace('"a b"', '"a b ab"')
    design = design.replace("[options]", 'tag = ["1", "2"]\n[options]')
    design = design.replace("[application]", '[application]\nimage = "x:{tag}"')
    files(tmp_path, design)
    with (tmp_path / "table.toml").open("a") as table:
        table.write(
            """
[[environment]]
name = "picky"
text = "the host, for one image"
takes = "image"
prepare = [["test", "{image}", "=", "x:1"]]
command = [["env", ["{option}"]]]
"""
        )
    said = lab(tmp_path, "run", "--environments", "table.toml", "d.toml")
    assert said.returncode == 1, said
    assert "a fraction is judged by all of its rows, and some cannot be run" in said.stderr
    assert "picky with x:2: picky cannot be prepared: test ended with status 1" in said.stderr
    assert all(one.row == 0 for one in records.read(tmp_path / "d-records/records.jsonl").records)
