"""The marks that all layouts have in common: points, summaries, intervals, axes, legends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from coracle_lab.figures import style
from coracle_lab.figures.style import Look
from coracle_lab.figures.values import Cloud, Picture, Ratio, finite

Canvas = Figure | SubFigure
Side = Literal["x", "y"]
Drawer = Callable[[Canvas, Picture], None]

GOLDEN = (math.sqrt(5) - 1) / 2
VECTORS_AT_MOST = 800
"""A figure with more points than this has them as pixels, or no reader opens it."""
LOG_ABOVE = 2.0
"""Ratios beyond this are on a logarithmic axis."""
OVER = "oversubscribed"


def compose(
    picture: Picture, parts: str, drawers: Mapping[str, tuple[Drawer, float, float]]
) -> Figure:
    """Returns a figure of some parts beside each other; each has a drawer, width and height."""
    chosen = [drawers[part] for part in parts if part in drawers]
    widths = [width for _, width, _ in chosen]
    with mpl.rc_context(style.SETTINGS):
        figure = Figure(
            figsize=(sum(widths), max(height for _, _, height in chosen)), layout="constrained"
        )
        panes = figure.subfigures(1, len(chosen), squeeze=False, width_ratios=widths)[0]
        for pane, (draw, _, _) in zip(panes, chosen, strict=True):
            draw(pane, picture)
        # The layout is settled here, so that it is the same however often and whereto it is drawn.
        engine = figure.get_layout_engine()
        assert engine is not None
        engine.execute(figure)
        figure.set_layout_engine("none")
    return figure


def looks(picture: Picture) -> dict[str, Look]:
    """Returns the looks of a picture's environments."""
    return style.looks(picture.environments, picture.base)


def jitter(at: int, width: float) -> float:
    """Returns how far the run of this number stands beside its place: the same each time."""
    return ((at * GOLDEN) % 1.0 - 0.5) * width


def summary(picture: Picture, values: Sequence[float]) -> float:
    """Returns the median, or the mean in the papers' view; NaN of nothing."""
    known = finite(values)
    if not known:
        return math.nan
    return statistics.fmean(known) if picture.view == "mean" else statistics.median(known)


def bar_of_means(values: Sequence[float]) -> float:
    """Returns 3 s/√n, or 0 of one value."""
    known = finite(values)
    return 3 * statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else 0.0


def many(picture: Picture) -> bool:
    """Tells whether a picture has more points than a vector graphic can hold well."""
    return sum(len(cloud.values) for cloud in picture.clouds()) > VECTORS_AT_MOST


def points(
    axes: Axes,
    place: float,
    values: Sequence[float],
    look: Look,
    *,
    width: float = 0.0,
    horizontal: bool = False,
    pixels: bool = False,
) -> None:
    """Draws each value as a small point near its place."""
    known = [(jitter(at, width) + place, value) for at, value in enumerate(finite(values), 1)]
    if not known:
        return
    places, sizes = zip(*known, strict=True)
    first, second = (sizes, places) if horizontal else (places, sizes)
    scatter(axes, first, second, look, pixels)


def scatter(
    axes: Axes, first: Sequence[float], second: Sequence[float], look: Look, pixels: bool
) -> None:
    """Draws small points at places of both axes."""
    axes.scatter(
        first,
        second,
        s=9,
        marker=look.marker,
        facecolors=look.colour if look.filled else "none",
        edgecolors=look.colour,
        linewidths=0.4,
        alpha=0.45,
        zorder=2,
        rasterized=pixels,
    )


def mark(
    axes: Axes,
    first: Sequence[float],
    second: Sequence[float],
    look: Look,
    line: bool = False,
    size: float = 6,
) -> None:
    """Draws medians or means as large marks, joined by a line if x is a quantity."""
    axes.plot(
        first,
        second,
        marker=look.marker,
        markersize=size,
        markerfacecolor=look.face,
        markeredgecolor=look.colour,
        markeredgewidth=1.1,
        color=look.colour,
        linestyle=("-" if look.filled else "--") if line else "none",
        zorder=4,
    )


def interval(
    axes: Axes, place: float, ratio: Ratio, look: Look, horizontal: bool, percent: bool
) -> None:
    """Draws a ratio with its intervals: 95 % thick, 99.7 % thin."""

    def at(value: float) -> float:
        return (value - 1) * 100 if percent else value

    for limits, thickness in ((ratio.wide, 1.0), (ratio.narrow, 3.2)):
        if limits is None:
            continue
        ends, where = [at(limits[0]), at(limits[1])], [place, place]
        first, second = (ends, where) if horizontal else (where, ends)
        axes.plot(first, second, color=look.colour, linewidth=thickness, zorder=3,
                  solid_capstyle="butt")  # fmt: skip
    first, second = ([at(ratio.value)], [place]) if horizontal else ([place], [at(ratio.value)])
    mark(axes, first, second, look, size=4.5)


