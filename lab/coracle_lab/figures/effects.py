"""Layout "effects": (a) the ratio of each factor's two levels, the largest first; (b) all runs.

An "environment" of the picture is a factor here, and the parts of a cloud are its two levels. The
factors differ by their lines, so all of them have one look.
"""

from __future__ import annotations

from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coracle_lab.figures import draw, style
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.style import Look
from coracle_lab.figures.units import label
from coracle_lab.figures.values import Picture, finite

LINE = 0.36
"""Height of one factor in inches."""
FIRST, SECOND = "first", "second"
"""The parts: a factor's first and second level."""
LOOK = Look(style.COLOURS[0], "o", "")
BESIDE = 0.19
"""How far each of the two levels is from the middle of its line."""


def effects(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    height = max(2.2, LINE * len(picture.environments) + 1.2)
    return draw.compose(picture, parts, {"a": (_ratios, 4.8, height), "b": (_runs, 4.8, height)})


def _ratios(pane: Canvas, picture: Picture) -> None:
    axes = pane.subplots()
    clouds = [cloud for cloud in picture.clouds() if cloud.part == SECOND]
    most = draw.reach(clouds)
    for cloud in clouds:
        place = float(picture.environments.index(cloud.environment))
        draw.points(axes, place, finite(cloud.ratios), LOOK, width=0.5, horizontal=True)
        if cloud.ratio is not None:
            draw.interval(axes, place, cloud.ratio, LOOK, horizontal=True, percent=False)
    _lines(axes, picture)
    draw.ratio_axis(axes, most, "x", picture.base, percent=False)
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")


def _runs(pane: Canvas, picture: Picture) -> None:
    axes = pane.subplots()
    text, size = label(picture.response, picture.largest())
    pixels = draw.many(picture)
    looks = {FIRST: replace(LOOK, filled=False), SECOND: LOOK}
    for cloud in picture.clouds():
        side = -BESIDE if cloud.part == FIRST else BESIDE
        place = picture.environments.index(cloud.environment) + side
        values = [value / size for value in finite(cloud.values)]
        look = looks[cloud.part]
        draw.points(axes, place, values, look, width=0.22, horizontal=True, pixels=pixels)
        draw.mark(axes, [draw.summary(picture, values)], [place], look)
    _lines(axes, picture)
    axes.set_xlim(0, 1.06 * (picture.largest() / size or 1.0))
    axes.set_xlabel(text)
    pane.suptitle("(b)", x=0.01, ha="left", fontsize=10, fontweight="bold")


def _lines(axes: Axes, picture: Picture) -> None:
    """Labels one line for each factor."""
    names = picture.environments
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
