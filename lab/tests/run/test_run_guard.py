"""A test that starts a program and is not marked `real` fails, and says why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lab_guard
import pytest
from lab_guard import Guard, StartedError

TESTS = Path(lab_guard.__file__).parent
OTHERS = """
import subprocess, sys
import pytest

def test_caught():
    try:
        subprocess.run(["tar", "--version"])
    except BaseException:
        pass

@pytest.fixture
def made():
    subprocess.run(["tar", "--version"], check=True)

def test_fixture(made):
    pass

@pytest.mark.real
def test_real():
    subprocess.run(["tar", "--version"], check=True)

def test_own():
    subprocess.run([sys.executable, "-c", ""], check=True)
"""


def test_starts_are_seen_and_the_mark_allows_them(tmp_path: Path) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_others.py").write_text(OTHERS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    ended = [line for line in done.stdout.splitlines() if line.startswith(("ERROR", "FAILED"))]
    assert [line.split()[1].partition("::")[2] for line in ended] == [
        "test_caught",
        "test_fixture",
        "test_fixture",
    ]
    assert "the test has started tar: mark it `real`" in done.stdout


@pytest.mark.parametrize(
    "program", ["gcc", "/usr/bin/mpirun", "python3.1", "/bin/tar", str(TESTS / "conftest.py")]
)
def test_programs_are_refused(program: str) -> None:
    guard = Guard()
    guard.on = True
    for event in lab_guard.EVENTS:
        with pytest.raises(StartedError, match="not marked `real`"):
            guard(event, (program, [program], None, None))
    assert program in (guard.told() or "")
    assert guard.told() is None


def test_what_every_machine_has_may_be_started(tmp_path: Path) -> None:
    guard = Guard()
    guard.on = True
    for program in ("sh", "/bin/sh", "/usr/bin/env", sys.executable, str(tmp_path), "/no/such"):
        guard("subprocess.Popen", (program, [program], None, None))
    guard("open", ("gcc", "r", 0))
    assert guard.told() is None
