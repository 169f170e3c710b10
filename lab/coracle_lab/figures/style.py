"""How everything is drawn: one look for each environment, and bytes that are always the same.

Environments differ by shape and hatching besides colour, so that print without colour is
readable. Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

from coracle_lab.figures.vector import smaller

DOTS_PER_INCH = 90
"""Of pictures in pixels."""
TINTS = 48
"""So many colours a picture in pixels has: more would double its bytes, and show nothing."""

BLACK = "#1a1a1a"
GREY = "#6b6b6b"
PALE = "#e3e3e3"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#7A4FA3")
MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
HATCHES = ("///", "\\\\\\", "xxx", "---", "|||", "+++", "//--", "//||", "\\\\--", "\\\\||", "xx--")
"""Of lines alone: a pattern of dots is fifty times larger in a file."""

SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.7,
    "lines.linewidth": 1.1,
    "svg.hashsalt": "coracle-lab",
    # Letters as letters: outlines would be a third of each figure.
    "svg.fonttype": "none",
    "path.simplify": False,
}


@dataclass(frozen=True)
class Look:
    """Colour, shape and hatching of one environment."""

    colour: str
    marker: str
    hatch: str
    filled: bool = True

    @property
    def face(self) -> str:
        """The colour inside a marker."""
        return self.colour if self.filled else "white"


def looks(environments: Sequence[str], base: str) -> dict[str, Look]:
    """Returns a look for each environment; equal lists have equal looks."""
    found = {}
    others = 0
    for name in environments:
        if name == base:
            found[name] = Look(BLACK, "o", "")
        elif name == f"{base}-again":
            found[name] = Look(GREY, "o", "", filled=False)
        else:
            found[name] = Look(
                COLOURS[others % len(COLOURS)],
                MARKERS[others % len(MARKERS)],
                HATCHES[others % len(HATCHES)],
                # After the last shape the same shapes come again, hollow.
                filled=(others // len(MARKERS)) % 2 == 0,
            )
            others += 1
    return found


def svg(figure: Figure) -> str:
    """Returns a figure as SVG; the same figure gives the same text."""
    out = io.StringIO()
    with mpl.rc_context(SETTINGS):
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None})
    return smaller(out.getvalue())


def png(figure: Figure) -> bytes:
    """Returns a figure as PNG; the same figure gives the same bytes."""
    out = io.BytesIO()
    with mpl.rc_context(SETTINGS):
        # Writing SVG leaves its own resolution in the figure.
        figure.set_dpi(DOTS_PER_INCH)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.print_png(out, metadata={"Software": None})
    tinted = io.BytesIO()
    with Image.open(out) as picture:
        few = picture.convert("RGB").quantize(TINTS, dither=Image.Dither.NONE)
        few.save(tinted, "PNG", optimize=True, dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    return tinted.getvalue()
