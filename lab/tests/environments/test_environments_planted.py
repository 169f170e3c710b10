"""Planted costs: they are at least what they say, and the program's status and output are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from coracle_lab import environments
from coracle_lab.environments import Setting

BURN = "import time\nwhile time.process_time() < 0.2: pass"


def command(name: str, *words: str) -> list[str]:
    """Returns a command in an environment."""
    return environments.find(name).command(words, Setting())


def cpu_s(words: list[str]) -> float:
    """The CPU time of a command and its children."""
    before = os.times()
    subprocess.run(words, check=True)
    after = os.times()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system


def test_work_is_a_part_of_the_cpu_time() -> None:
    # The program uses 0.2 s by its own clock, so 50 % are at least 0.1 s, whatever else runs.
    # Usage is read in hundredths.
    assert cpu_s(command("planted:work=50%", sys.executable, "-c", BURN)) >= 0.29


def test_start_waits() -> None:
    # Waiting is never shorter than asked for; the interpreter's own start counts as CPU time.
    begun = time.monotonic()
    subprocess.run(command("planted:start=200ms", "true"), check=True)
    assert time.monotonic() - begun >= 0.2 - 0.001


def test_message_is_a_variable() -> None:
    words = command("planted:message=30us", "sh", "-c", "echo $CORACLE_LAB_PLANTED_MESSAGE_US")
    assert subprocess.run(words, capture_output=True, check=True, text=True).stdout == "30\n"


@pytest.mark.parametrize("name", ["planted:work=3%", "planted:start=20ms"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -15 $$"], -15),
        (["/no/such/program"], 127),
    ],
)
def test_status(name: str, words: list[str], status: int) -> None:
    done = subprocess.run(command(name, *words), capture_output=True, check=False)
    assert done.returncode == status


@pytest.mark.parametrize("name", ["planted:work=3%", "planted:start=20ms"])
def test_words_and_input(name: str) -> None:
    words = command(name, "sh", "-c", 'printf "%s|" "$@"; cat', "sh", "a b", "", '"')
    done = subprocess.run(words, input="read", capture_output=True, check=True, text=True)
    assert done.stdout == 'a b||"|read'
