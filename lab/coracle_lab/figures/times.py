"""Layout "times": (a) times from zero, native left and containers right; (b) overhead in %.

So the overhead study draws its figures 1, 2 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coracle_lab.figures import draw
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.units import label
from coracle_lab.figures.values import Cloud, Facet, Picture, finite

ROW = 2.5
"""Height of one facet in inches."""


def times(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    height = ROW * len(picture.facets) + 0.7 + draw.legend_room(picture)
    return draw.compose(picture, parts, {"a": (_times, 5.0, height), "b": (_overhead, 4.6, height)})


def _groups(picture: Picture) -> list[tuple[str, list[str]]]:
    """Returns the columns of facets: the base with its control, then all others."""
    control = [picture.base, f"{picture.base}-again"]
    left = [name for name in picture.environments if name in control]
    right = [name for name in picture.environments if name not in control]
    return [(name, group) for name, group in ((picture.base, left), ("others", right)) if group]


def place_of(picture: Picture, names: Sequence[str], cloud: Cloud) -> float:
    """Returns where a cloud stands: beside those of other environments at the same place of x."""
    at = picture.xs.index(cloud.x)
    if picture.by_environment():
        return float(names.index(cloud.environment))
    step = 0.72 / max(1, len(names))
    return at + (names.index(cloud.environment) - (len(names) - 1) / 2) * step


def _times(pane: Canvas, picture: Picture) -> None:
    text, size = label(picture.response, picture.largest())
    groups = _groups(picture)
    grid = pane.subplots(
        len(picture.facets), len(groups), squeeze=False, sharey="row",
        width_ratios=[_width(picture, names) for _, names in groups],
    )  # fmt: skip
    for row, facet in zip(grid, picture.facets, strict=True):
        for axes, (title, names) in zip(row, groups, strict=True):
            _cloudy(axes, picture, facet, names, size)
            axes.set_title(f"{facet.title}: {title}" if facet.title else title)
        row[0].set_ylabel(text)
        # Both columns share the axis, and it holds all of this facet.
        row[0].set_ylim(0, 1.06 * (_top(facet) / size or 1.0))
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, picture.environments)


def _top(facet: Facet) -> float:
    """Returns the largest value of a facet."""
    every = (value for cloud in facet.clouds for value in finite(cloud.values))
    return max(every, default=0.0)


def _width(picture: Picture, names: Sequence[str]) -> float:
    return max(2.0, float(len(names))) if picture.by_environment() else 1.0


def _cloudy(axes: Axes, picture: Picture, facet: Facet, names: Sequence[str], size: float) -> None:
    looks, pixels = draw.looks(picture), draw.many(picture)
    named: set[str] = set()
    width = 0.5 / max(1, len(names)) if not picture.by_environment() else 0.4
    for name in names:
        xs, middles = [], []
        for cloud in facet.clouds:
            if cloud.environment != name:
                continue
            place = place_of(picture, names, cloud)
            scaled = [value / size for value in cloud.values]
            if cloud.model:
                at = "" if picture.by_environment() else cloud.x
                draw.model(axes, place, width, scaled, looks[name], at not in named)
                named.add(at)
                continue
            draw.points(axes, place, scaled, looks[name], width=width, pixels=pixels)
            middle = draw.summary(picture, scaled)
            if picture.view == "mean" and not math.isnan(middle):
                axes.errorbar([place], [middle], [draw.bar_of_means(scaled)], capsize=3,
                              color=looks[name].colour, zorder=3)  # fmt: skip
            xs.append(place)
            middles.append(middle)
        draw.mark(axes, xs, middles, looks[name], line=not picture.by_environment())
    _places(axes, picture, names)


def _places(axes: Axes, picture: Picture, names: Sequence[str]) -> None:
    """Labels the places of the x axis."""
    if picture.by_environment():
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.set_xlim(-0.6, len(names) - 0.4)
    else:
        axes.set_xticks(range(len(picture.xs)), draw.x_labels(picture))
        axes.set_xlim(-0.5, len(picture.xs) - 0.5)
        axes.set_xlabel(draw.x_name(picture))
    axes.grid(visible=False, axis="x")


def _overhead(pane: Canvas, picture: Picture) -> None:
    grid = pane.subplots(len(picture.facets), 1, squeeze=False)
    names = picture.others()
    looks, pixels = draw.looks(picture), draw.many(picture)
    for axes, facet in zip(grid[:, 0], picture.facets, strict=True):
        clouds = [c for c in facet.clouds if c.environment in names]
        most = draw.reach(clouds)
        percent = most <= draw.LOG_ABOVE
        named: set[str] = set()
        for cloud in clouds:
            look, place = looks[cloud.environment], place_of(picture, names, cloud)
            shown = [(r - 1) * 100 if percent else r for r in cloud.ratios]
            if cloud.model:
                at = "" if picture.by_environment() else cloud.x
                width = 0.5 / (1 if picture.by_environment() else len(names))
                draw.model(axes, place, width, shown, look, at not in named)
                named.add(at)
                continue
            width = 0.4 / max(1, 1 if picture.by_environment() else len(names))
            draw.points(axes, place, shown, look, width=width, pixels=pixels)
            if cloud.ratio is not None:
                draw.interval(axes, place, cloud.ratio, look, horizontal=False, percent=percent)
        draw.ratio_axis(axes, most, "y", picture.base, percent)
        _places(axes, picture, names)
        axes.set_title(facet.title)
    pane.suptitle("(b)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, names)
