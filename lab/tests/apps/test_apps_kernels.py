"""The programs that are measured: their results are checked, and a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_kernels import (
    APPS,
    LIBRARIES,
    OPENMPI,
    Kernels,
    Library,
    changed,
    compiled,
    ended,
    ranks,
    told,
)

pytestmark = pytest.mark.real


def test_the_sums_of_ep_are_the_published_ones(tmp_path: Path) -> None:
    ep = compiled(APPS / "ep" / "ep.c", tmp_path / "ep", "-fopenmp")
    for words in (["S"], ["S", "2"], ["W"]):
        done = ended(ep, *words)
        assert done.returncode == 0, done.stderr
    # NPB's own program prints this number for class W.
    assert told(done.stdout)[0]["pairs"] == 26354769
    times = told(done.stdout, "lab-rank ")[0]
    assert times["first_ns"] <= times["init_ns"] <= times["work_ns"] <= times["end_ns"]


def test_ep_can_be_linked_statically_with_musl(tmp_path: Path) -> None:
    words = ["-static", "-Wno-unknown-pragmas"]
    ep = compiled(APPS / "ep" / "ep.c", tmp_path / "ep", *words, compiler="musl-gcc")
    done = ended(ep, "S")
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[0]["pairs"] == 13176389


def test_a_wrong_sum_of_ep_is_told(tmp_path: Path) -> None:
    source = changed("ep/ep.c", tmp_path, "SEED 271828183u", "SEED 271828185u")
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


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_ranks_share_ep_out(tmp_path: Path, library: Library) -> None:
    words = ("-DLAB_MPI", "-fopenmp")
    ep = compiled(APPS / "ep" / "ep.c", tmp_path / "ep", *words, compiler=library.compiler)
    done = ranks(library, ep, "S")
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[0]["pairs"] == 13176389
    assert sorted(one["rank"] for one in told(done.stdout, "lab-rank ")) == [0, 1]


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
@pytest.mark.parametrize("kind", ["cold", "warm", "stream"])
def test_messages_arrive_as_they_were_sent(kernels: Kernels, library: Library, kind: str) -> None:
    program = kernels.get("pingpong/pingpong.c", library)
    done = ranks(library, program, kind, "1,8,1000,65536", "50")
    assert done.returncode == 0, done.stderr
    assert [one["bytes"] for one in told(done.stdout)] == [1, 8, 1000, 65536]
    name = "bytes_per_s" if kind == "stream" else "one_way_s"
    assert all(one[name] > 0 for one in told(done.stdout))


def test_a_message_that_differs_is_told(tmp_path: Path) -> None:
    before, after = "fill(mine, bytes, lab_rank);", "fill(mine, bytes, 5);"
    source = changed("pingpong/pingpong.c", tmp_path, before, after)
    program = compiled(source, tmp_path / "pingpong", "-DLAB_MPI", compiler=OPENMPI.compiler)
    for kind in ("cold", "warm"):
        done = ranks(OPENMPI, program, kind, "1000", "50")
        assert done.returncode == 1, done.stdout
        assert "error: what came is not what was sent" in done.stderr
