"""The page says what was found, where it comes from, and what it is not; it loads nothing."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import lab_made as made
import pytest

from coracle_lab.campaign.model import Figure
from coracle_lab.cli import main
from coracle_lab.design import Row
from coracle_lab.report import page, published
from coracle_lab.report.analysis import analyse
from coracle_lab.report.directory import below, figure_of, opened
from coracle_lab.report.tables import Shown
from coracle_lab.run import packed
from coracle_lab.run.store import Store

pytestmark = pytest.mark.long


class Reader(HTMLParser):
    """Collects the text, the tags that are open at the end, ids, and everything that refers."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "srcset", "data", "action"):
                self.references.append(value or "")
            assert not name.startswith("on"), f"{tag} has a script: {name}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def read(into: Path, name: str = "index.html") -> tuple[str, Reader]:
    """Returns the page's text with single spaces, and what was read."""
    reader = Reader()
    reader.feed((into / name).read_text(encoding="utf-8"))
    return re.sub(r"\s+", " ", " ".join(reader.text)), reader


def text(into: Path) -> str:
    return read(into)[0]


def test_nothing_is_loaded_and_everything_is_there(example: Path) -> None:
    into = example / "report"
    page_text = (into / "index.html").read_text(encoding="utf-8")
    said, reader = read(into)
    assert reader.open == []
    assert not reader.tags & {"script", "iframe", "img", "object", "embed", "video", "audio"}
    assert len(reader.ids) == len(set(reader.ids))
    assert "@import" not in page_text and "@font-face" not in page_text
    for reference in reader.references:
        if reference.startswith("#"):
            assert reference[1:] in reader.ids
        elif not reference.startswith("data:"):
            assert not re.match(r"[a-z]+:|/", reference), reference
            assert (into / reference).is_file(), reference
    for use in re.findall(r"url\(([^)]*)\)", page_text):
        assert use.startswith("#") and use[1:] in reader.ids
    assert "model" in said


def test_the_verdicts_come_first(example: Path) -> None:
    said = text(example / "report")
    assert said.index("equal within ±1 % (TOST)") < 600
    assert said.index("slower") < 600


def test_no_two_parts_of_the_page_have_one_id(example: Path, tmp_path: Path) -> None:
    """A series has parts of its time, too: "series" and "split" begin with the same letter."""

    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        values = {"one_way_s@1": 1e-5, "one_way_s@64": 2e-5, "launch_s": 0.1, "work_s": 0.9}
        yield made.line(found, row, 1.0, responses=values)

    design = made.design(
        more='responses = ["one_way_s@*"]',
        application='command = ["pp"]\nreads = "lab"\nseries = "bytes"',
    )
    made.make(tmp_path / "r", design, maker)
    assert main(["report", str(tmp_path / "r")]) in (0, 3)
    for page_of in (tmp_path / "r/report", example / "report"):
        ids = re.findall(r'\sid="([^"]+)"', (page_of / "index.html").read_text())
        assert len(ids) > 10
        assert sorted(set(ids)) == sorted(ids)


def test_texts_are_escaped(example: Path) -> None:
    raw = (example / "report/index.html").read_text(encoding="utf-8")
    assert "<b>ranks" not in raw
    assert "EP &amp; &lt;b&gt;ranks&lt;/b&gt;" in raw


def test_each_figure_says_where_it_comes_from(example: Path) -> None:
    said = text(example / "report")
    count = 4
    for words in (
        "date 2026-01-01",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "seed 5",
        "machine Processor X (x86_64), 2 processors, 8 GiB, Linux 6.1",
        "docker: Docker version 20",
        "What this does not show",
    ):
        assert said.count(words) == count, words


def test_what_happened_to_rows_is_listed(example: Path) -> None:
    said = text(example / "report")
    assert "failed: row 17 (" in said
    assert "exit status 7" in said
    assert "Disturbed blocks: 3 (sentinel more than 10 % above" in said
    assert "Repeated blocks: 3. The tables are of the repetitions; with the first attempts:" in said
    assert "Left out: docker, 6 of its 36 rows: the run has not come so far." in said


def test_ranks_beyond_the_processors_are_oversubscribed(example: Path) -> None:
    assert "EP & <b>ranks</b> (oversubscribed)" in text(example / "report")
    assert "Oversubscribed: more ranks than processors" in text(example / "report")


