"""Storms of starts and of imports, and the memory of processes that sleep."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lab_kernels import APPS, Kernels, changed, compiled, ended, is_refused, result, told

pytestmark = pytest.mark.real

STORM, RSS = "storms/exec-storm.c", "storms/rss.c"


def test_a_storm_starts_a_program_so_many_times(kernels: Kernels, tmp_path: Path) -> None:
    storm = kernels.get(STORM)
    script = tmp_path / "one"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" >> {tmp_path}/all\n')
    script.chmod(0o755)
    assert result(ended(storm, "30", script, "x"))["storm_start_s"] > 0
    assert (tmp_path / "all").read_text() == 30 * "x"
    times = told(ended(storm, "3").stdout, "lab-rank ")[0]
    assert times["first_ns"] <= times["init_ns"] <= times["work_ns"] <= times["end_ns"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (["/nowhere"], "start 1 of /nowhere ended with status 127"),
        (["/bin/false"], "start 1 of /bin/false ended with status 1"),
        (["/bin/sh", "-c", "kill -9 $$"], "start 1 of /bin/sh ended with status 137"),
    ],
)
def test_a_start_that_fails_is_told(kernels: Kernels, line: list[str], what: str) -> None:
    done = ended(kernels.get(STORM), "5", *line)
    assert done.returncode == 1
    assert f"error: {what}" in done.stderr
    assert not told(done.stdout)


def test_the_imports_are_there_and_a_missing_one_is_told(tmp_path: Path) -> None:
    script = APPS / "storms" / "imports.py"
    done = ended("/usr/bin/python3", "-I", script)
    assert done.returncode == 0, done.stderr
    text = script.read_text()
    wrong = tmp_path / "imports.py"
    wrong.write_text(text.replace("files > 200", "files > 20000"))
    done = ended(sys.executable, "-I", wrong)
    assert done.returncode == 1
    assert "error: not what they should be" in done.stderr
    wrong.write_text(text.replace("zoneinfo", "zone_info"))
    assert ended(sys.executable, "-I", wrong).returncode == 1


def test_the_memory_of_a_tree_is_ordered(kernels: Kernels) -> None:
    line = result(ended(kernels.get(RSS), "8"))
    assert 0 < line["private_bytes"] <= line["pss_bytes"] <= line["rss_bytes"]


def test_memory_that_children_write_is_seen(kernels: Kernels, tmp_path: Path) -> None:
    before = "    prctl(PR_SET_PDEATHSIG, SIGKILL);"
    after = f"{before}\n    memset(malloc(8 << 20), 1, 8 << 20);"
    source = changed(RSS, tmp_path, before, after)
    more = result(ended(compiled(source, tmp_path / "rss", "-O0"), "7"))
    less = result(ended(kernels.get(RSS), "7"))
    # 7 of the 8 processes have 8 MiB more; a page or two may differ.
    for name in ("private_bytes", "pss_bytes", "rss_bytes"):
        assert more[name] - less[name] == pytest.approx(7 * (8 << 20) / 8, rel=0.02)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ('write(ready, "r", 1) != 1', "ready", "cannot start a process"),
        ("    for (;;) pause();", "    exit(0);", "cannot read /proc/PID/smaps_rollup"),
        ("/proc/%d/smaps_rollup", "/proc/%d/maps_rollup", "cannot read /proc/PID/smaps_rollup"),
    ],
)
def test_sleepers_that_are_not_there_are_told(
    tmp_path: Path, before: str, after: str, error: str
) -> None:
    source = changed(RSS, tmp_path, before, after)
    done = ended(compiled(source, tmp_path / "rss", "-Wno-unused"), "5")
    assert done.returncode == 1
    assert f"error: {error}" in done.stderr


@pytest.mark.parametrize("words", [[], ["0"], ["x"], ["10001"], ["1", "2"]])
def test_rss_refuses_wrong_words(kernels: Kernels, words: list[str]) -> None:
    is_refused(ended(kernels.get(RSS), *words), "how many processes")


@pytest.mark.parametrize("words", [[], ["0"], ["5x"], ["-1"]])
def test_a_storm_refuses_wrong_words(kernels: Kernels, words: list[str]) -> None:
    is_refused(ended(kernels.get(STORM), *words), "how many starts")
