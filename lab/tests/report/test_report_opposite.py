"""Coracle's P1 against udocker's P1 on the page: what is compared, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lab_made as made
import pytest

from coracle_lab.campaign.model import Figure
from coracle_lab.report import opposite
from coracle_lab.report.analysis import analyse
from coracle_lab.report.page import write
from coracle_lab.report.section import Section
from coracle_lab.report.summary import Entry
from coracle_lab.report.tables import Shown

pytestmark = pytest.mark.long

NAMES = ("native", "native-again", "coracle:P1", "udocker:P1")


def entry(directory: Path, ratios: Mapping[str, float], **more: str) -> Entry:
    """Returns what the page knows of a figure whose environments have these ratios to native."""
    rates = 'rates = ["gflops"]\nresponses = {gflops = "(x)"}' if more.get("rate") else ""

    def maker(found, row):  # type: ignore[no-untyped-def]
        (one,) = made.plain({name: ratios.get(name, 1.0) for name in NAMES})(found, row)
        yield {**one, "responses": {"gflops": 1 / one["wall_s"]} if rates else {}}

    text = made.design(
        more.get("names", " ".join(NAMES)).split(),
        more.get("factors", ""),
        'responses = ["gflops"]' if rates else "",
        f'command = ["model"]\n{rates}',
        directory.name,
    )
    store = made.make(directory, text, maker)
    found = analyse(store)
    shown = Shown("native", found.trusted, frozenset({"gflops"}), {})
    return Entry(directory.name, directory.name, found.judged, shown)


def test_the_ratio_is_of_the_two_and_the_verdict_udockers(tmp_path: Path) -> None:
    one = entry(tmp_path / "A", {"coracle:P1": 2.0, "udocker:P1": 2.2})
    (pair,) = opposite.pairs([one])
    assert pair.found.ratio == pytest.approx(1.1, rel=0.01)
    assert pair.verdict.startswith("slower by")
    assert opposite.said([pair]).startswith(
        "Coracle's P1 was found slower in none of 1 comparison."
    )


def test_a_rate_is_compared_as_a_time(tmp_path: Path) -> None:
    one = entry(tmp_path / "A", {"coracle:P1": 1.0, "udocker:P1": 1.1}, rate="yes")
    (pair,) = opposite.pairs([one])
    assert pair.found.ratio == pytest.approx(1.1, rel=0.01)


def test_where_ours_is_slower_it_is_named(tmp_path: Path) -> None:
    good = entry(tmp_path / "good", {"coracle:P1": 1.0, "udocker:P1": 1.0})
    bad = entry(tmp_path / "bad", {"coracle:P1": 1.1, "udocker:P1": 1.0}, factors="ranks = [1, 2]")
    words = opposite.said(opposite.pairs([good, bad]))
    assert words.startswith("Coracle's P1 is slower in 2 of 3 comparisons: bad (ranks 1); bad")
    assert "equal within the margin (TOST): 1." in words


def test_all_figures_are_one_family(tmp_path: Path) -> None:
    ratios = {"coracle:P1": 1.0, "udocker:P1": 1.004}
    every = [entry(tmp_path / name, ratios) for name in "ABCD"]
    alone, together = opposite.pairs(every[:1])[0], opposite.pairs(every)[0]
    assert alone.found.t_p == together.found.t_p
    assert (together.found.holm_p or 0) > (alone.found.holm_p or 0)


def test_no_verdict_where_a_a_fails(tmp_path: Path) -> None:
    one = entry(tmp_path / "A", {"native-again": 1.1, "udocker:P1": 2.0})
    (pair,) = opposite.pairs([one])
    assert pair.verdict.startswith("not trusted")
    assert "not trusted (A/A): 1." in opposite.said([pair])


def test_figures_without_both_are_not_in_it(tmp_path: Path) -> None:
    one = entry(tmp_path / "A", {}, names="native native-again coracle:P1")
    assert opposite.section([one, Entry("B", "B", missing="no image")]) == ""


def test_the_page_has_it_once(tmp_path: Path) -> None:
    store = made.make(tmp_path / "r", made.design(NAMES), made.plain())
    sections = [Section(Figure(name, name, "", "times", ("wall_s",), ""), store) for name in "AB"]
    write("Two figures", "", sections, tmp_path / "page")
    page = (tmp_path / "page/index.html").read_text()
    assert page.count("Coracle&#x27;s P1 against udocker&#x27;s P1") == 1
    assert page.count('id="coracle-udocker"') == 1
