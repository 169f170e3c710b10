"""The hopping term: eigenvalues, adjoint, sweeps and checkpoints; and each wrong one is told."""

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

HOPPING = "hopping/hopping.c"
WAVE, TURNED = "a plane wave with unit links is off", "a transformed plane wave is off"
ADJOINT, SWEEPS = "the term is not g_5-hermitian", "the spinors after the sweeps are off"


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_the_term_is_right_on_all_numbers_of_ranks(kernels: Kernels, library: Library) -> None:
    # 1 rank, 2 in t, 2 x 2 in t and z. The program checks; a difference is an exit status of 1.
    for count, messages in ((1, 0), (2, 2 * 25), (4, 4 * 25)):
        line = result(ranks(library, kernels.get(HOPPING, library), "4", "25", count=count))
        # A half spinor has 2 x 3 complex numbers, a face 4^3 of them.
        assert (line["messages"], line["sent_bytes"]) == (messages, messages * 4**3 * 6 * 16)
        assert line["deviation"] < 1e-13
        assert line["gflops"] > 0


def test_checkpoints_are_what_was_written_last(kernels: Kernels, tmp_path: Path) -> None:
    words = ("4", "25", "10", tmp_path)
    line = result(ranks(OPENMPI, kernels.get(HOPPING, OPENMPI), *words))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hopping.0", "hopping.1"]
    # 4 x 3 complex numbers a site, 4^4 sites; and the number of sweeps.
    size = 4**4 * 24 * 8 + 4
    assert all(path.stat().st_size == size for path in tmp_path.iterdir())
    assert line["checkpoint_bytes"] == size
    assert line["checkpoint_s"] > 0


def test_a_checkpoint_that_cannot_be_written_is_told(kernels: Kernels, tmp_path: Path) -> None:
    (tmp_path / "hopping.0.new").mkdir()
    done = ended(kernels.get(HOPPING, OPENMPI), "4", "25", "10", tmp_path)
    assert done.returncode == 1
    assert f"error: cannot create {tmp_path}/hopping.0.new: Is a directory" in done.stderr


@pytest.mark.parametrize(
    ("before", "after", "errors", "count"),
    [
        # A Dirac matrix that does not anticommute; a link that is not the adjoint; a halo that
        # is not added.
        ("{1, 3, 3, 1}", "{1, 1, 3, 3}", [WAVE], 1),
        ("1), 1), axis, 1);\n}", "1), 0), axis, 1);\n}", [TURNED, ADJOINT], 1),
        ("(parts[Z] > 1) add_ends", "(parts[Z] > 2) add_ends", [WAVE, TURNED, SWEEPS], 4),
        # A checkpoint of an earlier sweep; one whose name is wrong.
        ("checkpoint(in, one, path", "checkpoint(in, one - 2, path", [SWEEPS], 1),
        ("rename(fresh, path)", "rename(path, fresh)", ["cannot rename"], 1),
    ],
)
def test_a_wrong_term_is_told(
    tmp_path: Path, before: str, after: str, errors: list[str], count: int
) -> None:
    source = changed(HOPPING, tmp_path, before, after)
    words = ("-DLAB_MPI", "-Wno-unused-function")
    hopping = compiled(source, tmp_path / "hopping", *words, compiler=OPENMPI.compiler)
    done = ranks(OPENMPI, hopping, "4", "25", "10", tmp_path, count=count)
    assert done.returncode == 1, done.stdout
    for error in errors:
        assert f"error: {error}" in done.stderr


def test_nan_is_told(tmp_path: Path) -> None:
    before = "set_links(TRANSFORMED);\n    for"
    after = before.replace("\n", "\n    links[0][0].of[0][0].re = NAN;\n")
    source = changed(HOPPING, tmp_path, before, after)
    hopping = compiled(source, tmp_path / "hopping", "-DLAB_MPI", compiler=OPENMPI.compiler)
    done = ended(hopping, "4", "5")
    assert done.returncode == 1
    assert f"error: {SWEEPS}" in done.stderr
    assert not told(done.stdout), "inf is not JSON"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "which lattice"),
        (["4", "5", "1", "/tmp", "x"], "which lattice"),
        (["5", "5"], "the lattice is not an even number"),
        (["2", "5"], "the lattice is not an even number"),
        (["4", "0"], "the number of sweeps"),
        (["4", "5", "-1"], "how many sweeps"),
        (["4", "5", "x", "/tmp"], "how many sweeps"),
        (["4", "5", "1"], "in which directory"),
        (["4", "5", "1", "/nowhere"], "checkpoints cannot be written"),
    ],
)
def test_hopping_refuses_wrong_words(kernels: Kernels, words: list[str], what: str) -> None:
    is_refused(ended(kernels.get(HOPPING, OPENMPI), *words), what)
