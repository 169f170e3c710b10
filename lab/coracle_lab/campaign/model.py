"""The values that a campaign's file becomes: `Campaign` and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Layout = Literal[
    "times", "series", "ratios", "rates", "distribution", "split", "scaling", "effects", "model"
]
"""How a figure is laid out: `coracle_lab.figures` has a function for each."""

Size = Literal["smoke", "quick", "day"]

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
SIZES: tuple[Size, ...] = get_args(Size)


@dataclass(frozen=True)
class Figure:
    """One figure of a paper, and how the lab makes it anew.

    `of` is the figure's name in the paper. `published` are rows of the paper's own numbers, shown
    beside; `oracle` names a file of its measurements. `x` is the factor on the x axis and
    `panels` the one that makes facets. `design` is the text of the design at the asked size, or
    None if the figure is not made at that size: `reason` says why. A `model` is made of the records
    of other figures, at any size.
    """

    id: str
    title: str
    of: str
    layout: Layout
    responses: tuple[str, ...]
    shows_not: str
    x: str | None = None
    panels: str | None = None
    published: tuple[Mapping[str, Any], ...] = ()
    oracle: str | None = None
    design: str | None = None
    reason: str | None = None
    model: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Campaign:
    """A file of figures: `paper` is the short name of the paper, `name` the file's.

    `environments` is the text of a table of environments that the file has for its figures.
    `size` is that of the figures' designs.
    """

    name: str
    title: str
    paper: str
    text: str
    figures: tuple[Figure, ...] = field(default_factory=tuple)
    environments: str | None = None
    size: Size = "quick"