def test_rates_are_shown_as_measured_and_compared_as_times(example: Path) -> None:
    with (example / "report/hpl/statistics.csv").open(newline="") as file:
        lines = {line["environment"]: line for line in csv.DictReader(file)}
    assert lines["docker"]["verdict"].startswith("slower by 7.")
    assert float(lines["docker"]["ratio"]) == pytest.approx(1.08, abs=0.01)
    assert re.search(r"docker slower by 7\.\d to 8\.\d % 12 7\.2\d+ GFLOPS", _cells(example))


def _cells(example: Path) -> str:
    return re.sub(r"[▲▼=?·] ?", "", text(example / "report"))


def test_series_are_in_the_order_of_their_keys(example: Path) -> None:
    with (example / "report/pingpong/statistics.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(dict.fromkeys(line["response"] for line in lines)) == [
        "one_way_s@1", "one_way_s@64", "one_way_s@65536",
    ]  # fmt: skip
    assert len(lines) == 3 * 2 * 4
    assert {line["kind"] for line in lines} == {"cold", "warm"}


def test_all_methods_have_a_reference(example: Path) -> None:
    said = text(example / "report")
    for words in (
        "Schuirmann", "Holm, A simple", "Hodges and Lehmann", "Wilcoxon", "Mann and Whitney",
        "Efron", "Cliff", "Laird and Ware", "Bartlett", "Student", "Welch",
    ):  # fmt: skip
        assert words in said


def test_holm_is_over_all_cells_of_the_figure(example: Path) -> None:
    """With one cell only, the p of an environment would be multiplied by three at most."""
    with (example / "report/ep/statistics.csv").open(newline="") as file:
        lines = [one for one in csv.DictReader(file) if one["environment"] != "native-again"]
    smallest = min(lines, key=lambda one: float(one["t_p"]))
    assert len(lines) == 9
    assert float(smallest["holm_p"]) == pytest.approx(9 * float(smallest["t_p"]))


def test_files_beside_the_page_are_the_records(example: Path) -> None:
    into = example / "report/ep"
    kept = (example / "ep/records.jsonl").read_bytes()
    assert packed.unpacked((into / packed.NAME).read_bytes()) == kept
    for name in ("design.toml", "facts.jsonl"):
        assert (into / name).read_bytes() == (example / "ep" / name).read_bytes()


def test_made_twice_all_files_are_equal(example: Path, tmp_path: Path) -> None:
    shutil.copytree(example / "hpl", tmp_path / "hpl")
    shutil.copytree(example / "pingpong", tmp_path / "pingpong")
    for into in ("one", "other"):
        assert main(["report", str(tmp_path), "--into", str(tmp_path / "made" / into)]) == 0
    one, other = (_files(tmp_path / "made" / name) for name in ("one", "other"))
    assert one == other
    assert {Path(name).suffix for name in one} == {
        ".html", ".svg", ".png", ".csv", ".toml", ".jsonl", ".xz",
    }  # fmt: skip


