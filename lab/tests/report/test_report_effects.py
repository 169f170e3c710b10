"""A fraction is judged by the effects of its factors: on the page, in CSV, in the terminal."""

from __future__ import annotations

import csv
import html
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_made as made
import pytest

from coracle_lab.cli import effects, main, report
from coracle_lab.design import Row
from coracle_lab.report import directory
from coracle_lab.report.analysis import analyse
from coracle_lab.report.screened import judge, mixed_up
from coracle_lab.report.summary import Entry, summary
from coracle_lab.report.tables import Shown
from coracle_lab.run import records
from coracle_lab.run.store import Store

pytestmark = pytest.mark.long

DESIGN = """
name = "screen"
seed = 9
kind = "fractional"
fractional = { resolution = 4 }
replicates = 6
[factors]
environment = ["coracle:N1"]
init = ["no", "yes"]
volumes = [0, 50]
isolate = ["no", "yes"]
tty = ["no", "yes"]
again = ["first", "second"]
[options]
init = { yes = ["--init"] }
volumes = { 50 = ["--volume=/a:/mnt/{1..50}"] }
isolate = { yes = ["--isolate"] }
tty = { yes = ["--tty"] }
[application]
image = "x"
command = ["true"]
"""
PLANTED = {"isolate": 0.08, "volumes": -0.04}


def maker(more: dict[str, float] | None = None) -> made.Maker:
    """Returns a maker of times in which the second levels have these effects."""

    def make(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        log = 0.0
        for name, effect in {**PLANTED, **(more or {})}.items():
            factor = found.design.factor(name)
            assert factor is not None
            log += effect * factor.levels.index(row.levels[name])
        yield made.line(found, row, 0.02 * math.exp(log) * made.spread(row, 0.004))

    return make


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("screen")
    made.make(place, DESIGN, maker())
    return place


def text_of(place: Path) -> str:
    """Returns the page's text, without pictures and tags."""
    whole = (place / "report" / "index.html").read_text()
    plain = re.sub(r"<(svg|style).*?</\1>", "", whole, flags=re.S)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", plain)))


def test_the_page_says_what_was_planted(quiet: Path) -> None:
    assert main(["report", str(quiet)]) == 0
    text = text_of(quiet)
    assert "A/A holds: again, which changes nothing, is " in text
    assert re.search(r"isolate: no, yes ▲ slower by 8\.\d to 8\.\d % 1\.08", text)
    assert re.search(r"volumes: 0, 50 ▼ faster by 3\.\d to 4\.\d %", text)
    assert "none of the effects is mixed up with an interaction of two factors" in text
    assert "--volume=/a:/mnt/1 ... --volume=/a:/mnt/50 (50 words)" in text
    assert "Holm's correction is over the 4 factors of this figure" in text
    assert "p that every factor acts for itself" in text
    files = {path.name for path in (quiet / "report").glob("*/*")}
    assert {"effects.svg", "effects.png", "statistics.csv"} <= files
    (path,) = (quiet / "report").glob("*/statistics.csv")
    lines = {line["factor"]: line for line in csv.DictReader(path.open())}
    assert set(lines) == {"init", "volumes", "isolate", "tty", "again"}
    assert float(lines["isolate"]["ratio"]) == pytest.approx(math.exp(0.08), rel=0.01)
    # About 8 % of 20 ms.
    assert 0.0013 < float(lines["isolate"]["difference"]) < 0.0019


def test_the_page_is_the_same_when_it_is_made_again(quiet: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert main(["report", str(quiet), "--into", str(tmp_path / name)]) == 0
    one, two = ((tmp_path / name / "index.html").read_bytes() for name in ("one", "two"))
    assert one == two


def test_the_terminal_has_the_same_verdicts(
    quiet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = directory.opened(quiet)
    assert report.show(found, report.Ended({}, {}, ())) == 0
    lines = capsys.readouterr().out.split("\n")
    assert re.match(
        r"isolate: no, yes +1\.08\d\d  .* +1\.\d+ to 1\.\d+ ms  slower by 8\.", lines[1]
    )
    assert re.match(
        r"volumes: 0, 50 +0\.96\d\d .* +-0?\d+\.?\d* to -\d+\.?\d* (ms|µs)  faster by ", lines[2]
    )
    assert any(line.startswith("A/A holds: again") for line in lines)


def test_plan_says_what_more_blocks_will_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "screen.toml"
    file.write_text(DESIGN)
    found = made.make(tmp_path / "screen-records", DESIGN, maker())
    path = found.directory / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 3 * 16]))
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    assert "screen: fractional, 16 cells, 6 blocks, 96 rows" in said
    assert "aliases: none of the effects" in said
    (so_far,) = re.findall(
        r"6 blocks show effects to about ±(\S+) % .* 3 so far show ±(\S+) %", said
    )
    assert float(so_far[0]) == pytest.approx(float(so_far[1]) / math.sqrt(2), abs=0.06)


def test_a_control_that_differs_takes_the_verdicts_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make(tmp_path, DESIGN, maker({"again": 0.05}))
    assert main(["report", str(tmp_path)]) == 3
    text = text_of(tmp_path)
    assert "A/A fails: again, which changes nothing, is slower by" in text
    assert "isolate: no, yes · not trusted (A/A)" in text
    found = directory.opened(tmp_path)
    capsys.readouterr()
    assert report.show(found, report.Ended({}, {}, ())) == 3
    said = capsys.readouterr()
    assert said.out.count("not trusted (A/A)") == 5
    assert "no verdict is trusted" in said.err


def test_failed_rows_are_missing_and_repeated_ones_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        (one,) = maker()(found, row)
        if row.number == 7:
            yield {**one, **made.failed()}
        elif row.block == 2:
            yield {**one, "wall_s": one["wall_s"] * (1 + row.number % 5)}
            yield {**one, "attempt": 2}
        else:
            yield one

    made.make(tmp_path, DESIGN, make)
    found = directory.opened(tmp_path)
    assert report.show(found, report.Ended({}, {}, ())) == 1
    said = capsys.readouterr().out
    assert "note: 1 values are missing" in said
    assert re.search(r"repeated blocks: 2; with their first attempts: .*isolate: undecided", said)
    latest = records.last_attempts(records.read(tmp_path / "records.jsonl").records)
    (screened,) = judge(found, latest, ["wall_s"])
    assert [len(side) for side in screened.runs["init"]] in ([47, 48], [48, 47])


def test_a_summary_of_many_figures_counts_factors(quiet: Path) -> None:
    found = analyse(directory.opened(quiet))
    shown = Shown("native", True, frozenset(), {})
    entry = Entry("a", "name", (), shown, screened=found.screened)
    text = re.sub(r"<[^>]+>", " ", summary([entry] * 6))
    assert len(re.findall(r"slower\s*:\s*isolate \(ratio 1\.08", text)) == 6


def test_two_screens_cannot_be_compared(quiet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(quiet), str(quiet)]) == 2
    assert "its design has no base" in capsys.readouterr().err


def test_aliases_are_a_line_for_each_factor(tmp_path: Path) -> None:
    text = DESIGN.replace("resolution = 4", 'generator = "a b c ab ac"')
    found = made.make(tmp_path, text, maker())
    lines = mixed_up(found.design)
    assert any(line.startswith("tty: +1 init*volumes") for line in lines)
    assert len(lines) == 5
    assert len(effects.lines(judge(found, records.last_attempts(
        records.read(tmp_path / "records.jsonl").records), ["wall_s"])[0])) == 6  # fmt: skip
