"""Layout "ratios": one line for each environment, its ratio with both intervals, and all points.

So the udocker paper's bars of ratios are drawn: a bar from zero would hide what differs.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coracle_lab.figures import draw
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.values import Cloud, Picture, finite

LINE = 0.27
"""Height of one environment in inches."""

Panel = tuple[str, list[Cloud]]


def ratios(picture: Picture, parts: str = "a") -> Figure:
    """Draws the layout, which has one part."""
    return draw.compose(picture, "a", {"a": (dots, 5.0, dots_height(picture))})


def panels(picture: Picture) -> list[Panel]:
    """Returns one panel for each facet and place of x."""
    found = []
    for facet in picture.facets:
        for x in [""] if picture.by_environment() else picture.xs:
            own = [c for c in facet.clouds if c.x == x or picture.by_environment()]
            if own:
                found.append((draw.panel_title(picture, facet.title, x), own))
    return found


def dots_height(picture: Picture) -> float:
    """Returns the height of the dot plot in inches."""
    lines = LINE * max(2, len(picture.others())) + 0.35
    return max(2.0, lines * max(1, len(panels(picture))) + 0.7)


def dots(pane: Canvas, picture: Picture) -> None:
    """Draws the dot plot into a pane."""
    shown = panels(picture)
    grid = pane.subplots(max(1, len(shown)), 1, squeeze=False, sharex=True)
    names = picture.others()
    # Everything shares one axis, so that panels can be compared by eye.
    most = draw.reach([c for _, own in shown for c in own if c.environment in names])
    for axes, (title, own) in zip(grid[:, 0], shown, strict=False):
        _panel(axes, picture, own, most)
        axes.set_title(title)
    draw.ratio_axis(grid[-1, 0], most, "x", picture.base, percent=False)


def _panel(axes: Axes, picture: Picture, own: list[Cloud], most: float) -> None:
    looks, pixels = draw.looks(picture), draw.many(picture)
    names = picture.others()
    for cloud in own:
        if cloud.environment not in names:
            continue
        place = float(names.index(cloud.environment))
        look = looks[cloud.environment]
        draw.points(
            axes, place, finite(cloud.ratios), look, width=0.5, horizontal=True, pixels=pixels
        )
        if cloud.model and cloud.ratio is not None:
            ends = cloud.ratio.narrow or (cloud.ratio.value, cloud.ratio.value)
            draw.model(axes, place, 0.5, ends, look, horizontal=True)
        elif cloud.ratio is not None:
            draw.interval(axes, place, cloud.ratio, look, horizontal=True, percent=False)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    draw.ratio_axis(axes, most, "x", picture.base, percent=False)
    axes.set_xlabel("")
