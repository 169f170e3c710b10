"""Layout "series": (a) a response over sizes, both logarithmic; (b) its ratio to native.

So the overhead study draws its figure 3.
"""

from __future__ import annotations

import itertools
import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from coracle_lab.figures import draw
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.units import BYTES, label
from coracle_lab.figures.values import Picture, finite, number

ROW = 3.3
LABELS_AT_MOST = 11


def series(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    height = ROW * len(picture.facets) + 0.7 + draw.legend_room(picture)
    return draw.compose(picture, parts, {"a": (_values, 4.8, height), "b": (_ratios, 4.8, height)})


def _place(picture: Picture, x: str) -> float:
    """Returns the place of a size: numbers on a logarithmic axis, others one after another."""
    return number(x) if picture.numeric() else float(picture.xs.index(x) + 1)


def _dodged(picture: Picture, x: str, at: int, of: int) -> float:
    """Returns the place of one environment's interval, beside those of the others."""
    places = [_place(picture, one) for one in picture.xs]
    step = min((b / a for a, b in itertools.pairwise(places)), default=2.0)
    return _place(picture, x) * float(step ** (0.5 * ((at + 0.5) / max(of, 1) - 0.5)))


def _size(value: float) -> str:
    size, unit = next((one for one in BYTES if value >= one[0]), BYTES[-1])
    return f"{value / size:g} {unit}"


def _axis(axes: Axes, picture: Picture) -> None:
    """Makes the x axis: sizes in bytes get their unit."""
    axes.set_xscale("log")
    places = [_place(picture, x) for x in picture.xs]
    every = math.ceil(len(places) / LABELS_AT_MOST)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places[::every])
    if picture.numeric():
        sized = "byte" in picture.x_name or "size" in picture.x_name
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: _size(value) if sized else f"{value:g}")
        )
    else:
        axes.set_xticklabels(picture.xs[::every])
    for tick in axes.get_xticklabels():
        tick.set(rotation=40, ha="right")
    axes.set_xlabel(draw.x_name(picture))


def _values(pane: Canvas, picture: Picture) -> None:
    grid = pane.subplots(len(picture.facets), 1, squeeze=False)
    looks, pixels = draw.looks(picture), draw.many(picture)
    text, size = label(picture.response, picture.largest() / 30)
    for axes, facet in zip(grid[:, 0], picture.facets, strict=True):
        for name in picture.environments:
            own = [c for c in facet.clouds if c.environment == name and finite(c.values)]
            own.sort(key=lambda cloud: _place(picture, cloud.x))
            xs = [_place(picture, cloud.x) for cloud in own]
            scaled = [[value / size for value in finite(cloud.values)] for cloud in own]
            for x, values in zip(xs, scaled, strict=True):
                draw.points(axes, x, values, looks[name], pixels=pixels)
            middles = [draw.summary(picture, values) for values in scaled]
            draw.mark(axes, xs, middles, looks[name], line=True, size=4)
            if picture.view == "mean":
                bars = [draw.bar_of_means(values) for values in scaled]
                # A bar that reaches below zero has no place on a logarithmic axis.
                below = [min(b, m * 0.999) for b, m in zip(bars, middles, strict=True)]
                axes.errorbar(xs, middles, [below, bars], capsize=2, linestyle="none",
                              color=looks[name].colour, zorder=3, linewidth=0.8)  # fmt: skip
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylabel(text)
        axes.set_title(facet.title)
        _axis(axes, picture)
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, picture.environments)


def _ratios(pane: Canvas, picture: Picture) -> None:
    grid = pane.subplots(len(picture.facets), 1, squeeze=False)
    looks, pixels = draw.looks(picture), draw.many(picture)
    names = picture.others()
    for axes, facet in zip(grid[:, 0], picture.facets, strict=True):
        clouds = [c for c in facet.clouds if c.environment in names]
        most = draw.reach(clouds)
        percent = most <= draw.LOG_ABOVE
        for cloud in clouds:
            at = names.index(cloud.environment)
            x = _dodged(picture, cloud.x, at, len(names))
            look = looks[cloud.environment]
            shown = [(r - 1) * 100 if percent else r for r in cloud.ratios]
            draw.points(axes, x, shown, look, pixels=pixels)
            if cloud.ratio is not None:
                draw.interval(axes, x, cloud.ratio, look, horizontal=False, percent=percent)
        draw.ratio_axis(axes, most, "y", picture.base, percent)
        axes.set_title(facet.title)
        _axis(axes, picture)
    pane.suptitle("(b)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, names)