def reach(clouds: Sequence[Cloud]) -> float:
    """Returns the largest ratio, or inverse of one, that an axis has to show.

    An interval of 99.7 % from a few runs can be wide beyond measure: it counts only as far as
    three times what the estimates and the points need.
    """
    shown, limits = [1.005], [1.0]
    for cloud in clouds:
        for value in finite(cloud.ratios):
            shown.append(max(value, 1 / value))
        if cloud.ratio is not None:
            shown.append(max(cloud.ratio.value, 1 / cloud.ratio.value))
            for pair in (cloud.ratio.narrow, cloud.ratio.wide):
                limits += [max(end, 1 / end) for end in pair or () if end > 0]
    largest = max(shown)
    return 1 + 1.1 * (max(largest, min(max(limits), 1 + 3 * (largest - 1))) - 1)


def ratio_axis(axes: Axes, most: float, side: Side, base: str, percent: bool) -> None:
    """Makes an axis of ratios whose middle is 1 (0 %), and draws that line."""
    middle = 0.0 if percent else 1.0
    line = axes.axvline if side == "x" else axes.axhline
    line(middle, color=style.BLACK, linewidth=0.9, zorder=1)
    limit = axes.set_xlim if side == "x" else axes.set_ylim
    label = axes.set_xlabel if side == "x" else axes.set_ylabel
    axis = axes.xaxis if side == "x" else axes.yaxis
    if percent:
        limit(-(most - 1) * 100, (most - 1) * 100)
        label(f"overhead to {base} (%)")
    elif most > LOG_ABOVE:
        (axes.set_xscale if side == "x" else axes.set_yscale)("log")
        limit(1 / most, most)
        label(f"ratio to {base} (logarithmic)")
        subs = (1.0, 2.0, 5.0) if most < 30 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        limit(2 - most, most)
        label(f"ratio to {base}")


def model(
    axes: Axes,
    place: float,
    width: float,
    values: Sequence[float],
    look: Look,
    named: bool = True,
    horizontal: bool = False,
) -> None:
    """Draws a modelled value as a hatched box from its lowest to its highest draw.

    One at each place is named a model: more words would cover each other.
    """
    known = finite(values)
    if not known:
        return
    low, high = min(known), max(known)
    height = max(high - low, 0.004 * high)
    corner, size = (place - width / 2, low), (width, height)
    if horizontal:
        corner, size = corner[::-1], size[::-1]
    box = Rectangle(
        corner, *size, facecolor="none", edgecolor=look.colour, hatch="////", linewidth=0.9,
        zorder=3,
    )  # fmt: skip
    axes.add_patch(box)
    if not named:
        return
    end, beside = ((high, place), (3, 0)) if horizontal else ((place, high), (0, 3))
    axes.annotate(
        "model", end, textcoords="offset points", xytext=beside, fontsize=7, color=look.colour,
        ha="left" if horizontal else "center", va="center" if horizontal else "baseline",
    )  # fmt: skip


def x_labels(picture: Picture) -> list[str]:
    """Returns the labels of the places on the x axis."""
    return [f"{x}*" if x in picture.over else x for x in picture.xs]


def x_name(picture: Picture) -> str:
    """Returns the label of the x axis, which says what a star at a place means."""
    starred = any(x in picture.over for x in picture.xs)
    return f"{picture.x_name} (* {OVER})" if starred else picture.x_name


def panel_title(picture: Picture, title: str, x: str) -> str:
    """Returns the title of a panel that shows one place of x."""
    place = "" if picture.by_environment() else f"{picture.x_name} {x}"
    over = OVER if x in picture.over else ""
    return ", ".join(part for part in (title, place, over) if part)


def _columns(names: Sequence[str]) -> int:
    """Returns in how many columns a legend has its names."""
    wide = max((len(name) for name in names), default=1)
    return max(1, min(len(names), 60 // (wide + 6)))


def legend_room(picture: Picture) -> float:
    """Returns the height in inches of a legend's lines beyond the first two."""
    names = picture.environments
    return 0.2 * max(0, math.ceil(len(names) / _columns(names)) - 2)


def legend(pane: Canvas, picture: Picture, names: Sequence[str], hatched: bool = False) -> None:
    """Draws the legend of environments below a pane."""
    found = looks(picture)
    handles: list[Line2D | Patch] = []
    for name in names:
        look = found[name]
        if hatched:
            handles.append(
                Patch(facecolor="white", edgecolor=look.colour, hatch=look.hatch, label=name)
            )
        else:
            handles.append(_handle(name, look))
    pane.legend(handles=handles, loc="outside lower center", ncols=_columns(names))


def _handle(name: str, look: Look) -> Line2D:
    line: Literal["-", "--"] = "-" if look.filled else "--"
    return Line2D(
        [], [], color=look.colour, marker=look.marker, markerfacecolor=look.face, linestyle=line,
        label=name,
    )  # fmt: skip


def models_in(clouds: Sequence[Cloud]) -> bool:
    """Tells whether some of the clouds are modelled."""
    return any(cloud.model for cloud in clouds)
