"""Layout "rates": (a) bars of a rate from zero with all points, (b) ratios as in "ratios".

Rates are drawn as they were measured (larger is better); ratios are of times (above 1 is slower).
"""

from __future__ import annotations

from matplotlib.figure import Figure

from coracle_lab.figures import draw
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.ratios import dots, dots_height, panels
from coracle_lab.figures.units import label
from coracle_lab.figures.values import Picture


def rates(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    count = max(1, len(panels(picture)))
    height = max(2.6 * count + 0.4, dots_height(picture))
    return draw.compose(
        picture, parts, {"a": (_bars, 4.8, height), "b": (_ratios, 5.0, dots_height(picture))}
    )


def _bars(pane: Canvas, picture: Picture) -> None:
    shown = panels(picture)
    grid = pane.subplots(max(1, len(shown)), 1, squeeze=False)
    looks, pixels = draw.looks(picture), draw.many(picture)
    names = list(picture.environments)
    text, size = label(picture.response, picture.largest())
    for axes, (title, own) in zip(grid[:, 0], shown, strict=False):
        for cloud in own:
            look, place = looks[cloud.environment], names.index(cloud.environment)
            scaled = [value / size for value in cloud.values]
            hatch = "////" if cloud.model else look.hatch
            axes.bar([place], [draw.summary(picture, scaled)], width=0.7, facecolor="#f4f4f4",
                     edgecolor=look.colour, hatch=hatch, linewidth=0.9, zorder=1)  # fmt: skip
            draw.points(axes, place, scaled, look, width=0.4, pixels=pixels)
            if cloud.model:
                axes.annotate("model", (place, 0), textcoords="offset points", xytext=(0, 4),
                              ha="center", fontsize=7)  # fmt: skip
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.set_ylim(bottom=0)
        axes.set_ylabel(text)
        axes.set_title(title)
        axes.grid(visible=False, axis="x")
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")


def _ratios(pane: Canvas, picture: Picture) -> None:
    dots(pane, picture)
    pane.suptitle("(b)", x=0.01, ha="left", fontsize=10, fontweight="bold")
