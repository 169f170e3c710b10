"""Layout "scaling": (a) time from zero over ranks or threads, (b) speed-up beside the ideal."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from coracle_lab.figures import draw, style
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.units import label
from coracle_lab.figures.values import Cloud, Facet, Picture, finite, number

ROW = 3.0


def scaling(picture: Picture, parts: str = "ab") -> Figure:
    """Draws the layout, or one of its parts."""
    height = ROW * len(picture.facets) + 0.7 + draw.legend_room(picture)
    return draw.compose(picture, parts, {"a": (_times, 4.8, height), "b": (_speed, 4.8, height)})


def place_of(picture: Picture, x: str, name: str) -> float:
    """Returns the place of a number of ranks for one environment, on a logarithmic axis."""
    names = picture.environments
    at = (names.index(name) + 0.5) / len(names) - 0.5
    where = number(x) if picture.numeric() else 2.0 ** picture.xs.index(x)
    return float(where * 2 ** (0.3 * at))


def _axis(axes: Axes, picture: Picture) -> None:
    axes.set_xscale("log", base=2)
    places = [number(x) if picture.numeric() else 2.0**at for at, x in enumerate(picture.xs)]
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, draw.x_labels(picture))
    axes.set_xlim(min(places) / 1.35, max(places) * 1.35)
    axes.set_xlabel(draw.x_name(picture))


def _own(picture: Picture, facet: Facet, name: str) -> list[Cloud]:
    """Returns an environment's clouds in the order of x."""
    own = [c for c in facet.clouds if c.environment == name and finite(c.values)]
    return sorted(own, key=lambda cloud: picture.xs.index(cloud.x))


def _times(pane: Canvas, picture: Picture) -> None:
    grid = pane.subplots(len(picture.facets), 1, squeeze=False)
    text, size = label(picture.response, picture.largest())
    for axes, facet in zip(grid[:, 0], picture.facets, strict=True):
        for name in picture.environments:
            own = _own(picture, facet, name)
            _line(axes, picture, name, own, [[v / size for v in finite(c.values)] for c in own])
        axes.set_ylim(bottom=0)
        axes.set_ylabel(text)
        axes.set_title(facet.title)
        _axis(axes, picture)
    pane.suptitle("(a)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, picture.environments)


def _line(
    axes: Axes, picture: Picture, name: str, own: list[Cloud], values: list[list[float]]
) -> None:
    """Draws one environment: points, a mark at each place, models as hatched boxes."""
    look, pixels = draw.looks(picture)[name], draw.many(picture)
    xs, middles = [], []
    for cloud, shown in zip(own, values, strict=True):
        place = place_of(picture, cloud.x, name)
        if cloud.model:
            draw.model(axes, place, place * 0.12, shown, look)
            continue
        draw.points(axes, place, shown, look, pixels=pixels)
        xs.append(place)
        middles.append(draw.summary(picture, shown))
    draw.mark(axes, xs, middles, look, line=True)


def _speed(pane: Canvas, picture: Picture) -> None:
    grid = pane.subplots(len(picture.facets), 1, squeeze=False)
    for axes, facet in zip(grid[:, 0], picture.facets, strict=True):
        for name in picture.environments:
            own = _own(picture, facet, name)
            if not own:
                continue
            first = draw.summary(picture, own[0].values)
            _line(axes, picture, name, own, [_ups(picture, first, c.values) for c in own])
        if picture.numeric():
            places = [number(x) for x in picture.xs]
            ideal = [place / places[0] for place in places]
            axes.plot(places, ideal, color=style.GREY, linestyle=":", linewidth=1.0, zorder=1)
            axes.annotate("ideal", (places[-1], ideal[-1]), textcoords="offset points",
                          xytext=(-4, -10), ha="right", fontsize=7, color=style.GREY)  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"speed-up over {picture.x_name} {picture.xs[0]}")
        axes.set_title(facet.title)
        _axis(axes, picture)
    pane.suptitle("(b)", x=0.01, ha="left", fontsize=10, fontweight="bold")
    draw.legend(pane, picture, picture.environments)


def _ups(picture: Picture, first: float, values: tuple[float, ...]) -> list[float]:
    """Returns how many times faster each run was than the first place's median."""
    known = finite(values)
    return [value / first if picture.rate else first / value for value in known]
