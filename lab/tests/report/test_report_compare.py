"""Two sessions are compared by ratios to their own base, in fixed words."""

from __future__ import annotations

from pathlib import Path

import lab_made as made
import pytest

from coracle_lab import stats
from coracle_lab.cli import main

pytestmark = pytest.mark.long

RATIOS = {**made.RATIOS, "coracle:P1": 1.10}


def compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> tuple[int, str, str]:
    status = main(["compare", str(tmp_path / old), str(tmp_path / new)])
    said = capsys.readouterr()
    return status, said.out, said.err


def rows(out: str) -> dict[str, str]:
    return {line.split()[0]: line for line in out.splitlines() if line.count("  ") > 2}


def test_only_what_changed_is_said_to_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new session is 6 % slower in everything, and P1 is 8 % slower besides."""
    made.make(tmp_path / "old", made.design(), made.plain(noise=0.002))
    new = made.design().replace("seed = 5", "seed = 6")
    made.make(tmp_path / "new", new, made.plain(RATIOS, noise=0.002, time=1.06))
    status, out, _ = compared(tmp_path, capsys, "old", "new")
    found = rows(out)
    assert status == 0
    assert "slower than before by 7." in found["coracle:P1"]
    for name in ("coracle:N1", "docker", "native-again"):
        assert "unchanged within ±1 % (TOST)" in found[name], out
    assert "native itself: +6" in out
    assert "not judged" in out
    assert "Times of the two sessions are not compared" in out
    status, out, _ = compared(tmp_path, capsys, "new", "old")
    assert "faster than before by 6.9 to 7." in rows(out)["coracle:P1"]


def test_an_untrusted_session_gives_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make(tmp_path / "old", made.design())
    made.make(tmp_path / "new", made.design(), made.plain({**made.RATIOS, "native-again": 1.2}))
    status, out, _ = compared(tmp_path, capsys, "old", "new")
    assert status == 3
    assert "new: A/A fails" in out
    assert "unchanged" not in out
    assert "not trusted" in rows(out)["docker"]


def test_other_programs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.make(tmp_path / "old", made.design())
    made.make(tmp_path / "new", made.design(application='command = ["model", "-v"]'))
    status, _, error = compared(tmp_path, capsys, "old", "new")
    assert status == 2
    assert "not of the same application: command was model and is model -v" in error
    made.make(tmp_path / "base", made.design(more='base = "docker"'))
    assert "the bases differ: native and docker" in compared(tmp_path, capsys, "old", "base")[2]


def test_what_one_side_alone_has_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    less = ("native", "native-again", "coracle:N1")
    made.make(tmp_path / "old", made.design(factors="ranks = [1, 2]"))
    made.make(tmp_path / "new", made.design(less, factors="ranks = [2, 4]"))
    status, out, _ = compared(tmp_path, capsys, "old", "new")
    assert status == 0
    for words in ("wall_s, ranks 1: old only", "wall_s, ranks 4: new only", "docker: old only"):
        assert f"not compared: {words}" in out
    made.make(tmp_path / "none", made.design(factors="ranks = [8]"))
    assert "no cell in common" in compared(tmp_path, capsys, "old", "none")[2]


def _comparison(values: dict[str, list[float]]) -> stats.Comparison:
    (found,) = stats.compare(values, "native")
    return found


def test_the_ratio_of_ratios_is_that_of_two_independent_estimates() -> None:
    """Deviations 0.01 and 0.02 of 4 and 9 blocks: se = sqrt(0.01²/4 + 0.02²/9)."""
    old = _log_pairs([-0.01, 0.01, -0.01, 0.01], 0.0)
    new = _log_pairs([-0.02, 0.02, -0.02, 0.02, 0.0, 0.02, -0.02, 0.02, -0.02], 0.05)
    one, other = _comparison(old), _comparison(new)
    (found,) = stats.changes([(one, other)], 0.01)
    assert found.ratio == pytest.approx(2.718281828**0.05)
    error = ((one.sd_of_log_ratio or 0) ** 2 / 4 + (other.sd_of_log_ratio or 0) ** 2 / 9) ** 0.5
    wide = found.intervals[0]
    factor = (wide.high / found.ratio) ** (1 / error)
    # The t factor lies between those of 3 and of 11 degrees of freedom: e^2.2 to e^3.18.
    assert 9.0 < factor < 24.1


def _log_pairs(logs: list[float], shift: float) -> dict[str, list[float]]:
    base = [1.0 + 0.001 * at for at in range(len(logs))]
    other = [value * 2.718281828 ** (log + shift) for value, log in zip(base, logs, strict=True)]
    return {"native": base, "x": other}


def test_what_cannot_be_compared_says_why() -> None:
    good = _comparison(_log_pairs([-0.01, 0.01, 0.0], 0.0))
    bad = _comparison({"native": [1.0], "x": [1.0]})
    (found,) = stats.changes([(bad, good)], 0.01)
    assert found.verdict == "not compared: old: one block has both x and native"
    assert found.ratio is None
    assert stats.changes([], 0.01) == []
