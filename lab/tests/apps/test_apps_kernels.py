"""The programs that are measured: their results are checked, and a wrong one is told."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

APPS = Path(__file__).parents[2] / "apps"
LIMIT_S = 300


def compiled(source: Path, into: Path, *words: str, compiler: str = "gcc") -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    line = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", *words, str(source), "-o", str(into)]
    subprocess.run([*line, "-lm"], check=True, timeout=LIMIT_S)
    return into


def ended(*words: str | Path) -> subprocess.CompletedProcess[str]:
    line = [str(word) for word in words]
    return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def told(text: str, begin: str = "lab ") -> list[dict[str, float]]:
    return [json.loads(line[len(begin) :]) for line in text.splitlines() if line.startswith(begin)]


def ranks(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Two ranks, started by the launcher of the library that the program was compiled with."""
    if program == "mpirun.openmpi":
        more = ["--allow-run-as-root", "--oversubscribe"]
        return ended(program, *more, "-n", "2", *words)
    return ended(program, "-n", "2", *words)


LIBRARIES = [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc.mpich", "mpiexec.mpich")]


def test_the_sums_of_ep_are_the_published_ones(tmp_path: Path) -> None:
    ep = compiled(APPS / "ep" / "ep.c", tmp_path / "ep", "-fopenmp")
    for words in (["S"], ["S", "2"], ["W"]):
        done = ended(ep, *words)
        assert done.returncode == 0, done.stderr
    # NPB's own program prints this number for class W.
    assert told(done.stdout)[0]["pairs"] == 26354769
    times = told(done.stdout, "lab-rank ")[0]
    assert times["first_ns"] <= times["init_ns"] <= times["work_ns"] <= times["end_ns"]


def test_a_wrong_sum_of_ep_is_told(tmp_path: Path) -> None:
    text = (APPS / "ep" / "ep.c").read_text()
    changed = text.replace("#define SEED 271828183u", "#define SEED 271828185u")
    assert changed != text
    source = tmp_path / "ep.c"
    source.write_text(changed.replace('"../lab.h"', f'"{APPS / "lab.h"}"'))
    done = ended(compiled(source, tmp_path / "ep", "-fopenmp"), "S")
    assert done.returncode == 1
    assert "error: the sums are wrong" in done.stderr


@pytest.mark.parametrize("words", [[], ["Q"], ["S", "0"], ["S", "1", "2"], ["S", "2"]])
def test_ep_refuses_wrong_words(tmp_path: Path, words: list[str]) -> None:
    # Compiled without threads, two of them are refused as well.
    ep = compiled(APPS / "ep" / "ep.c", tmp_path / "ep", "-Wno-unknown-pragmas")
    done = ended(ep, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "\n  hint: " in done.stderr


@pytest.mark.parametrize(("compiler", "launcher"), LIBRARIES)
def test_ranks_share_ep_out(tmp_path: Path, compiler: str, launcher: str) -> None:
    ep = compiled(APPS / "ep" / "ep.c", tmp_path / "ep", "-DLAB_MPI", "-fopenmp", compiler=compiler)
    done = ranks(launcher, ep, "S")
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[0]["pairs"] == 13176389
    assert sorted(one["rank"] for one in told(done.stdout, "lab-rank ")) == [0, 1]


@pytest.mark.parametrize(("compiler", "launcher"), LIBRARIES)
@pytest.mark.parametrize("kind", ["cold", "warm", "stream"])
def test_messages_arrive_as_they_were_sent(
    tmp_path: Path, compiler: str, launcher: str, kind: str
) -> None:
    source = APPS / "pingpong" / "pingpong.c"
    program = compiled(source, tmp_path / "pingpong", "-DLAB_MPI", compiler=compiler)
    done = ranks(launcher, program, kind, "1,8,1000,65536", "50")
    assert done.returncode == 0, done.stderr
    assert [one["bytes"] for one in told(done.stdout)] == [1, 8, 1000, 65536]
    name = "bytes_per_s" if kind == "stream" else "one_way_s"
    assert all(one[name] > 0 for one in told(done.stdout))


def test_a_message_that_differs_is_told(tmp_path: Path) -> None:
    text = (APPS / "pingpong" / "pingpong.c").read_text()
    changed = text.replace("fill(mine, bytes, lab_rank);", "fill(mine, bytes, 5);")
    assert changed != text
    source = tmp_path / "pingpong.c"
    source.write_text(changed.replace('"../lab.h"', f'"{APPS / "lab.h"}"'))
    program = compiled(source, tmp_path / "pingpong", "-DLAB_MPI", compiler="mpicc.openmpi")
    for kind in ("cold", "warm"):
        done = ranks("mpirun.openmpi", program, kind, "1000", "50")
        assert done.returncode == 1, done.stdout
        assert "error: what came is not what was sent" in done.stderr