def _files(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_the_verdicts_alone_are_one_file_that_links_to_none(example: Path, tmp_path: Path) -> None:
    stores = [(path, opened(path)) for path in below(example) if path.name in ("ep", "hpl")]
    sections = [page.Section(figure_of(one, path.name), one) for path, one in stores]
    missing = replace(sections[0].figure, id="missing", title="another")
    sections.append(page.Section(missing, None, "it was not asked for"))
    assert page.write("all", "What is compared.", sections, tmp_path, alone=True)
    said, reader = read(tmp_path, page.ALONE)
    assert not reader.tags & {"svg", "img", "script"}
    assert len(reader.references) > len(sections)
    assert {one for one in reader.references if not one.startswith("#")} <= {"data:,"}
    assert {one[1:] for one in reader.references if one.startswith("#")} <= set(reader.ids)
    whole = text(tmp_path)
    for words in (
        "What is compared.",
        "equal within ±1 % (TOST)",
        "A/A holds",
        "exit status 7",
        "EP & <b>ranks</b> (oversubscribed)",
        "Not made: it was not asked for",
        "What this does not show",
        "index.html too",
    ):
        assert words in said, words
    # It has each verdict of the page, and of each figure where it was measured.
    for words in ("slower by", "GiB", "rows, margin"):
        assert said.count(words) == whole.count(words) > 0, words
    sizes = [(tmp_path / name).stat().st_size for name in (page.ALONE, "index.html")]
    assert sizes[0] < sizes[1] / 4
    # It is written where it is asked for.
    assert not (example / "report" / page.ALONE).exists()


def test_a_failing_a_a_is_a_red_line_and_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ratios = {**made.RATIOS, "native-again": 1.2}
    made.make(tmp_path / "r", made.design(), made.plain(ratios))
    assert main(["report", str(tmp_path / "r")]) == 3
    assert "no verdict is printed" in capsys.readouterr().err
    raw = (tmp_path / "r/report/index.html").read_text(encoding="utf-8")
    body = raw[raw.index("<body>") :]
    assert body.index('class="alarm"') < body.index("<h1>")
    said = text(tmp_path / "r/report")
    assert "A/A fails: native-again is slower by" in said
    assert "not trusted (A/A)" in said
    # In no other sentence, table or file is a verdict of an environment.
    for words in ("slower by 7", "slower by 1.", "equal within ±1 % (TOST)"):
        assert words not in said
    assert "not trusted (A/A)" in (tmp_path / "r/report/r/statistics.csv").read_text()


def test_a_figure_without_records_is_listed(tmp_path: Path) -> None:
    there = made.make(tmp_path / "r", made.design())
    base = {"of": "Fig. 1", "layout": "times", "responses": ("wall_s",), "shows_not": "Nodes."}
    published = ({"environment": "docker", "overhead_percent": 7.93},)
    sections = [
        page.Section(Figure("A1", "one", published=published, **base), there),
        page.Section(Figure("A2", "two", **base), None, "the machine has no network"),
        page.Section(Figure("A3", "three", oracle="nas.csv", **base), None, None),
    ]
    assert page.write("Title", "Text.", sections, tmp_path / "p")
    said = text(tmp_path / "p")
    assert "A2 two not made: the machine has no network" in said
    assert "A3 three not made: there are no records of it" in said
    assert "They are not here (nas.csv of the overhead study)" in said
    assert "7.93 docker: 1.0" in said
    assert "Nodes." in said


def test_ours_in_the_role_of_a_papers_program_is_named(tmp_path: Path) -> None:
    """Singularity and Docker, where they were not measured: Apptainer and Podman, by name."""
    names = ("native", "native-again", "apptainer", "podman", "docker")
    for environments, docker in ((names[:4], "podman"), (names, "docker")):
        there = made.make(tmp_path / docker, made.design(environments))
        rows = [{"environment": name} for name in ("singularity", "docker", "udocker")]
        shown = Shown("native", True, frozenset(), {})
        found = published.table(rows, analyse(there).judged, shown)
        ours = [line[found.head.index("the same or its role here")] for line in found.rows]
        assert ours[0].startswith("apptainer: ")
        assert ours[1].startswith(f"{docker}: ")
        assert ours[2] == "not measured"


def test_dunnett_stands_beside_holm_where_there_are_no_blocks(tmp_path: Path) -> None:
    names = ("native", "native-again", "x")
    for kind, is_there in (("completely-randomised", True), ("blocks", False)):
        text_ = made.design(names, more=f'kind = "{kind}"')
        made.make(tmp_path / kind, text_, made.plain({"x": 1.05}))
        main(["report", str(tmp_path / kind), "--into", str(tmp_path / "page" / kind)])
        raw = (tmp_path / "page" / kind / "index.html").read_text()
        assert ("p (Dunnett)" in raw) == is_there


def test_the_nested_design_shows_each_start(example: Path) -> None:
    """24 starts of each environment are points, though their launches' medians are compared."""
    svg = (example / "report/starts/distribution.svg").read_text()
    paths = re.findall(r'd="M([-0-9. ]+)"[^>]*marker:', svg)
    assert sum(len(path.split()) // 2 for path in paths) >= 24 * 5 * 2
    with (example / "report/starts/statistics.csv").open(newline="") as file:
        assert {line["blocks"] for line in csv.DictReader(file)} == {"6"}


def test_records_are_enough(example: Path, tmp_path: Path) -> None:
    """Read-only records of a program that is not here, of an environment that is unknown here."""
    text_ = made.design(environments=("native", "native-again", "elsewhere:Z9"))
    made.make(tmp_path / "r", text_)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "r").iterdir()}
    assert main(["report", str(tmp_path / "r"), "--into", str(tmp_path / "page")]) == 0
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "r").iterdir()}
    assert before == after
    assert opened(tmp_path / "r").design.name == "model"
