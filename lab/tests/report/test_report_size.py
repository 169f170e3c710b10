"""How much room a figure takes, because its page is kept with all of its files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_made as made
import pytest

from coracle_lab.cli import main
from coracle_lab.design import Row
from coracle_lab.figures import Cloud, Facet, Picture, Ratio
from coracle_lab.report import draw
from coracle_lab.run import packed
from coracle_lab.run.store import Store

pytestmark = pytest.mark.long

PAGE_BYTES = 15_000
"""What a page has besides its figures: style, summary, methods."""


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_a_figure_of_size_quick_takes_little_room(tmp_path: Path) -> None:
    """Five environments, two numbers of ranks, five blocks, and where the time goes."""

    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        chance = random.Random(row.number)
        (one,) = made.plain(time=8.0)(found, row)
        parts = {f"{name}_s": round(chance.random(), 7) for name in made.PARTS}
        ranks = [{"rank": rank, **parts} for rank in range(int(row.levels["ranks"]))]
        yield {**one, "responses": parts, "ranks": ranks}

    text = made.design(factors="ranks = [1, 2]").replace("replicates = 12", "replicates = 5")
    made.make(tmp_path / "r", text, maker)
    assert main(["report", str(tmp_path / "r"), "--into", str(tmp_path / "page")]) in (0, 3)
    assert (tmp_path / "page/r/split.png").exists()
    assert _bytes(tmp_path / "page") - PAGE_BYTES < 120_000


@pytest.mark.parametrize("layout", ["times", "distribution", "rates"])
def test_a_thousand_runs_of_twenty_environments_take_little_room(
    tmp_path: Path, layout: str
) -> None:
    names = ("native", "native-again", *(f"e{at}" for at in range(18)))
    chance = random.Random(5)
    clouds = [
        Cloud(
            name,
            name,
            tuple(0.03 * chance.lognormvariate(0, 0.1) for _ in range(1000)),
            Ratio(1.0, (0.99, 1.01), (0.98, 1.02)),
            tuple(chance.lognormvariate(0, 0.1) for _ in range(1000)),
        )
        for name in names
    ]
    picture = Picture("native", names, "environment", names, "wall_s", (Facet("", tuple(clouds)),))
    html = draw.drawn(layout, [picture], tmp_path, "f", "what")
    assert html.count("data:image/png") >= 2
    assert len(html) + _bytes(tmp_path) < 200_000


def _line(number: int) -> str:
    """A record as a start of a program leaves it: what is measured is different each time."""
    chance = random.Random(number)
    fields = {
        "design": "0" * 64, "schema": 1, "session": "20260101T000000Z-0a1b2c", "row": number,
        "block": number // 20, "attempt": 1, "levels": {"environment": f"e{number % 20}"},
        "outcome": "ok", "why": None, "exit_status": 0, "output_sha256": "0" * 64,
        "wall_s": round(chance.random(), 9), "user_s": round(chance.random() / 10, 6),
        "sentinel_before_s": round(0.05 + chance.random() / 1e3, 7), "responses": {},
    }  # fmt: skip
    return json.dumps(fields, sort_keys=True)


def test_packed_records_are_small_and_come_out_again() -> None:
    data = "".join(_line(number) + "\n" for number in range(4000)).encode()
    small = packed.packed(data)
    assert packed.unpacked(small) == data
    assert packed.packed(data) == small
    # Some 70 random bits are in each.
    assert len(small) < 14 * 4000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b'{"a": 1}\n{"a": 2.50}\n',
        b'{"a": {"b": [], "c": {}}, "d": [1, {"e": null}]}\n{"a": 1}',
        b'{"a": 1}\n{"b"\n\n{"note": "x"}\n\xff\n',
        '{"a": "µ"}\n'.encode(),
    ],
)
def test_whatever_a_file_holds_comes_out_again(data: bytes) -> None:
    assert packed.unpacked(packed.packed(data)) == data


def test_damaged_packed_records_are_refused() -> None:
    whole = packed.packed(b'{"a": 1}\n')
    for broken in (b"", whole[:-9], b"not that", packed.lzma.compress(b'{"order": [3]}')):
        with pytest.raises(ValueError, match=r"no packed records|Expecting"):
            packed.unpacked(broken)
