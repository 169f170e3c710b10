"""What the terminal and the page have in common, and what a page is told of its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_made as made
import pytest

from coracle_lab import stats
from coracle_lab.design import Row
from coracle_lab.facts.commit import commit
from coracle_lab.report import judged, pictures
from coracle_lab.report.analysis import analyse
from coracle_lab.report.pictures import FACETS_AT_MOST, Wanted
from coracle_lab.run import records
from coracle_lab.run.store import Store


def _cell(shift: float, again: float) -> dict[str, list[float]]:
    noise = [-0.01, 0.0, 0.01, 0.0, -0.01, 0.01]
    base = [1.0 + 0.001 * at for at in range(6)]
    values = {"native": base}
    for name, more in (("native-again", again), ("x", shift)):
        pairs = zip(base, noise, strict=True)
        values[name] = [value * 2.718281828 ** (one + more) for value, one in pairs]
    return values


def test_cells_share_the_familywise_error() -> None:
    alone = stats.compare(_cell(0.015, 0.0), "native")
    cells = stats.compare_cells([_cell(0.015, 0.0)] * 10, "native")
    for found in cells:
        for one, in_family in zip(alone, found, strict=True):
            assert one.t_p == in_family.t_p
    x = cells[0][1]
    assert alone[1].holm_p == alone[1].t_p
    assert x.holm_p == pytest.approx(min(1.0, 10 * (x.t_p or 0)))
    assert alone[1].verdict.startswith("slower")
    assert cells[0][1].verdict.startswith("undecided")


def test_a_a_controls_are_a_family_of_their_own() -> None:
    """One control in ten has p = 0.01: it alarms alone, and not as the smallest of ten."""
    first = _cell(0.0, 0.0135)
    (alone, _) = stats.compare(first, "native")
    assert 0.005 < (alone.t_p or 0) < 0.05
    assert not stats.guard(alone).trusted
    cells = stats.compare_cells([first, *[_cell(0.0, 0.0)] * 9], "native")
    assert stats.guard(cells[0][0]).trusted
    assert cells[0][0].holm_p == pytest.approx(10 * (alone.t_p or 0))


def test_a_series_stands_for_its_responses_in_the_order_of_their_keys(tmp_path: Path) -> None:
    found = made.make(tmp_path / "r", made.design())
    values = {"t_s@16": 1.0, "t_s@2": 1.0, "t_s@big": 1.0, "other_s@1": 1.0}
    every = [records.Record(made.line(found, found.rows[0], 1.0, responses=values))]
    assert judged.responses(["t_s@*", "wall_s"], every) == ["t_s@2", "t_s@16", "t_s@big", "wall_s"]
    assert judged.responses(["none@*"], every) == []


def test_cells_are_in_the_order_of_the_design(tmp_path: Path) -> None:
    found = made.make(tmp_path / "r", made.design(factors="ranks = [1, 2, 16, 4]"))
    assert [one.cell.levels["ranks"] for one in analyse(found).judged] == ["1", "2", "16", "4"]


def test_a_cell_in_which_the_base_does_not_run_has_no_ratio_and_spoils_no_other(
    tmp_path: Path,
) -> None:
    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        is_native = row.levels["environment"].startswith("native")
        if not (is_native and row.levels["release"] == "old"):
            yield from made.plain()(found, row)

    design = made.design(factors='release = ["old", "new"]')
    found = made.make(tmp_path / "r", design, maker)
    first = next(row for row in found.rows if row.levels["release"] == "old")
    levels = {**first.levels, "environment": "native"}
    line = made.line(found, first, 0.0, **made.failed("no such library"))
    records.append(found.directory / "records.jsonl", {**line, "row": 0, "levels": levels})
    analysis = analyse(found)
    assert analysis.trusted
    old, new = analysis.judged
    assert old.guard is None and not old.compared
    assert new.guard is not None and new.guard.trusted and len(new.compared) == 4
    (native, *_) = analysis.left_out
    assert native == ("native", 12, 24, "the program failed in it: no such library")


def test_memory_is_more_and_not_slower(tmp_path: Path) -> None:
    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        ratio = 2.0 if row.levels["environment"] == "docker" else 1.0
        size = 1e6 * ratio * made.spread(row, 0.001)
        yield made.line(found, row, 1.0, responses={"pss_bytes": size})

    design = made.design(
        more='responses = ["pss_bytes"]', application='command = ["m"]\nreads = "lab"'
    )
    (one,) = analyse(made.make(tmp_path / "r", design, maker)).judged
    docker = one.of("docker")
    assert docker is not None and docker.verdict.startswith("more by 9")


def test_many_facets_become_several_figures(tmp_path: Path) -> None:
    factors = 'kind = ["a", "b", "c", "d"]\nsize = [1, 2]'
    found = analyse(made.make(tmp_path / "r", made.design(factors=factors)))
    wanted = Wanted("times", "native", found.environments())
    drawn = pictures.pictures(found.judged, wanted)
    assert sum(len(one.facets) for one in drawn) == 8
    assert all(len(one.facets) <= FACETS_AT_MOST for one in drawn)
    assert drawn[0].facets[0].title == "kind a, size 1"
    panels = Wanted("times", "native", found.environments(), x="kind", panels="size")
    (one,) = pictures.pictures(found.judged, panels)
    assert (one.x_name, one.xs) == ("kind", ("a", "b", "c", "d"))
    assert [facet.title for facet in one.facets] == ["size 1", "size 2"]


def test_a_commit_is_read_from_gits_own_files(tmp_path: Path) -> None:
    digest, other = "a" * 40, "b" * 40
    git = tmp_path / "tree/.git"
    (git / "refs/heads").mkdir(parents=True)
    inside = tmp_path / "tree/lab/coracle_lab"
    inside.mkdir(parents=True)
    (git / "HEAD").write_text(f"{digest}\n")
    assert commit(inside) == digest
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit(inside) is None
    (git / "packed-refs").write_text(f"# pack-refs\n{other} refs/heads/main\n")
    assert commit(inside) == other
    (git / "refs/heads/main").write_text(f"{digest}\n")
    assert commit(inside) == digest
    work = tmp_path / "work"
    work.mkdir()
    (git / "worktrees/work").mkdir(parents=True)
    (git / "worktrees/work/HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees/work/commondir").write_text("../..\n")
    (work / ".git").write_text(f"gitdir: {git / 'worktrees/work'}\n")
    assert commit(work) == digest
    assert commit(Path("/proc")) is None
