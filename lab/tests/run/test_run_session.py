"""Sessions with the real ReFrame: rows in order, killed and gone on with, one at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from coracle_lab.design import digest, expand, parse
from coracle_lab.run import lock, records
from coracle_lab.run.records import Record

pytestmark = pytest.mark.real

DESIGN = """
seed = 7
replicates = 3
[sentinel]
above = 9.0
[factors]
environment = ["native", "native-again"]
[application]
command = ["sh", "-c", "echo $$ >> pids; sleep 0.4; echo 'done in 2.5 s'"]
success = "done"
responses = { rate = "in ([0-9.]+) s" }
"""
LAB = [sys.executable, "-m", "coracle_lab.cli"]
ROOT = str(Path(__file__).parents[2])


def start(directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*LAB, *words],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": ROOT},
    )


def finish(directory: Path, *words: str) -> tuple[int, str, str]:
    child = start(directory, *words)
    out, errors = child.communicate(timeout=180)
    return child.returncode, out, errors


def read(directory: Path) -> Sequence[Record]:
    design = parse((directory / "d.toml").read_text(), "d")
    return records.read(directory / "d-records" / "records.jsonl", digest(design)).records


def wait_for(directory: Path, rows: int, child: subprocess.Popen[str]) -> None:
    """Waits until so many rows are recorded and the next one runs."""
    limit = time.monotonic() + 120
    while sum(1 for one in read(directory) if one.row) < rows:
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)
    count = len((directory / "pids").read_text().split())
    while len((directory / "pids").read_text().split()) == count and child.poll() is None:
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def have_ended(directory: Path) -> bool:
    """Waits for the programs: a timer that was killed ends its program a little later."""
    pids = [int(pid) for pid in (directory / "pids").read_text().split()]
    limit = time.monotonic() + 30
    while any(lives(pid) for pid in pids) and time.monotonic() < limit:
        time.sleep(0.05)
    return not any(lives(pid) for pid in pids)


def write(directory: Path, text: str = DESIGN) -> None:
    (directory / "d.toml").write_text(text)


def test_a_design_killed_twice_is_measured_once_and_in_order(tmp_path: Path) -> None:
    write(tmp_path)
    for rows in (1, 3):
        child = start(tmp_path, "run", "d.toml")
        wait_for(tmp_path, rows, child)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    status, out, errors = finish(tmp_path, "run", "d.toml")
    assert status in (0, 3), errors
    found = [one for one in read(tmp_path) if one.row]
    rows = expand(parse(DESIGN, "d"))
    assert [one.row for one in found] == [row.number for row in rows]
    assert [dict(one.levels) for one in found] == [dict(row.levels) for row in rows]
    assert {one.attempt for one in found} == {1}
    assert {one.value("rate") for one in found} == {2.5}
    assert len({one.session for one in found}) == 3
    assert have_ended(tmp_path)
    assert "native-again" in out
    before = (tmp_path / "d-records" / "records.jsonl").read_bytes()
    assert finish(tmp_path, "run", "d.toml")[0] == status
    assert (tmp_path / "d-records" / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_session_ends_its_program_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    write(
        tmp_path, DESIGN.replace("sleep 0.4", "sleep 5").replace("replicates = 3", "replicates = 1")
    )
    child = start(tmp_path, "run", "d.toml")
    while not (tmp_path / "pids").exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "0 of 2 rows are recorded" in errors
    assert "go on with: coracle-lab run" in errors
    assert have_ended(tmp_path)
    assert list(read(tmp_path)) == []


def test_a_second_process_on_one_design_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "d-records").mkdir()
    with lock.held(tmp_path / "d-records"):
        status, _, errors = finish(tmp_path, "run", "d.toml")
    assert status == 2
    assert f"process {os.getpid()}" in errors
    assert "is running this design" in errors


def test_a_changed_design_is_refused(tmp_path: Path) -> None:
    write(tmp_path, DESIGN.replace("replicates = 3", "replicates = 1"))
    assert finish(tmp_path, "run", "d.toml")[0] in (0, 1, 3)
    for change in ("seed = 8\nreplicates = 1", "seed = 7\nreplicates = 2"):
        write(tmp_path, DESIGN.replace("seed = 7\nreplicates = 3", change))
        status, _, errors = finish(tmp_path, "run", "d.toml")
        assert status == 2
        assert "another design" in errors
        assert "--records" in errors


def test_failed_rows_are_told_and_the_run_goes_on(tmp_path: Path) -> None:
    script = 'test "$(wc -l < pids)" != 4 || exit 9; echo done in 1 s'
    text = DESIGN.replace("sleep 0.4; echo 'done in 2.5 s'", script)
    write(
        tmp_path,
        text.replace('command = ["sh", "-c", "', "command = ['sh', '-c', '").replace(
            '1 s"]', "1 s']"
        ),
    )
    status, out, errors = finish(tmp_path, "run", "d.toml")
    assert status == 1, errors
    outcomes = [one.outcome for one in read(tmp_path) if one.row]
    assert outcomes == ["ok", "failed", "ok", "ok", "ok", "ok"]
    assert "failed: row 2" in out
    assert "exit status 9" in out


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        ('["true"]', 'success = "right"', "does not contain what a right one contains: right"),
        ('["true"]', 'responses = { rate = "in ([0-9.]+) s" }', "response rate is not in"),
        ('["sleep", "60"]', "timeout_s = 0.3", "it ran longer than 0.3 s"),
        ('["no-such-program"]', "", "there is no such program"),
    ],
)
def test_a_program_that_always_fails_is_given_up(
    tmp_path: Path, command: str, more: str, said: str
) -> None:
    head = DESIGN.partition("command")[0]
    write(tmp_path, f"{head}command = {command}\n{more}\n")
    status, _, errors = finish(tmp_path, "run", "d.toml")
    assert status == 1
    assert said in errors
    assert {one.row for one in read(tmp_path)} == {0}


def test_blocks_are_repeated_by_the_rule(tmp_path: Path) -> None:
    text = DESIGN.replace("above = 9.0", "above = 1e-9").replace("sleep 0.4", "true")
    write(tmp_path, text)
    status, out, errors = finish(tmp_path, "run", "d.toml")
    assert status in (0, 3), errors
    again = [one for one in read(tmp_path) if one.row and one.attempt == 2]
    assert len(again) == 2
    assert len({one.block for one in again}) == 1
    assert f"repeated blocks: {again[0].block}" in out


NESTED = """
seed = 7
margin = 0.5
kind = "nested"
[nested]
sessions = 1
launches = 2
starts = 3
[sentinel]
above = 9.0
[factors]
environment = ["native", "native-again"]
[application]
command = ["sh", "-c", "echo $$ >> pids; [ $(wc -l < pids) != 6 ] || sleep 60; echo in 2.5"]
responses = { rate = "in ([0-9.]+)" }
"""


def test_a_killed_launch_of_several_starts_is_begun_anew(tmp_path: Path) -> None:
    write(tmp_path, NESTED)
    child = start(tmp_path, "run", "d.toml")
    # Two first runs, a launch of three rows, and the first start of the second launch.
    wait_for(tmp_path, 3, child)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    assert have_ended(tmp_path)
    assert [one.row for one in read(tmp_path) if one.row] == [1, 2, 3]
    status, out, errors = finish(tmp_path, "run", "d.toml")
    assert status == 0, (out, errors)
    made = [one for one in read(tmp_path) if one.row]
    assert [one.row for one in made] == list(range(1, 13))
    assert [one.levels["start"] for one in made] == ["1", "2", "3"] * 4
    assert {one.value("rate") for one in made} == {2.5}
    pairs = {(one.block, one.levels["environment"], one.sentinel_s()) for one in made}
    assert len(pairs) == 4
    # One case of ReFrame for each launch, and not for each start: first runs of two sessions, four
    # launches, and the one that was killed.
    assert (tmp_path / "d-records" / "reframe.log").read_text().count("[ RUN") == 2 * 2 + 4 + 1


SESSIONS = """
seed = 7
kind = "nested"
[nested]
sessions = 2
launches = 1
starts = 1
[sentinel]
above = 9.0
[factors]
environment = ["native", "native-again", "planted:start=20ms", "broken"]
[application]
command = ["true"]
"""
BROKEN = """
[[environment]]
name = "broken"
text = "fails whatever it starts"
takes = "host"
command = ["sh", "-c", "[ $0 = true ] && [ -t 0 ]"]
probe = ["true"]
"""


def test_the_next_session_comes_where_an_environment_never_works(tmp_path: Path) -> None:
    write(tmp_path, SESSIONS)
    (tmp_path / "table.toml").write_text(BROKEN)
    for session in (1, 2):
        _, out, errors = finish(tmp_path, "run", "--environments", "table.toml", "d.toml")
        made = [one for one in read(tmp_path) if one.row]
        assert [int(one.levels["session"]) for one in made][-1] == session, (out, errors)
        assert len(made) == 3 * session
        assert "broken is left out" in errors


def test_output_that_is_no_utf_8_is_read(tmp_path: Path) -> None:
    text = DESIGN.replace("echo $$ >> pids; sleep 0.4; echo 'done in 2.5 s'", "cat words")
    write(tmp_path, text.replace("replicates = 3", "replicates = 1"))
    (tmp_path / "words").write_bytes(b"1 \xc5 done in 2.5 s\n")
    finish(tmp_path, "run", "d.toml")
    assert [one.value("rate") for one in read(tmp_path) if one.row] == [2.5, 2.5]


UNCLEAN = """
[[environment]]
name = "unclean"
text = "cannot be prepared, nor cleaned"
takes = "host"
prepare = [["false"]]
clean = [["sh", "-c", "exit 3"]]
command = ["env"]
probe = ["true"]
"""


def test_what_cannot_be_cleaned_costs_no_table(tmp_path: Path) -> None:
    text = DESIGN.replace('"native-again"]', '"native-again", "planted:start=20ms", "unclean"]')
    write(tmp_path, text.replace("replicates = 3", "replicates = 2").replace("0.4", "0.01"))
    (tmp_path / "table.toml").write_text(UNCLEAN)
    status, out, errors = finish(tmp_path, "run", "--environments", "table.toml", "d.toml")
    assert status == 1, (out, errors)
    assert "unclean cannot be cleaned: sh ended with status 3" in errors
    assert "left out: unclean" in out
    assert len([one for one in read(tmp_path) if one.row]) == 6


CLEAN = """
[[environment]]
name = "clean"
text = "the host, without the caller's variables"
takes = "host"
command = ["env", "-i", "PATH=/usr/bin:/bin", ["{variable}"], ["-u", "{passed}"]]
probe = ["true"]
"""


def test_a_variable_that_native_alone_has_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = DESIGN.replace('"native-again"]', '"native-again", "clean"]').replace("0.4", "0.01")
    text = text.replace("replicates = 3", "replicates = 1")
    write(tmp_path, text)
    (tmp_path / "table.toml").write_text(CLEAN)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    words = ("run", "--environments", "table.toml", "d.toml")
    said = finish(tmp_path, *words)[2]
    assert re.search("OMP_NUM_THREADS.* of this shell is for native, and not for clean:", said)
    write(tmp_path, f'{text}variables = {{ OMP_NUM_THREADS = "4" }}\n')
    assert "OMP_NUM_THREADS" not in finish(tmp_path, *words, "--records", "other")[2]


def test_the_callers_variables_for_reframe_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RFM_SYSTEM", "daint:gpu")
    write(tmp_path, DESIGN.replace("replicates = 3", "replicates = 1").replace("0.4", "0.01"))
    _, _, errors = finish(tmp_path, "run", "d.toml")
    assert len([one for one in read(tmp_path) if one.row]) == 2, errors


def test_a_path_with_spaces_and_quotes(tmp_path: Path) -> None:
    directory = tmp_path / "a b'c\"d"
    directory.mkdir()
    write(directory, DESIGN.replace("replicates = 3", "replicates = 1").replace("0.4", "0.01"))
    status, _, errors = finish(directory, "run", "d.toml")
    assert [one.outcome for one in read(directory) if one.row] == ["ok", "ok"], errors
    assert status in (0, 3)


def test_facts_are_appended_once_a_session(tmp_path: Path) -> None:
    write(tmp_path, DESIGN.replace("replicates = 3", "replicates = 1"))
    for _ in range(2):
        finish(tmp_path, "run", "d.toml")
    lines = (tmp_path / "d-records" / "facts.jsonl").read_text().splitlines()
    sessions = [json.loads(line)["session"] for line in lines]
    assert len(sessions) == len(set(sessions)) == 2
    assert {one.session for one in read(tmp_path)} == {sessions[0]}


def test_records_of_another_machine_are_told(tmp_path: Path) -> None:
    write(tmp_path, DESIGN.replace("replicates = 3", "replicates = 1"))
    finish(tmp_path, "run", "d.toml")
    path = tmp_path / "d-records" / "facts.jsonl"
    line = json.loads(path.read_text())
    line["facts"]["machine"]["id"] = "another"
    path.write_text(json.dumps(line) + "\n")
    _, _, errors = finish(tmp_path, "run", "d.toml")
    assert "another machine, another (" in errors
