"""Layout "order": (a) the runs in the order in which they were made, (b) a normal Q-Q plot.

A drift, a disturbance or a step of the machine is seen in the first, a tail in the second. The
picture has two facets, one for each part, whose clouds have a number for each value beside it.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from coracle_lab.figures import draw, style
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.values import Picture

MIDDLE = 0.95
"""(a) shows at least this share of the runs; the others are at its edges."""


def order(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    height = 2.9 + draw.legend_room(picture)
    return draw.compose(picture, parts, {"a": (_order, 5.6, height), "b": (_normal, 4.0, height)})


def _order(pane: Canvas, picture: Picture) -> None:
    axes = pane.subplots()
    clouds = picture.facets[0].clouds
    far = sorted(max(value, 1 / value) for cloud in clouds for value in cloud.values if value > 0)
    most = 1 + 1.2 * max(far[int(MIDDLE * (len(far) - 1))] - 1, 0.005) if far else 1.01
    looks, pixels = draw.looks(picture), draw.many(picture)
    for cloud in clouds:
        inside = [min(max(value, 1 / most), most) for value in cloud.values]
        draw.scatter(axes, cloud.places, inside, looks[cloud.environment], pixels)
    draw.ratio_axis(axes, most, "y", "its median", percent=False)
    axes.set_xlabel("number of the run")
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, picture.environments)


def _normal(pane: Canvas, picture: Picture) -> None:
    axes = pane.subplots()
    looks, pixels = draw.looks(picture), draw.many(picture)
    clouds = picture.facets[1].clouds
    for cloud in clouds:
        draw.scatter(axes, cloud.places, cloud.values, looks[cloud.environment], pixels)
    places = [place for cloud in clouds for place in cloud.places]
    ends = [min(places, default=0), max(places, default=1)]
    axes.plot(ends, ends, color=style.BLACK, linewidth=0.9, zorder=1)
    axes.set_xlabel("normal quantile")
    axes.set_ylabel("standardised logarithm")
    pane.suptitle("(b)", x=0.01, ha="left", fontsize=10, fontweight="bold")
