"""The page in a browser: it asks for nothing, and is readable on a telephone and on a wall."""

from __future__ import annotations

from pathlib import Path

import lab_browser as browser
import pytest

pytestmark = pytest.mark.real

WIDTHS = (400, 1600)


def test_no_request_leaves_the_page(example: Path) -> None:
    assert browser.asked(example / "report", "index.html") == []


def test_a_request_that_leaves_a_page_is_seen(tmp_path: Path) -> None:
    """The test above can fail: by a picture, a font, a style from elsewhere."""
    (tmp_path / "index.html").write_text(
        '<!DOCTYPE html><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="http://elsewhere.test/style.css">'
        '<p>text</p><img src="http://other.test/picture.png">'
    )
    assert sorted(browser.asked(tmp_path, "index.html")) == [
        "http://elsewhere.test/style.css",
        "http://other.test/picture.png",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows_and_nothing_overlaps(example: Path, width: int) -> None:
    told = browser.measured(example / "report", "index.html", width)
    assert told["width"] == width
    assert told["scroll"] <= width
    assert told["out"] == []
    assert told["overlaps"] == []
    assert told["boxes"] > 200
    assert told["smallest"] >= 12
    # Letters of figures have 9 points where they are made.
    assert told["letters"] * 9 >= 9
    # The words of the first verdict are in the first screenful.
    assert told["first"] < 900


@pytest.mark.parametrize("width", WIDTHS)
def test_the_studys_page_is_readable_too(study_page: Path, width: int) -> None:
    told = browser.measured(study_page, "index.html", width)
    assert (told["scroll"] <= width, told["out"], told["overlaps"]) == (True, [], [])


def test_overflow_and_overlap_are_seen(tmp_path: Path) -> None:
    """The tests above can fail."""
    (tmp_path / "index.html").write_text(
        "<!DOCTYPE html><style>body{margin:0}</style><body>"
        '<p style="width:900px">wide</p><p>one</p><p style="margin-top:-30px">other</p></body>'
    )
    told = browser.measured(tmp_path, "index.html", 400)
    assert told["scroll"] > 400
    assert told["out"] == ["P wide"]
    assert told["overlaps"]
