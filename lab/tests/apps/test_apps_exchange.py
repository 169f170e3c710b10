"""All-to-all and MPI-IO: contents are checked, and wrong ones are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_kernels import (
    LIBRARIES,
    OPENMPI,
    Kernels,
    Library,
    changed,
    compiled,
    ended,
    is_refused,
    ranks,
    result,
    told,
)

pytestmark = pytest.mark.real

ALLTOALL, MPIIO = "alltoall/alltoall.c", "mpiio/mpiio.c"


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_all_ranks_get_what_all_sent(kernels: Kernels, library: Library) -> None:
    for count in (2, 4):
        words = ("1,8,1000,65536", "20")
        done = ranks(library, kernels.get(ALLTOALL, library), *words, count=count)
        assert done.returncode == 0, done.stderr
        lines = told(done.stdout)
        assert [line["bytes"] for line in lines] == [1, 8, 1000, 65536]
        assert all(line["exchange_s"] > 0 for line in lines)


@pytest.mark.parametrize("shift", ["0", "1", "3"])
@pytest.mark.parametrize("files", ["shared", "own"])
def test_a_block_is_read_by_another_rank(
    kernels: Kernels, tmp_path: Path, shift: str, files: str
) -> None:
    # 300 KiB do not divide the block: the last transfer is shorter.
    words = ("1", shift, tmp_path, files, "300")
    line = result(ranks(OPENMPI, kernels.get(MPIIO, OPENMPI), *words))
    assert line["write_bytes_per_s"] > 0
    assert line["read_bytes_per_s"] > 0
    assert not list(tmp_path.iterdir()), "the files are removed"


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_blocks_of_four_ranks_lie_in_one_file(
    kernels: Kernels, tmp_path: Path, library: Library
) -> None:
    result(ranks(library, kernels.get(MPIIO, library), "1", "1", tmp_path, count=4))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Reading at a wrong place, two blocks in one place, one word that is not written.
        ("_read_at(file, begin + done", "_read_at(file, begin"),
        ("(MPI_Offset)owner * block_bytes", "(MPI_Offset)(owner / 2) * block_bytes"),
        ("    double written =", "    block[many - 1] = 0;\n    double written ="),
    ],
)
def test_a_wrong_block_is_told(tmp_path: Path, before: str, after: str) -> None:
    source = changed(MPIIO, tmp_path, before, after)
    program = compiled(source, tmp_path / "mpiio", "-DLAB_MPI", compiler=OPENMPI.compiler)
    done = ranks(OPENMPI, program, "1", "1", tmp_path)
    assert done.returncode == 1, done.stdout
    assert "error: what was read is not what was written" in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fill(mine, bytes);", "fill(mine, bytes - 1);"),
        ("sender * 31 + receiver * 101) % 251", "sender * 31 + receiver * 101 + lab_rank) % 251"),
    ],
)
def test_a_wrong_exchange_is_told(tmp_path: Path, before: str, after: str) -> None:
    source = changed(ALLTOALL, tmp_path, before, after)
    program = compiled(source, tmp_path / "alltoall", "-DLAB_MPI", compiler=OPENMPI.compiler)
    done = ranks(OPENMPI, program, "1000", "10")
    assert done.returncode == 1, done.stdout
    assert "error: what came is not what was sent" in done.stderr


@pytest.mark.parametrize("files", ["shared", "own"])
def test_a_directory_that_is_not_there_is_told(kernels: Kernels, files: str) -> None:
    done = ranks(OPENMPI, kernels.get(MPIIO, OPENMPI), "1", "1", "/nowhere", files)
    assert done.returncode == 1
    assert "error: cannot open /nowhere/mpiio.data" in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "which sizes"),
        ([""], "which sizes"),
        (["8", "10", "1"], "which sizes"),
        (["8"], "it needs two ranks"),
    ],
)
def test_alltoall_refuses_wrong_words(kernels: Kernels, words: list[str], what: str) -> None:
    is_refused(ended(kernels.get(ALLTOALL, OPENMPI), *words), what)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["8,0", "10"], "a size is not from 1"),
        (["8;9", "10"], "a size is not from 1"),
        (["8", "x"], "the number of rounds"),
    ],
)
def test_alltoall_refuses_wrong_sizes(kernels: Kernels, words: list[str], what: str) -> None:
    is_refused(ranks(OPENMPI, kernels.get(ALLTOALL, OPENMPI), *words), what)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["1", "1"], "how much"),
        (["0", "1", "/tmp"], "MIB is not"),
        (["1", "-1", "/tmp"], "the shift"),
        (["1", "x", "/tmp"], "the shift"),
        (["1", "1", "/tmp", "both"], "the files"),
        (["1", "1", "/tmp", "own", "0"], "KIB is not"),
        (["1", "1", "/" + 5000 * "x"], "the directory's name is too long"),
    ],
)
def test_mpiio_refuses_wrong_words(kernels: Kernels, words: list[str], what: str) -> None:
    is_refused(ended(kernels.get(MPIIO, OPENMPI), *words), what)
