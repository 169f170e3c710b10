"""Figures consist of what they should, look the same each time, and keep the rules of the lab."""

from __future__ import annotations

import io
import json
import math
import re
from functools import cache
from typing import Any

import lab_made as made
import matplotlib as mpl
import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from coracle_lab import figures
from coracle_lab.figures import Cloud, Facet, Picture, Ratio, style
from coracle_lab.figures.units import amount, label, title
from coracle_lab.figures.vector import TILE, smaller

pytestmark = pytest.mark.long

NAMES = list(made.pictures())


@cache
def figure(name: str) -> Figure:
    """Returns a figure that no test changes."""
    return made.drawn(*made.pictures()[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_consists_of_what_is_kept(name: str) -> None:
    kept = json.loads(made.KEPT.read_text())
    found = figure(name)
    now = {"axes": made.describe(found), "legends": made.legends(found)}
    # If the change is wanted: python lab_made.py
    assert json.loads(json.dumps(now)) == kept[name]


@pytest.mark.parametrize("name", [name for name in NAMES if " " not in name])
def test_a_figure_made_twice_is_equal_byte_by_byte(name: str) -> None:
    one, other = figure(name), made.drawn(*made.pictures()[name])
    assert figures.svg(one) == figures.svg(other)
    # In the other order too: a canvas leaves nothing behind in a figure.
    assert figures.png(one) == figures.png(other)
    assert "<dc:date>" not in figures.svg(one)


def test_very_many_points_are_pixels_in_the_graphic_and_equal_too() -> None:
    names = ("native", "x")
    values = tuple(1 + 0.01 * (at % 7) for at in range(3000))
    clouds = tuple(Cloud(name, name, values) for name in names)
    picture = Picture("native", names, "environment", names, "wall_s", (Facet("", clouds),))
    one, other = (figures.svg(figures.times(picture, "a")) for _ in range(2))
    assert one == other
    assert "data:image/png" in one
    assert one.count("<use") < 200


def test_pictures_in_pixels_have_one_size_whatever_was_made_before() -> None:
    one, other = (made.drawn(*made.pictures()["ratios"]) for _ in range(2))
    figures.svg(one)
    assert figures.png(one) == figures.png(other)
    assert one.dpi == style.DOTS_PER_INCH


@pytest.mark.parametrize("name", [name for name in NAMES if "split" not in name])
def test_every_run_is_a_point(name: str) -> None:
    """In each part of a figure there are at least as many points as runs that are shown there."""
    layout, picture = made.pictures()[name]
    runs = sum(len(cloud.values) for cloud in picture.clouds() if not cloud.model)
    if layout == "distribution":
        steps = [axes for axes in figure(name).axes if axes.get_ylabel() == "share of the runs"]
        points = sum(len(one.get_xdata()) for one in steps[0].lines if one.get_marker() != "None")
        assert points == runs
        return
    points = sum(axes["points"] for axes in made.describe(made.drawn(layout, picture)))
    single = sum(len(cloud.ratios) for cloud in picture.clouds() if not cloud.model)
    wanted = {"ratios": single, "scaling": 2 * runs}.get(layout, runs + single)
    assert points == wanted


@pytest.mark.parametrize("name", ["times", "times by environment", "rates", "scaling"])
def test_axes_of_times_begin_at_zero(name: str) -> None:
    for axes in figure(name).axes:
        if "time" in axes.get_ylabel():
            assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize("name", ["times", "series", "ratios", "rates"])
def test_ratios_are_in_the_middle_of_their_axis(name: str) -> None:
    seen = 0
    for axes in figure(name).axes:
        for text, (low, high) in (
            (axes.get_xlabel(), axes.get_xlim()),
            (axes.get_ylabel(), axes.get_ylim()),
        ):
            if text.startswith(("overhead", "ratio")):
                middle = 0.0 if text.startswith("overhead") else 1.0
                assert (low + high) / 2 == pytest.approx(middle)
                seen += 1
    assert seen


def test_a_run_far_from_its_median_does_not_flatten_the_order() -> None:
    order, normal = figure("order").axes
    low, high = order.get_ylim()
    assert 1.9 > high > 1.01
    assert (low + high) / 2 == pytest.approx(1)
    heights = [point[1] for one in order.collections for point in one.get_offsets()]
    assert max(heights) == pytest.approx(high)
    assert len(heights) == len([p for one in normal.collections for p in one.get_offsets()])


def test_large_ratios_are_on_a_logarithmic_axis_around_one() -> None:
    clouds = (
        Cloud("native", "native", (1.0, 1.1)),
        Cloud("slow", "slow", (50.0, 51.0), Ratio(48.0, (40.0, 60.0), (30.0, 80.0)), (50.0, 46.0)),
    )
    picture = Picture(
        "native", ("native", "slow"), "environment", ("native", "slow"), "wall_s",
        (Facet("", clouds),),
    )  # fmt: skip
    axes = figures.ratios(picture).axes[0]
    low, high = axes.get_xlim()
    assert axes.get_xscale() == "log"
    assert low * high == pytest.approx(1)
    assert high > 51


def test_an_interval_without_measure_does_not_widen_the_axis() -> None:
    clouds = (
        Cloud("native", "native", (1.0, 1.1)),
        Cloud("x", "x", (1.0, 1.1), Ratio(1.02, (0.5, 2.1), (1e-9, 1e9)), (1.0, 1.04)),
    )
    picture = Picture(
        "native", ("native", "x"), "environment", ("native", "x"), "wall_s", (Facet("", clouds),)
    )
    assert figures.ratios(picture).axes[0].get_xlim()[1] < 1.3


def test_environments_differ_without_colour() -> None:
    names = ["native", "native-again", *(f"e{at}" for at in range(26))]
    found = style.looks(names, "native")
    shapes = {(one.marker, one.filled) for one in found.values()}
    assert len(shapes) == len(names)
    near = [found[f"e{at}"] for at in range(11)]
    assert len({one.hatch for one in near}) == 11


@pytest.mark.parametrize("name", ["times with a model", "scaling with a model"])
def test_a_model_is_hatched_and_called_one(name: str) -> None:
    described = made.describe(figure(name))
    assert [one for one in described if one["hatches"]]
    for axes in described:
        assert ("model" in axes["texts"]) == ("////" in axes["hatches"])


@pytest.mark.parametrize("name", ["times", "ratios", "split", "scaling"])
def test_too_many_ranks_are_called_oversubscribed(name: str) -> None:
    for axes in figure(name).axes:
        text = axes.get_title() + axes.get_xlabel()
        if "ranks 1" in axes.get_title() or "ranks 2" in axes.get_title():
            assert "oversubscribed" not in text
        elif "ranks" in text:
            assert "oversubscribed" in text


def _boxes(found: Figure) -> list[tuple[str, float, float, float, float]]:
    """Returns the boxes of all texts that are seen, in pixels."""
    texts = [text for one in (found, *found.subfigs) for text in one.texts]
    for one in (found, *found.subfigs):
        texts += [text for legend in one.legends for text in legend.get_texts()]
        texts += [one._suptitle] if one._suptitle is not None else []
    for axes in found.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            # A tick beyond the axis is there, but is not drawn.
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            texts += [tick.label1 for tick in ticks]
    boxes = []
    for text in texts:
        assert isinstance(text, Text)
        if text.get_text() and text.get_visible() and not text.get_rotation():
            box = text.get_window_extent()
            boxes.append((text.get_text(), box.x0, box.y0, box.x1, box.y1))
    return list(dict.fromkeys(boxes))


@pytest.mark.parametrize("name", NAMES)
def test_no_texts_overlap(name: str) -> None:
    found = figure(name)
    figures.png(found)
    boxes = _boxes(found)
    assert len(boxes) > 5
    width, height = found.get_size_inches() * found.dpi
    for at, (text, left, low, right, high) in enumerate(boxes):
        assert left >= -1 and low >= -1 and right <= width + 1 and high <= height + 1, text
        for other, left2, low2, right2, high2 in boxes[at + 1 :]:
            wide = min(right, right2) - max(left, left2)
            tall = min(high, high2) - max(low, low2)
            assert not (wide > 1 and tall > 1), f"{text!r} overlaps {other!r}"


def test_texts_that_overlap_are_seen() -> None:
    """The test above can fail."""
    found = made.drawn(*made.pictures()["times by environment"])
    found.text(0.5, 0.5, "something long")
    found.text(0.5, 0.5, "something else")
    boxes = [box for box in _boxes(found) if box[0].startswith("something")]
    assert len(boxes) == 2
    assert boxes[0][1] == boxes[1][1]


def test_an_inline_figure_has_ids_of_its_own() -> None:
    text = figures.svg(figure("times"))
    one = figures.inline(text, "a-1", "what")
    assert one.startswith("<svg ") and ' role="img" aria-label="what"' in one
    assert "<?xml" not in one and "<metadata" not in one and "<!--" not in one
    ids = {part.partition('"')[0] for part in one.split(' id="')[1:]}
    assert ids and all(name.startswith("a-1-") for name in ids)
    used = {part.partition('"')[0] for part in one.split('href="#')[1:]}
    used |= {part.partition(")")[0] for part in one.split("url(#")[1:]}
    assert used and used <= ids


def test_a_smaller_graphic_looks_the_same() -> None:
    """Each line, mark and letter is there, and places lose digits that nobody sees."""
    clip = 'clip-path="url(#p1)"'
    text = (
        '<?xml version="1.0"?>\n<!DOCTYPE svg>\n'
        '<svg a="1"><metadata>x</metadata>\n <!-- words -->\n'
        ' <defs>\n  <style type="text/css">*{}</style>\n </defs>\n'
        ' <g id="axes_1">\n  <defs>\n   <path id="m1" d="M 0 1 \nL 1.00000 0 \nz \n"/>\n  </defs>\n'
        f"  <g {clip}>\n"
        + "".join(
            f'   <use xlink:href="#m1" x="{x}.2345" y="-2" style="fill: #000; stroke: #f00"/>\n'
            for x in range(5)
        )
        + f'  </g>\n  <path d="M 0 1 \nL 2.129 3 \n" {clip} style="fill: none; stroke: #e3e3e3"/>\n'
        '  <defs>\n   <path id="m2" d="M 0 1 \nL 1 0 \nz \n"/>\n  </defs>\n'
        f'  <g {clip}><use xlink:href="#m2" x="7" y="8" style="fill: #fff"/></g>\n'
        f'  <path d="M 5 6 \nL 7 8 \n" {clip} style="fill: none; stroke: #e3e3e3"/>\n'
        '  <text style="font-size: 9px; font-family: \'DejaVu Sans\'" x="1.236" y="2"'
        ' transform="rotate(-0 1.236 2)">a b</text>\n </g>\n <clipPath id="p1"/></svg>'
    )
    found = smaller(text)
    styles = dict(re.findall(r"\.(k[0-9a-f]{7})\{([^}]*)\}", found))
    for name, style_text in styles.items():
        found = found.replace(f' class="{name}"', f' style="{style_text}"')
    body = re.sub(r"<style>.*?</style>", "", found)
    mark = re.search(r'<marker id="(i1-[0-9a-f]{4})"', body)
    assert mark is not None
    assert re.sub(r"^.*?<svg [^>]*>", "", body) == (
        '<defs><path id="i1" d="M0 1L1 0z"/></defs>'
        f'<marker id="{mark[1]}" overflow="visible" markerUnits="userSpaceOnUse">'
        '<use href="#i1" style="fill:#000;stroke:#f00"/></marker>'
        '<path d="M0.2 -2 1.2 -2 2.2 -2 3.2 -2 4.2 -2" clip-path="url(#i0)"'
        f' style="fill:none;marker:url(#{mark[1]})"/>'
        '<path d="M0 1L2.13 3M5 6L7 8" clip-path="url(#i0)" style="fill:none;stroke:#e3e3e3"/>'
        '<g clip-path="url(#i0)" style="fill:#fff"><use href="#i1" x="7" y="8"/></g>'
        '<text style="font-size:9px" x="1.24" y="2">a b</text><clipPath id="i0"/></svg>'
    )


@pytest.mark.parametrize("hatch", [*style.HATCHES, "////"])
def test_a_tile_of_hatching_has_the_lines_that_cross_it(hatch: str) -> None:
    """Repeated, it has the lines of the whole pattern: none is lost where tiles meet."""
    with mpl.rc_context(style.SETTINGS):
        whole = Figure(figsize=(1, 1))
        whole.add_artist(Rectangle((0, 0), 1, 1, hatch=hatch))
        out = io.StringIO()
        canvas: Any = FigureCanvasSVG(whole)
        canvas.print_svg(out, metadata={"Date": None})
    (pattern,) = re.findall(r"<pattern.*?</pattern>", out.getvalue(), flags=re.DOTALL)
    (tile,) = re.findall(r"<pattern.*?</pattern>", smaller(out.getvalue()), flags=re.DOTALL)
    assert f'width="{TILE}" height="{TILE}"' in tile
    number = r"(-?[\d.]+)"
    line = re.compile(rf"M\s*{number} {number}\s*L\s*{number} {number}")
    every, kept = ({tuple(map(float, one)) for one in line.findall(t)} for t in (pattern, tile))
    assert len(kept) < len(every)
    # What of the pattern is at a place of the tile is there in each repetition of it.
    for x0, y0, x1, y1 in every:
        for step in (0.17, 0.31, 0.53, 0.77):
            x, y = x0 + step * (x1 - x0), y0 + step * (y1 - y0)
            if 0 <= x < 72 and 0 <= y < 72:
                assert any(_is_on(x % TILE, y % TILE, one) for one in kept), (x, y)


def _is_on(x: float, y: float, line: tuple[float, ...]) -> bool:
    x0, y0, x1, y1 = line
    return abs((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)) < 0.02 * math.hypot(x1 - x0, y1 - y0)


def test_styles_are_once_in_a_page() -> None:
    text = figures.svg(figure("times"))
    one, other = (figures.inline(text, name, "what") for name in ("a", "b"))
    assert figures.styles_once(one) == one
    both = figures.styles_once(one + other)
    assert both == one + re.sub(r"<style>.*?</style>", "", other)
    used = set(re.findall(r'class="(k[0-9a-f]{7})"', both))
    assert used and used == set(re.findall(r"\.(k[0-9a-f]{7})\{", both))


def test_rates_of_anything_are_no_times() -> None:
    assert amount("iterations_per_s", 120.0) == "120 per s"
    assert amount("write_mib_per_s", 0.2) == "0.2 MiB/s"
    assert label("steps_per_s", 0.2) == ("steps (per s)", 1.0)


def test_units() -> None:
    assert amount("wall_s", 0.01234) == "12.34 ms"
    assert amount("one_way_s@64", 2e-6) == "2 µs"
    assert amount("write_bytes_per_s", 2.5e9) == "2.5 GB/s"
    assert amount("gflops", 7.84) == "7.84 GFLOPS"
    assert label("max_rss_bytes", 3 << 20) == ("memory (MiB)", 1 << 20)
    assert title("one_way_s@64") == "one way @ 64"
    assert amount("wall_s", float("nan")) == "-"
