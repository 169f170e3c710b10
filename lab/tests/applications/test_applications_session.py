"""Applications in whole sessions: built, run in containers, checked, left out, void."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lab_host as hosts
import pytest

pytestmark = pytest.mark.real

ROOT = str(Path(__file__).parents[2])
BUILD = ["sh", "-c", 'cat "$1/program" > "$2/program"; echo >> "$2/built"', "sh"]
PROGRAM = """
[ ! -e "$2/left" ] || exit 3
touch "$2/left"
[ "$(cat "$1/built" | wc -l)" = 1 ] || exit 4
if touch "$1/mine" 2>/dev/null && [ "$4" = strict ]; then exit 5; fi
echo "size $3: done in 2.5 s, evidence $EVIDENCE"
"""


def table(directory: Path, more: str = "") -> Path:
    """Writes a program and a table that has it."""
    (directory / "src").mkdir(exist_ok=True)
    (directory / "src" / "program").write_text(PROGRAM)
    words = json.dumps([*BUILD, "{source}", "{build}"])
    path = directory / "table.toml"
    path.write_text(
        f"""
[[application]]
name = "own"
text = "a program of the test"
source = "src"
build = [{words}]
parameters = {{ size = 3, strict = "no" }}
command = ["sh", "{{build}}/program", "{{build}}", "{{scratch}}", "{{size}}", "{{strict}}"]
variables = {{ EVIDENCE = "{{size}}" }}
success = "size [0-9]+: done"
responses = {{ seconds_s = "in ([0-9.]+) s" }}
texts = {{ evidence = "evidence (.*)" }}
{more}
"""
    )
    return path


def design(environments: Sequence[str], own: str, factors: str = "", head: str = "") -> str:
    return (
        f"seed = 7\nreplicates = 1\n{head}\n[sentinel]\nabove = 9.0\n"
        f"[factors]\nenvironment = {json.dumps(environments)}\n{factors}\n[application]\n{own}\n"
    )


def read(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "d-records" / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def run(
    directory: Path, *words: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    cache = str(directory / "cache")
    return subprocess.run(
        [sys.executable, "-m", "coracle_lab.cli", "run", "d.toml", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": ROOT, "CORACLE_LAB_CACHE": cache, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.trial
def test_an_application_is_built_once_and_runs_in_containers(
    host: hosts.Host, request: pytest.FixtureRequest
) -> None:
    directory = host.home / f"own-{request.node.callspec.id}"
    host.run(["mkdir", str(directory)])
    table(directory, f'image = "{hosts.IMAGE}"')
    names = ["native", "native-again", "coracle", "coracle:P1", "bwrap"]
    own = 'use = "own"\nparameters = { size = 8 }'
    (directory / "d.toml").write_text(design(names, own, head="text = 'x'"))
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{hosts.USER}:{hosts.USER}", str(directory)], check=True)
    words = ["-m", "coracle_lab.cli", "run", str(directory / "d.toml")]
    done = host.run([host.python(), *words, "--applications", str(directory / "table.toml")])
    assert done.returncode in (0, 3), done.stdout + done.stderr
    made = read(directory)
    assert {one["outcome"] for one in made} == {"ok"}
    assert {one["levels"]["environment"] for one in made} >= {"native", "coracle", "coracle:P1"}
    assert {one["texts"]["evidence"] for one in made} == {"8"}
    assert {one["responses"]["seconds_s"] for one in made} == {2.5}
    facts = json.loads((directory / "d-records" / "facts.jsonl").read_text())
    assert facts["images"][hosts.IMAGE].startswith("sha256:")
    assert list(facts["builds"].values()) == [hosts.IMAGE]
    # The records alone are enough to go on, without the table.
    again = host.run([host.python(), "-m", "coracle_lab.cli", "run", str(directory / "d-records")])
    assert again.returncode == done.returncode, again.stderr
    assert read(directory) == made


def test_every_row_works_in_the_empty_scratch_directory(tmp_path: Path) -> None:
    own = 'command = ["sh", "-c", "[ ! -e here ] && touch here"]\nworkdir = "{scratch}"'
    (tmp_path / "d.toml").write_text(design(["native", "native-again"], own))
    done = run(tmp_path)
    assert done.returncode in (0, 3), done.stderr
    assert {one["outcome"] for one in read(tmp_path)} == {"ok"}
    assert not (tmp_path / "here").exists()


def test_rows_of_an_image_that_is_missing_are_left_out_and_listed(host: hosts.Host) -> None:
    directory = host.home / f"images-{host.forbidden}"
    host.run(["mkdir", str(directory)])
    missing = "localhost:1/lab/missing"
    factors = f"where = {json.dumps([hosts.IMAGE, missing])}"
    own = 'command = ["printf", "x"]\nimage = "{where}"'
    (directory / "d.toml").write_text(
        design(["native", "native-again", "coracle"], own, factors, "")
    )
    done = host.run([host.python(), "-m", "coracle_lab.cli", "run", str(directory / "d.toml")])
    assert done.returncode == 1, done.stderr
    assert f"left out: coracle with {missing}, 1 of its 1 rows: " in done.stdout
    made = [one for one in read(directory) if one["row"]]
    assert len(made) == 5
    assert {one["outcome"] for one in made} == {"ok"}


def test_what_cannot_be_built_is_said_with_its_command(tmp_path: Path) -> None:
    table(tmp_path)
    own = 'use = "own"\nbuild = [["sh", "-c", "echo no such header >&2; exit 1"]]'
    (tmp_path / "d.toml").write_text(design(["native", "native-again"], own))
    done = run(tmp_path, "--applications", "table.toml")
    assert done.returncode == 1
    assert "own cannot be built on the host: no such header" in done.stderr
    assert "the command was: sh -c " in done.stderr
    # Half a build is never taken for a whole one.
    (tmp_path / "d.toml").write_text(design(["native", "native-again"], 'use = "own"'))
    done = run(tmp_path, "--applications", "table.toml", "--records", "other")
    assert done.returncode in (0, 3), done.stderr


def test_a_text_that_differs_from_the_bases_fails_the_row(tmp_path: Path) -> None:
    table(tmp_path)
    other = tmp_path / "environments.toml"
    other.write_text(
        '[[environment]]\nname = "other"\ntext = "gives another result"\ntakes = "host"\n'
        'probe = ["true"]\n'
        'command = ["env", "EVIDENCE=9"]\n'
    )
    factors = "size = [3, 4]"
    names = ["native", "native-again", "other"]
    own = 'use = "own"'
    (tmp_path / "d.toml").write_text(design(names, own, factors))
    done = run(tmp_path, "--applications", "table.toml", "--environments", str(other))
    assert done.returncode == 1
    assert "nothing is left to compare with native: other: the program failed in it:" in done.stderr
    made = read(tmp_path)
    assert {one["outcome"] for one in made if one["levels"]["environment"] == "native"} == {"ok"}
    failed = [one for one in made if one["outcome"] != "ok"]
    assert {one["levels"]["environment"] for one in failed} == {"other"}
    assert all("in the first run of the base it was" in one["why"] for one in failed)
    # The base has been run once for each size before anything else.
    first = [one["levels"] for one in made[:2]]
    assert {(one["environment"], one["size"]) for one in first} == {
        ("native", "3"),
        ("native", "4"),
    }


def test_rows_with_other_bytes_are_void_if_the_design_says_so(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    sleep = next(path for path in (Path("/bin/sleep"), Path("/usr/bin/sleep")) if path.exists())
    (tmp_path / "other" / "sleep").write_bytes(sleep.read_bytes() + b"changed")
    (tmp_path / "other" / "sleep").chmod(0o755)
    other = tmp_path / "environments.toml"
    other.write_text(
        '[[environment]]\nname = "copied"\ntext = "a changed copy"\ntakes = "host"\n'
        'probe = ["true"]\n'
        f"command = ['sh', '-c', 'shift; exec {tmp_path}/other/sleep \"$@\"', 'sh']\n"
    )
    head = 'same = "program"'
    own = 'command = ["sleep", "0.2"]'
    (tmp_path / "d.toml").write_text(design(["native", "native-again", "copied"], own, head=head))
    done = run(tmp_path, "--environments", str(other))
    made = [one for one in read(tmp_path) if one["row"]]
    of = {name: [one for one in made if one["levels"]["environment"] == name]
          for name in ("native", "native-again", "copied")}  # fmt: skip
    assert {one["outcome"] for one in of["native"] + of["native-again"]} == {"ok"}
    assert done.returncode == 1, done.stderr
    assert {one["outcome"] for one in of["copied"]} == {"void"}
    assert "void: row " in done.stdout
    assert "not the files of native" in done.stdout
    assert "another program file" in done.stdout
    # The same command runs none of them again.
    before = (tmp_path / "d-records" / "records.jsonl").read_bytes()
    assert run(tmp_path, "--environments", str(other)).returncode == 1
    after = (tmp_path / "d-records" / "records.jsonl").read_bytes()
    assert after == before


def test_a_source_that_changes_under_the_records_is_refused(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "d.toml").write_text(design(["native", "native-again"], 'use = "own"'))
    done = run(tmp_path, "--applications", "table.toml")
    assert done.returncode in (0, 3), done.stderr
    with (tmp_path / "src" / "program").open("a") as file:
        file.write("# changed\n")
    done = run(tmp_path, "--applications", "table.toml")
    assert done.returncode == 2
    assert "its records are of another design" in done.stderr


def test_ranks_are_started_by_the_launcher_of_the_application(tmp_path: Path) -> None:
    for program in ("mpicc", "mpirun"):
        if subprocess.run(["sh", "-c", f"command -v {program}"], capture_output=True).returncode:
            hosts.skip(f"{program} is not installed")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    more = 'environment = ["native", "native-again"]\n'
    (tmp_path / "d.toml").write_text(
        f"seed = 1\nreplicates = 1\n[sentinel]\nabove = 9.0\n[factors]\n{more}ranks = [1, 3]\n"
        '[application]\nuse = "ep"\nbuild_in = "host"\n'
    )
    done = run(tmp_path, variables=root if os.geteuid() == 0 else {})
    made = [one for one in read(tmp_path) if one["row"]]
    assert {one["outcome"] for one in made} == {"ok"}, done.stdout + done.stderr
    for one in made:
        ranks = int(one["levels"]["ranks"])
        assert [part["rank"] for part in one["ranks"]] == list(range(ranks))
        assert one["responses"]["pairs"] == 13176389
        parts = ("launch_s", "start_s", "work_s", "communication_s", "end_s")
        whole = sum(part[name] for part in one["ranks"][:1] for name in parts)
        assert whole == pytest.approx(one["wall_s"], abs=1e-6)


def test_an_application_without_its_launcher_is_refused(tmp_path: Path) -> None:
    own = 'command = ["true"]\nparameters = { ranks = 2 }'
    (tmp_path / "d.toml").write_text(design(["native", "native-again"], own))
    done = run(tmp_path)
    assert done.returncode == 2
    assert "has ranks, and nothing that starts them" in done.stderr


def test_rows_of_ranks_that_an_environment_cannot_have_are_left_out(tmp_path: Path) -> None:
    other = tmp_path / "environments.toml"
    other.write_text(
        '[[environment]]\nname = "alone"\ntext = "has one rank"\ntakes = "host"\n'
        'probe = ["true"]\ncommand = ["env"]\none_rank = "it cannot be here"\n'
    )
    names = ["native", "native-again", "alone"]
    own = 'command = ["sleep", "0.0{ranks}"]'
    (tmp_path / "d.toml").write_text(design(names, own, "ranks = [1, 2]"))
    done = run(tmp_path, "--environments", str(other))
    assert done.returncode in (0, 3), done.stderr
    assert "left out: alone with 2 ranks, 1 of its 1 rows: it cannot be here" in done.stdout
    made = [one["levels"] for one in read(tmp_path) if one["row"]]
    assert len(made) == 5
    assert {"environment": "alone", "ranks": "1"} in made
