"""Profiles of messages: files, and the lab's own kernels against what they print."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from coracle_lab.errors import LabError
from coracle_lab.model import kernels, profile

TEXT = """
name = "halo"
steps = 10
[[message]]
count = 2
bytes = 4096
grows = "line"
bytes_power = -0.5
[[message]]
count = 1
bytes = 8
grows = "log2"
per = "run"
"""
APPS = Path(__file__).resolve().parents[2] / "apps"


def test_a_profile_grows_with_the_ranks() -> None:
    made = profile.parse(TEXT, "p.toml")
    assert made.plan(1) == []
    assert made.plan(2) == [(20, pytest.approx(4096 / 2**0.5)), (1, 8)]
    assert made.plan(16) == [(40, 1024), (4, 8)]
    many = profile.Profile("a", 3, (profile.Message(1, 64, grows="others"),))
    assert many.plan(5) == [(12, 64)]
    assert profile.Message(1, 4, bytes_power=-2).size(16) == 1, "a message has a byte at least"


def test_json_of_the_same_form_is_the_same_profile() -> None:
    value = {
        "name": "halo",
        "steps": 10,
        "message": [
            {"count": 2, "bytes": 4096, "grows": "line", "bytes_power": -0.5},
            {"count": 1, "bytes": 8, "grows": "log2", "per": "run"},
        ],
    }
    assert profile.parse(json.dumps(value), "p.json") == profile.parse(TEXT, "p.toml")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("steps = 10", "steps = 0", "steps is 0"),
        ("steps = 10", "steps = 1.5", "steps is 1.5"),
        ("steps = 10", "step = 10", 'unknown key "step"'),
        ("count = 2", "count = 0", "count 0 of 4096 bytes is no message"),
        ("count = 2\n", "", "message 1 has no count"),
        ("count = 2", "count = true", "message 1: count is True, not a number"),
        ("count = 2", "count = nan", "message 1: count is nan, not a number"),
        ("bytes = 4096", "bytes = 0.5", "count 2 of 0.5 bytes is no message"),
        ('grows = "line"', 'grows = "ring"', 'grows is "ring"'),
        ('per = "run"', 'per = "day"', 'message 2: per is "day"'),
        ("steps = 10", 'scaling = "none"', 'scaling is "none"'),
        ("[[message]]", "[message]", "neither TOML nor JSON"),
    ],
)
def test_bad_profiles(before: str, after: str, why: str) -> None:
    assert before in TEXT
    with pytest.raises(LabError, match=why):
        profile.parse(TEXT.replace(before, after), "p.toml")


def test_a_profile_without_messages_is_none() -> None:
    with pytest.raises(LabError, match="it has no messages") as found:
        profile.parse("steps = 3", "p.toml")
    assert "none" in (found.value.hint or "")
    with pytest.raises(LabError, match="message is not a list"):
        profile.parse("message = 3", "p.toml")
    assert kernels.known("none", {}).is_silent


def test_the_hopping_term_scales_weakly_and_sends_faces() -> None:
    plan = kernels.known("hopping", {"lattice": "8", "sweeps": "10"})
    assert plan.is_weak
    assert [plan.plan(ranks) for ranks in (1, 2, 4)] == [[], [(20, 49152)], [(40, 49152)]]
    assert not kernels.known("wave", {}).is_weak
    assert profile.parse('scaling = "weak"\n' + TEXT, "p").is_weak


def test_ranks_are_shared_out_as_mpi_does_it() -> None:
    assert [kernels.shares(p) for p in (1, 2, 4, 6, 7, 12, 256)] == [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (7, 1),
        (4, 3),
        (16, 16),
    ]


def test_what_is_not_known_is_refused_with_what_is() -> None:
    with pytest.raises(LabError, match='the messages of "lammps" are not known') as found:
        kernels.known("lammps", {})
    assert "ep, hopping, wave" in (found.value.hint or "")
    with pytest.raises(LabError, match='depend on "points"'):
        kernels.known("wave", {"steps": "3"}).plan(2)
    with pytest.raises(LabError, match="to themselves"):
        kernels.known("wave", {"kind": "p", "points": "24", "steps": "3"}).plan(2)


def test_parameters_are_a_designs_levels_where_one_is_meant() -> None:
    given = {"points": "24", "steps": "5"}
    factors = {"points": ("24", "48"), "steps": ("7",)}
    assert kernels.parameters_of(given, factors, {}) == {"steps": "7"}
    assert kernels.parameters_of(given, factors, {"points": "48"}) == {"points": "48", "steps": "7"}


@pytest.mark.real
def test_the_waves_profile_is_what_the_wave_sends(tmp_path: Path) -> None:
    """The kernel prints how many messages of how many bytes its busiest rank has sent."""
    if shutil.which("mpicc") is None or shutil.which("mpirun") is None:
        print("SKIP: mpicc or mpirun is not installed")
        pytest.skip("mpicc or mpirun is not installed")
    source = APPS / "wave/wave.c"
    program = tmp_path / "wave"
    build = ["mpicc", "-O1", "-DLAB_MPI", str(source), "-o", str(program), "-lm"]
    subprocess.run(build, check=True, timeout=120)
    points, steps = 24, 3
    plan = kernels.known("wave", {"points": str(points), "steps": str(steps)})
    for ranks in (2, 4):
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
        words += [str(program), str(points), str(steps), "box"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
        line = next(one for one in done.stdout.split("\n") if one.startswith("lab {"))
        told = json.loads(line.removeprefix("lab "))
        # What is sent before the first step is not counted by the kernel.
        share = steps / (steps + 1)
        messages = plan.plan(ranks)
        assert int(told["messages"]) == sum(number for number, _ in messages) * share
        assert told["sent_bytes"] == sum(number * size for number, size in messages) * share
