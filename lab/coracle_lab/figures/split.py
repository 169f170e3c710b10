"""Layout "split": where the time of a run goes, part after part, for each environment."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from coracle_lab.figures import draw, style
from coracle_lab.figures.draw import Canvas
from coracle_lab.figures.ratios import panels
from coracle_lab.figures.style import Look
from coracle_lab.figures.units import label
from coracle_lab.figures.values import Cloud, Picture, finite

LINE = 0.34
HATCHES = ("", "///", "---", "xxx", "\\\\\\", "|||", "+++")
FACES = ("#4d4d4d", "#bdd7e7", "#fdd49e", "#c7e9c0", "#e5d8f0", "#f2f2f2", "#fee0d2")


def split(picture: Picture, parts: str = "a") -> Figure:
    """Draws the layout, which has one part."""
    count = max(1, len(panels(picture)))
    height = (LINE * max(2, len(picture.environments)) + 0.5) * count + 1.0
    return draw.compose(picture, "a", {"a": (_bars, 5.0, max(2.2, height))})


def _bars(pane: Canvas, picture: Picture) -> None:
    shown = panels(picture)
    grid = pane.subplots(max(1, len(shown)), 1, squeeze=False, sharex=True)
    totals = [_middles(picture, own, name) for _, own in shown for name in picture.environments]
    text, size = label("time_s", max((sum(total) for total in totals), default=1.0))
    for axes, (title, own) in zip(grid[:, 0], shown, strict=False):
        for at, name in enumerate(picture.environments):
            _stack(axes, picture, [c for c in own if c.environment == name], at, size)
        axes.set_yticks(range(len(picture.environments)), list(picture.environments))
        axes.set_ylim(len(picture.environments) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_title(title)
        axes.grid(visible=False, axis="y")
    grid[-1, 0].set_xlabel(f"{text}, one part after the other")
    handles = [
        Patch(facecolor=FACES[at % len(FACES)], hatch=HATCHES[at % len(HATCHES)],
              edgecolor=style.BLACK, label=part)
        for at, part in enumerate(picture.parts)
    ]  # fmt: skip
    pane.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles) or 1))


def _middles(picture: Picture, own: list[Cloud], name: str) -> list[float]:
    """Returns the medians of an environment's parts, in their order; 0 where one is missing."""
    found = {c.part: draw.summary(picture, c.values) for c in own if c.environment == name}
    values = [found.get(part, 0.0) for part in picture.parts]
    return [0.0 if math.isnan(value) else value for value in values]


def _stack(axes: Axes, picture: Picture, own: list[Cloud], place: int, size: float) -> None:
    """Draws one bar of parts; each part's runs are points around its end."""
    left = 0.0
    plain = Look(style.BLACK, "o", "", filled=False)
    for at, part in enumerate(picture.parts):
        cloud = next((c for c in own if c.part == part), None)
        if cloud is None or not finite(cloud.values):
            continue
        width = draw.summary(picture, cloud.values) / size
        model = cloud.model
        axes.barh([place], [width], left=[left], height=0.62, linewidth=0.7, zorder=1,
                  facecolor="none" if model else FACES[at % len(FACES)],
                  hatch="////" if model else HATCHES[at % len(HATCHES)],
                  edgecolor=style.BLACK)  # fmt: skip
        ends = [left + value / size for value in finite(cloud.values)]
        draw.points(
            axes, place, ends, plain, width=0.45, horizontal=True, pixels=draw.many(picture)
        )
        left += width
    if draw.models_in(own):
        axes.annotate("model", (left, place), textcoords="offset points", xytext=(4, -3),
                      fontsize=7)  # fmt: skip
