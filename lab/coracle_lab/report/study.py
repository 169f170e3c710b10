"""The part of a section that shows the overhead study's own measurements, as in the paper."""

from __future__ import annotations

from pathlib import Path

from coracle_lab import stats
from coracle_lab.report import draw, markup, numbers, oracle, tables
from coracle_lab.report.judged import Judged
from coracle_lab.report.oracle import Study
from coracle_lab.report.pictures import Wanted, pictures
from coracle_lab.report.tables import Shown, Table

NO_GUARD = (
    "These are the study's own runs, judged anew: in completely random order, without blocks and"
    " without A/A, so nothing here guards against a session that drifted. Means, bars and"
    " overheads are the paper's statistics; ratio, interval and verdict are the lab's."
)


def shown(judged: list[Judged]) -> Shown:
    """Returns how the study's numbers are shown: its verdicts have no A/A, which is said."""
    return Shown(oracle.BASE, True, frozenset(), {})


def table(judged: list[Judged]) -> Table:
    """Returns the study's numbers: what the paper prints, and the lab's judgement beside."""
    rows = []
    where = tables.places(judged)
    for one in judged:
        for name, view in stats.as_in_paper(one.runs, oracle.BASE).items():
            found = one.of(name)
            rows.append((
                name,
                where[id(one)],
                found.verdict if found else "base",
                str(view.count),
                numbers.quantity(one.response, view.mean),
                numbers.quantity(one.response, view.bar),
                numbers.percent(view.overhead) if found else numbers.NONE,
                numbers.ratio(found.ratio) if found else "1",
                numbers.span(found.ratio_intervals, 0.95) if found else numbers.NONE,
                numbers.span(found.ratio_intervals, 0.997) if found else numbers.NONE,
                numbers.p(found.tost_p) if found else numbers.NONE,
            ))  # fmt: skip
    head = (
        "environment", "where", "verdict (ours)", "n", "mean", "± 3 s/√n", "overhead of means",
        "ratio", "95 %", "99.7 %", "p (TOST)",
    )  # fmt: skip
    return Table("The study's measurements: as printed, and judged", head, tuple(rows), 3, 2)


def html(directory: Path, study: Study, into: Path, name: str) -> tuple[str, list[Judged]]:
    """Returns the HTML of one figure of the study, and what it was made from."""
    judged = oracle.read(directory, study)
    wanted = Wanted(
        layout=study.layout,
        base=oracle.BASE,
        environments=oracle.environments(judged),
        x=study.x,
        panels="case",
        series="bytes",
        view="mean",
    )
    found = pictures(judged, wanted)
    figure = draw.drawn(study.layout, found, into, name, f"{study.title}, the paper's own runs")
    (into / name / "statistics.csv").write_text(
        tables.statistics_csv(judged, shown(judged)), encoding="utf-8"
    )
    files = markup.link(f"{name}/statistics.csv", "statistics (CSV)")
    return (
        figure
        + markup.paragraph(f"{study.figure}: {oracle.REFERENCE}.", "small soft")
        + markup.paragraph(NO_GUARD, "small note")
        + markup.folded("As in the paper, and judged", [table(judged)])
        + f'<p class="small">{files}</p>',
        judged,
    )
