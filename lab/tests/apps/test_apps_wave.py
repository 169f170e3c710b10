"""The elastic wave: against NumPy, devito and plane waves, and equal for any number of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lab_wave
import pytest
from lab_kernels import (
    LIBRARIES,
    LIMIT_S,
    OPENMPI,
    Kernels,
    Library,
    changed,
    compiled,
    ended,
    is_refused,
    ranks,
    result,
    skip,
    told,
)

pytestmark = pytest.mark.real

WAVE = "wave/wave.c"
SMALL = ("24", "20")
NAMES = ("velocity_norm", "stress_norm")


def near(known: tuple[float, float]) -> object:
    return pytest.approx(known, rel=1e-10)


@pytest.mark.parametrize(("kind", "points", "steps"), [("box", 24, 20), ("source", 31, 45)])
def test_the_norms_are_those_of_the_same_scheme_in_numpy(
    kernels: Kernels, kind: str, points: int, steps: int
) -> None:
    wave = kernels.get(WAVE, OPENMPI)
    line = result(ended(wave, str(points), str(steps), kind))
    assert tuple(line[name] for name in NAMES) == near(lab_wave.norms(kind, points, steps))


def test_the_known_norms_are_those_of_numpy(kernels: Kernels) -> None:
    # The program compares with its table; this one is in it.
    line = result(ended(kernels.get(WAVE, OPENMPI), *SMALL))
    known = lab_wave.norms("source", 24, 20)
    assert tuple(line[name] for name in NAMES) == near(known)
    assert line["norms"] == "{:.6e} {:.6e}".format(*known)


def test_the_norms_are_those_of_devito(kernels: Kernels) -> None:
    python = os.environ.get("CORACLE_LAB_DEVITO", sys.executable)
    script = Path(__file__).with_name("devito_box.py")
    if ended(python, "-c", "import devito").returncode != 0:
        skip(f"{python} has no devito; CORACLE_LAB_DEVITO names a Python that has it")
    line = [python, str(script), "24", "20"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    velocity, stress = (float(word) for word in done.stdout.split())
    told_here = result(ended(kernels.get(WAVE, OPENMPI), *SMALL, "box"))
    assert tuple(told_here[name] for name in NAMES) == near((velocity, stress))


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_all_numbers_of_ranks_have_the_same_norms(kernels: Kernels, library: Library) -> None:
    wave = kernels.get(WAVE, library)
    lines = [result(ranks(library, wave, "26", "12", count=count)) for count in (1, 2, 4)]
    for line in lines[1:]:
        assert [line[name] for name in NAMES] == pytest.approx(
            [lines[0][name] for name in NAMES], rel=1e-12
        )
    # Two sides of a step each have a message to one neighbour (2 ranks) or to two (4 ranks).
    assert [line["messages"] for line in lines] == [0, 2 * 12, 4 * 12]
    assert lines[1]["sent_bytes"] == 12 * (3 + 6) * 2 * 26 * 26 * 8


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
@pytest.mark.parametrize("kind", ["p", "s"])
def test_a_plane_wave_solves_the_difference_equations(
    kernels: Kernels, library: Library, kind: str
) -> None:
    wave = kernels.get(WAVE, library)
    for count in (1, 2, 4):
        line = result(ranks(library, wave, "16", "15", kind, count=count))
        assert line["deviation"] < 1e-12


@pytest.mark.parametrize("kind", ["p", "s"])
def test_plane_waves_converge(kernels: Kernels, kind: str) -> None:
    wave = kernels.get(WAVE, OPENMPI)

    def errors(*cases: tuple[int, int, float]) -> list[float]:
        words = [(str(points), str(steps), kind, str(courant)) for points, steps, courant in cases]
        return [result(ended(wave, *one))["error"] for one in words]

    # So short a step that only the order in space is left, the 4th: half the spacing, same time.
    coarse, fine = errors((20, 60, 0.05), (40, 120, 0.05))
    assert 13 < coarse / fine < 18
    # The same points: what the errors differ by is the step's, with its square.
    one, two, three = errors((40, 24, 1), (40, 30, 0.8), (40, 40, 0.6))
    assert (one - two) / (two - three) == pytest.approx((1 - 0.64) / (0.64 - 0.36), rel=0.05)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        # A coefficient of the derivative, a message that is not taken, a layer that absorbs less.
        ("1.0 / 24 * far", "1.0 / 25 * far", "the norms are wrong"),
        ("group, side, 0);\n    lab", "group, side, 1);\n    lab", "the norms are wrong"),
        ("#define PEAK_HZ 2.0", "#define PEAK_HZ 2.1", "the norms are wrong"),
        ("step_s = courant *", "step_s = 9 * courant *", "the wave is not finite"),
    ],
)
def test_a_wrong_wave_is_told(tmp_path: Path, before: str, after: str, error: str) -> None:
    source = changed(WAVE, tmp_path, before, after)
    wave = compiled(source, tmp_path / "wave", "-DLAB_MPI", compiler=OPENMPI.compiler)
    steps = "250" if "finite" in error else "20"
    done = ranks(OPENMPI, wave, "24", steps)
    assert done.returncode == 1, done.stdout
    assert f"error: {error}" in done.stderr


def test_a_wrong_plane_wave_is_told(tmp_path: Path) -> None:
    source = changed(WAVE, tmp_path, "+ 2 * rigid[0][k] * rows", "+ 2.01 * rigid[0][k] * rows")
    wave = compiled(source, tmp_path / "wave", "-DLAB_MPI", compiler=OPENMPI.compiler)
    for kind in ("p", "s"):
        done = ended(wave, "16", "15", kind)
        assert done.returncode == 1
        assert "error: the wave deviates by" in done.stderr
        assert told(done.stdout)[0]["deviation"] > 1e-4


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "how many points"),
        (["24"], "how many points"),
        (["24", "20", "source", "0.8", "1"], "how many points"),
        (["11", "20"], "the number of points"),
        (["5000", "20"], "the number of points"),
        (["24", "0"], "the number of steps"),
        (["24", "x"], "the number of steps"),
        (["24", "20", "q"], "no such kind"),
        (["24", "20", "p", "1.5"], "COURANT"),
        (["24", "20", "p", "nan"], "COURANT"),
    ],
)
def test_wave_refuses_wrong_words(kernels: Kernels, words: list[str], what: str) -> None:
    is_refused(ended(kernels.get(WAVE, OPENMPI), *words), what)


def test_wave_refuses_more_ranks_than_it_can_share_out(kernels: Kernels) -> None:
    done = ranks(OPENMPI, kernels.get(WAVE, OPENMPI), "12", "5", count=8)
    is_refused(done, "there are too many ranks")
