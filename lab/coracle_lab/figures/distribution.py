"""Layout "distribution": (a) what share of the runs took at most so long, (b) quantiles over
native's median.

The slowest of many ranks decides when a job starts, so the tail matters as much as the median.
"""

from __future__ import annotations

import statistics

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coracle_lab.figures import draw
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.ratios import panels
from coracle_lab.figures.style import Look
from coracle_lab.figures.units import label
from coracle_lab.figures.values import Cloud, Picture, finite

ROW = 2.9
LINE = 0.3


def distribution(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    count = max(1, len(panels(picture)))
    height = max(ROW, LINE * len(picture.environments) + 0.6) * count + 0.7
    height += draw.legend_room(picture)
    return draw.compose(
        picture, parts, {"a": (_shares, 4.8, height), "b": (_quantiles, 4.8, height)}
    )


def _shares(pane: Canvas, picture: Picture) -> None:
    shown = panels(picture)
    grid = pane.subplots(max(1, len(shown)), 1, squeeze=False)
    looks = draw.looks(picture)
    text, size = label(picture.response, picture.largest())
    for axes, (title, own) in zip(grid[:, 0], shown, strict=False):
        for cloud in own:
            values = sorted(value / size for value in finite(cloud.values))
            if not values:
                continue
            look = looks[cloud.environment]
            shares = [(at + 1) / len(values) for at in range(len(values))]
            axes.step([values[0], *values], [0.0, *shares], where="post", color=look.colour,
                      linestyle="-" if look.filled else "--",
                      rasterized=draw.many(picture))  # fmt: skip
            axes.plot(
                values, shares, linestyle="none", marker=look.marker, markersize=3,
                markerfacecolor=look.face, markeredgecolor=look.colour, markeredgewidth=0.6,
                alpha=0.7, rasterized=draw.many(picture),
            )  # fmt: skip
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("share of the runs")
        axes.set_xlabel(text)
        axes.set_title(title)
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, picture.environments)


def _quantiles(pane: Canvas, picture: Picture) -> None:
    shown = [(title, _relative(picture, own)) for title, own in panels(picture)]
    grid = pane.subplots(max(1, len(shown)), 1, squeeze=False)
    looks, pixels = draw.looks(picture), draw.many(picture)
    names = list(picture.environments)
    for axes, (title, own) in zip(grid[:, 0], shown, strict=False):
        for name, values in own.items():
            _one(axes, float(names.index(name)), values, looks[name], pixels)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_title(title)
        axes.grid(visible=False, axis="y")
        every = [max(value, 1 / value) for values in own.values() for value in values]
        most = 1 + 1.1 * (max(every, default=1.005) - 1)
        draw.ratio_axis(axes, most, "x", f"{picture.base}'s median", percent=False)
    pane.suptitle(
        "(b) median, quartiles (thick), 5 to 95 % (thin), 99 % (bar)",
        x=0.01, ha="left", fontsize=10, fontweight="bold",
    )  # fmt: skip


def _relative(picture: Picture, own: list[Cloud]) -> dict[str, list[float]]:
    """Returns each environment's values over the base's median; nothing without that."""
    base = next((finite(c.values) for c in own if c.environment == picture.base), [])
    if not base:
        return {}
    middle = statistics.median(base)
    found = {c.environment: [v / middle for v in finite(c.values) if v > 0] for c in own}
    return {name: values for name, values in found.items() if values and middle > 0}


def _one(axes: Axes, place: float, values: list[float], look: Look, pixels: bool) -> None:
    """Draws the points and quantiles of one environment; no quantile beyond its values' reach."""
    draw.points(axes, place + 0.18, values, look, width=0.22, horizontal=True, pixels=pixels)
    low, first, middle, third, high, last = np.quantile(
        values, [0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
    ).tolist()
    if len(values) >= 20:
        axes.plot([low, high], [place] * 2, color=look.colour, linewidth=1.0, zorder=3)
    if len(values) >= 4:
        axes.plot([first, third], [place] * 2, color=look.colour, linewidth=3.2, zorder=3,
                  solid_capstyle="butt")  # fmt: skip
    if len(values) >= 100:
        axes.plot([last], [place], marker="|", markersize=9, color=look.colour, zorder=3)
    draw.mark(axes, [middle], [place], look)
