"""A whole trial, with the real ReFrame and environments of the user's own table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = str(Path(__file__).parents[2])
TABLE = """
[[environment]]
name = "copied"
text = "runs a changed copy of the program"
takes = "host"
probe = ["true"]
command = ["env", "A=1", "sh", "-c", 'shift; exec other/sleep "$@"', "sh"]

[[environment]]
name = "broken"
text = "does not start anything"
takes = "host"
probe = ["true"]
command = ["sh", "-c", "echo 'broken: out of order' >&2; exit 125", "sh"]

[[environment]]
name = "absent"
text = "its program is not installed"
takes = "host"
program = "there-is-no-such-runtime"
command = ["{program}"]
"""


def lab(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coracle_lab.cli", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "table.toml").write_text(TABLE)
    sleep = next(path for path in (Path("/bin/sleep"), Path("/usr/bin/sleep")) if path.exists())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sleep").write_bytes(sleep.read_bytes() + b"changed")
    (tmp_path / "other" / "sleep").chmod(0o755)
    return tmp_path


def test_a_trial(place: Path) -> None:
    envs = [word for name in ("copied", "broken", "absent") for word in ("--env", name)]
    options = ["-n", "3", *envs, "--environments", "table.toml", "--records", "r"]
    done = lab(place, "try", *options, "--", "sleep", "0.1")
    assert done.returncode == 1, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert {"environment", "native", "native-again", "copied", "broken", "absent"} <= set(lines)
    assert "another program file" in lines["copied"]
    assert "left out: broken, 3 of its 3 rows: " in done.stdout
    assert "exit status 125: broken: out of order" in done.stdout
    assert "left out: absent, 3 of its 3 rows: " in done.stdout
    assert "\r" not in done.stderr
    records = [
        json.loads(line) for line in (place / "r" / "records.jsonl").read_text().split("\n")[:-1]
    ]
    first = [record for record in records if record["row"] == 0]
    assert sum(record["levels"]["environment"] == "broken" for record in first) == 2
    measured = {(record["row"], record["attempt"]) for record in records if record["row"]}
    assert len({row for row, _ in measured}) == 9
    again = lab(place, "run", "r")
    assert "copied" in again.stdout, again.stderr
    after = (place / "r" / "records.jsonl").read_text().split("\n")[:-1]
    assert {json.loads(line)["row"] for line in after[len(records) :]} == {0}


def test_nothing_to_compare_with(place: Path) -> None:
    done = lab(place, "try", "--env", "absent", "--environments", "table.toml", "--", "true")
    assert done.returncode == 2
    assert "none of the environments can be used here: absent: " in done.stderr
    done = lab(place, "try", "--env", "broken", "--environments", "table.toml", "--", "true")
    assert done.returncode == 1
    assert "nothing is left to compare with native: broken: " in done.stderr
