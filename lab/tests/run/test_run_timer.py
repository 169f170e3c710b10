"""The timer: what it writes, and what it does with programs that misbehave."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coracle_lab.run import hardware, timer

pytestmark = pytest.mark.real

TIMER = Path(timer.__file__)
SAID = hashlib.sha256(b"hi\n").hexdigest()


def start(directory: Path, *words: str, **request: object) -> subprocess.Popen[str]:
    (directory / "request.json").write_text(json.dumps(request))
    return subprocess.Popen(
        [sys.executable, "-S", "-E", TIMER, "--request", "request.json", "--", *words],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(directory: Path, *words: str, **request: object) -> dict[str, Any]:
    child = start(directory, *words, **request)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    found: dict[str, Any] = json.loads((directory / "measured.json").read_text())
    return found


def test_a_program_is_timed_and_its_output_hashed(tmp_path: Path) -> None:
    found = line(tmp_path, "sh", "-c", "echo hi; sleep 0.2")
    assert found["outcome"] == "ok"
    assert found["exit_status"] == 0
    assert found["wall_s"] >= 0.2
    assert found["output_sha256"] == SAID
    assert found["max_rss_bytes"] > 0
    assert found["minor_faults"] > 0


def test_usage_contains_waited_for_children(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    found = line(tmp_path, "sh", "-c", f"{sys.executable} -c '{burn}'; true")
    assert found["user_s"] + found["system_s"] >= 0.3


TASK_CLOCK = {"nanoseconds": 1}
"""PERF_COUNT_SW_TASK_CLOCK of PERF_TYPE_SOFTWARE, which every machine has."""


def counted(words: list[str]) -> float:
    counters = hardware.Counters(TASK_CLOCK, kind=1)
    if counters.files["nanoseconds"] is None:
        print("SKIP: perf_event_open is not allowed here")
        pytest.skip("SKIP: perf_event_open is not allowed here")
    burn(1.0)
    subprocess.run(words, check=True)
    found = counters.read()["nanoseconds"]
    assert found is not None
    return found / 1e9


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_counters_count_what_is_started_and_nothing_else() -> None:
    """Of a program and its grandchild: 0.3 s each, and nothing of the second of this process."""
    alone = "import time\nwhile time.process_time() < 0.3: pass"
    both = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])\n{alone}"
    assert 0.3 <= counted([sys.executable, "-c", alone]) < 1.0
    assert 0.6 <= counted([sys.executable, "-c", both, alone]) < 1.0


def test_counters_that_the_machine_lacks_are_none(tmp_path: Path) -> None:
    found = line(tmp_path, "true")
    offered = {name for name, file in hardware.Counters().files.items() if file is not None}
    assert {name for name in hardware.COUNTED if found[name] is not None} == offered
    assert hardware.Counters({"x": 1 << 40}, kind=1 << 20).read() == {"x": None}


@pytest.mark.parametrize(
    ("command", "status", "number"), [("exit 3", 3, None), ("kill -9 $$", 137, 9)]
)
def test_status_and_signal(tmp_path: Path, command: str, status: int, number: int | None) -> None:
    found = line(tmp_path, "sh", "-c", command)
    assert (found["exit_status"], found["signal"]) == (status, number)


def test_a_missing_program_has_failed(tmp_path: Path) -> None:
    found = line(tmp_path, "there-is-no-such-program")
    assert found["outcome"] == "failed"
    assert "there is no such program" in found["why"]
    assert found["wall_s"] == 0


def test_a_file_that_is_no_program_has_failed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    found = line(tmp_path, str(path))
    assert found["outcome"] == "failed"
    assert "Exec format error" in found["why"]


def test_a_program_that_hangs_is_ended_with_its_group(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $! > pid; wait; wait"
    found = line(tmp_path, "sh", "-c", script, timeout_s=0.5)
    assert found["outcome"] == "late"
    assert found["signal"] == signal.SIGKILL
    child = int((tmp_path / "pid").read_text())
    assert not _lives(child)


def test_what_a_program_leaves_in_its_group_is_ended(tmp_path: Path) -> None:
    found = line(tmp_path, "sh", "-c", "sleep 600 & echo $! > pid")
    assert found["outcome"] == "ok"
    assert not _lives(int((tmp_path / "pid").read_text()))


def test_a_program_that_prints_too_much_is_ended_and_cut(tmp_path: Path) -> None:
    found = line(tmp_path, "yes", output_limit_bytes=100_000)
    assert found["outcome"] == "failed"
    assert "more than 100000 bytes" in found["why"]
    assert (tmp_path / "output").stat().st_size == 100_000


def test_a_short_program_that_prints_too_much_has_failed(tmp_path: Path) -> None:
    found = line(tmp_path, "sh", "-c", "echo 123456789", output_limit_bytes=5)
    assert found["outcome"] == "failed"


def test_the_program_gets_default_signals_and_an_empty_input(tmp_path: Path) -> None:
    line(tmp_path, "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; cat")
    masks = [row.split()[1] for row in (tmp_path / "output").read_text().splitlines()]
    # The signals above 31 are those of the C library and of who started the tests.
    assert [int(mask, 16) & 0x7FFFFFFF for mask in masks] == [0, 0]


def test_words_arrive_as_they_are(tmp_path: Path) -> None:
    words = ["a b", "", "'\"", "$HOME", "*", "é\n"]
    line(tmp_path, sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert (tmp_path / "output").read_text().strip() == str(words)


def test_the_directory_and_the_variables_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "sub dir").mkdir()
    directory = str(tmp_path / "sub dir")
    program = tmp_path / "sub dir" / "my prog"
    program.write_text('#!/bin/sh\npwd; echo "$A"\n')
    program.chmod(0o755)
    line(tmp_path, "./my prog", cwd=directory, variables={"A": "b c"})
    assert (tmp_path / "output").read_text() == f"{directory}\nb c\n"


def test_sentinels_stand_before_and_after(tmp_path: Path) -> None:
    found = line(tmp_path, "true", sentinel=True)
    for name in ("before", "after"):
        assert found[f"sentinel_{name}_s"] > found[f"sentinel_calls_{name}_s"] > 0


def test_several_starts_have_a_line_each_and_one_pair_of_sentinels(tmp_path: Path) -> None:
    child = start(
        tmp_path,
        "sh",
        "-c",
        "echo $$; echo x >> f; [ $(wc -l < f) = 2 ] && exit 3",
        starts=3,
        sentinel=True,
    )
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    found = [json.loads(line) for line in (tmp_path / "measured.json").read_text().splitlines()]
    assert [one["exit_status"] for one in found] == [1, 3, 1]
    pids = {(tmp_path / name).read_text() for name in ("output", "output.1", "output.2")}
    assert len(pids) == 3
    assert len({one["output_sha256"] for one in found}) == 3
    ends = [one["clock_end_s"] for one in found]
    assert ends == sorted(ends)
    for name in ("sentinel_before_s", "sentinel_after_s"):
        assert len({one[name] for one in found}) == 1


def test_the_program_is_pinned(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    line(tmp_path, "grep", "Cpus_allowed_list", "/proc/self/status", cpus=[cpu], sentinel=True)
    assert (tmp_path / "output").read_text().split()[1] == str(cpu)


def test_a_terminated_timer_ends_the_program_and_writes_nothing(tmp_path: Path) -> None:
    child = start(tmp_path, "sh", "-c", "echo $$ > pid; exec sleep 600")
    pid = _pid(tmp_path / "pid")
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    assert child.returncode == 75
    assert not _lives(pid)
    assert not (tmp_path / "measured.json").exists()


def test_the_end_of_the_session_ends_the_program(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    file = os.open(alive, os.O_RDWR)
    child = start(tmp_path, "sh", "-c", "echo $$ > pid; exec sleep 600", alive=str(alive))
    pid = _pid(tmp_path / "pid")
    os.close(file)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 75
    assert "the session has ended" in errors
    assert not _lives(pid)


def test_a_row_whose_session_has_ended_is_not_begun(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    child = start(tmp_path, "touch", "begun", alive="alive")
    child.communicate(timeout=30)
    assert child.returncode == 75
    assert not (tmp_path / "begun").exists()


def test_lines_are_appended(tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text('{"first": 1}\n')
    child = start(tmp_path, "true")
    child.communicate(timeout=30)
    lines = (tmp_path / "measured.json").read_text().splitlines()
    assert len(lines) == 2
    assert lines[0] == '{"first": 1}'


@pytest.mark.parametrize("words", [[], ["--request", "x"], ["--request", "x", "y", "true"]])
def test_usage(words: list[str]) -> None:
    done = subprocess.run([sys.executable, TIMER, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "usage" in done.stderr


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    child = start(tmp_path, "true", timout_s=3)
    assert "a key is unknown" in child.communicate(timeout=30)[1]
    assert child.returncode == 1


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    child = start(tmp_path, "true", into="/dev/full")
    assert "No space left" in child.communicate(timeout=30)[1]
    assert child.returncode == 74


def _lives(pid: int) -> bool:
    """Tells whether a process runs; a zombie that nobody has reaped yet does not."""
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


def _pid(path: Path) -> int:
    """Waits until a program has written its number."""
    for _ in range(1000):
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the program has not begun")
