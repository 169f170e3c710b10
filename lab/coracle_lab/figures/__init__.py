"""Draws figures: values in, a matplotlib figure out, one function for each layout.

Pure: nothing is read or written, and equal values give equal bytes as SVG and PNG. Every layout
draws all points. Axes of times start at zero (but for the logarithmic ones of "series"), those of
ratios have 1 in their middle, and environments differ by shape and hatching besides colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from coracle_lab.figures.distribution import distribution
from coracle_lab.figures.effects import effects
from coracle_lab.figures.order import order
from coracle_lab.figures.rates import rates
from coracle_lab.figures.ratios import ratios
from coracle_lab.figures.scaling import scaling
from coracle_lab.figures.series import series
from coracle_lab.figures.split import split
from coracle_lab.figures.style import png, svg
from coracle_lab.figures.times import times
from coracle_lab.figures.values import Cloud, Facet, Picture, Ratio
from coracle_lab.figures.vector import inline, styles_once

LAYOUTS: Mapping[str, tuple[Callable[..., Figure], str]] = {
    "times": (times, "ab"),
    "series": (series, "ab"),
    "ratios": (ratios, "a"),
    "rates": (rates, "ab"),
    "distribution": (distribution, "ab"),
    "split": (split, "a"),
    "scaling": (scaling, "ab"),
    "effects": (effects, "ab"),
    "order": (order, "ab"),
}
"""Each layout's function, and the parts that it has."""

__all__ = [
    "LAYOUTS",
    "Cloud",
    "Facet",
    "Picture",
    "Ratio",
    "distribution",
    "effects",
    "inline",
    "order",
    "png",
    "rates",
    "ratios",
    "scaling",
    "series",
    "split",
    "styles_once",
    "svg",
    "times",
]
