"""Draws pictures into files beside the page and into the page itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coracle_lab import figures
from coracle_lab.figures import Picture
from coracle_lab.figures.units import title
from coracle_lab.report import markup
from coracle_lab.report.judged import is_amount

CAPTIONS = {
    "times": (
        "(a) Each run is a point, and the large mark is the {middle}; {base} is at the left, all"
        " others at the right, and the axis begins at zero. (b) Overhead, {ratio}."
    ),
    "series": (
        "(a) Each run is a point, and the line joins {middle}s; both axes are logarithmic."
        " (b) Overhead, {ratio}."
    ),
    "ratios": "Ratio to {base}, {ratio}. Above 1 is slower.",
    "rates": (
        "(a) Each run is a point, the bar is the {middle}, and larger is better. (b) Ratio to"
        " {base}, {ratio}; above 1 is slower."
    ),
    "distribution": (
        "(a) Share of the runs that took at most so long; each run is a point. (b) Quantiles and"
        " all runs, over {base}'s median."
    ),
    "split": (
        "Where the time goes, part after part: medians, each part of its own slowest rank, so their"
        " sum can exceed the run; the runs are points at each part's end."
    ),
    "scaling": (
        "(a) Each run is a point, and the large mark is the {middle}. (b) Speed-up over the"
        " smallest number, by the same marks."
    ),
    "effects": (
        "(a) Ratio of each factor's second level to its first, the largest first, {ratio}. Above 1"
        " is slower. (b) All runs at the first level (hollow, above) and at the second (filled,"
        " below); the large mark is the {middle}."
    ),
    "order": (
        "(a) Each run over the median of the same levels, in the order in which they were made; a"
        " step or a slope is the machine's. (b) Logarithms of the runs, standardised, against a"
        " normal distribution: tails leave the line."
    ),
}
RATIO = {
    "median": "one point for each block, with intervals of 95 % (thick) and 99.7 % (thin)",
    "mean": "by the ratio of means, as in the paper, with single runs over native's median",
}
MIDDLE = {"median": "median", "mean": "mean with 3 s/√n"}


def caption(layout: str, picture: Picture) -> str:
    """Returns what a figure shows and how it is read."""
    words = CAPTIONS[layout].format(
        base=picture.base, middle=MIDDLE[picture.view], ratio=RATIO[picture.view]
    )
    if is_amount(picture.response):
        words = words.replace("bove 1 is slower", "bove 1 is more")
    if picture.view == "median" and not any(cloud.ratios for cloud in picture.clouds()):
        words = words.replace(RATIO["median"], "where it can be computed")
    if any(x in picture.over for x in picture.xs):
        words += " Oversubscribed: more ranks than processors; launching and memory are what shows."
    if any(cloud.model for cloud in picture.clouds()):
        words += " What is hatched and called model is computed, not measured."
    return f"{words} Limits beyond an axis are cut."


def drawn(
    layout: str,
    pictures: Sequence[Picture],
    into: Path,
    name: str,
    about: str,
    says: str | None = None,
    vector: bool = True,
) -> str:
    """Writes SVG and PNG files into `into/NAME`, and returns the HTML of the figures.

    A picture whose points are pixels is there as PNG alone, besides in the page; so is one without
    `vector`.
    `about` says what is seen, for those who do not see it; `says` stands in place of the layout's
    caption.
    """
    function, _ = figures.LAYOUTS[layout]
    directory = into / name
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for at, picture in enumerate(pictures, start=1):
        stem = layout if len(pictures) == 1 else f"{layout}-{at}"
        whole = function(picture)
        text = figures.svg(whole)
        files = {f"{stem}.png": figures.png(whole)}
        if vector and "<image" not in text:
            files[f"{stem}.svg"] = text.encode()
        for file, data in files.items():
            (directory / file).write_bytes(data)
        inner = _inside(layout, picture, f"{name}-{stem}-", about, text)
        links = ", ".join(
            markup.link(f"{name}/{file}", file[-3:].upper()) for file in sorted(files, reverse=True)
        )
        made.append(_figure(picture, inner, says or caption(layout, picture), links))
    return "".join(made)


def inside(layout: str, picture: Picture, name: str, about: str) -> str:
    """Returns the HTML of a figure that is in the page alone, without files beside it."""
    inner = _inside(layout, picture, f"{name}-{layout}-", about)
    return _figure(picture, inner, caption(layout, picture))


def _inside(
    layout: str, picture: Picture, prefix: str, about: str, whole: str | None = None
) -> str:
    """Returns each part of a picture as SVG; one that has no parts may be there already."""
    function, parts = figures.LAYOUTS[layout]
    label = markup.text(f"{about}: {title(picture.response)}, layout {layout}")
    drawn = {
        part: whole
        if whole is not None and len(parts) == 1
        else figures.svg(function(picture, part))
        for part in parts
    }
    return "".join(
        f"<div>{figures.inline(text, f'{prefix}{part}', f'{label} ({part})')}</div>"
        for part, text in drawn.items()
    )


def _figure(picture: Picture, inner: str, says: str, links: str = "") -> str:
    what = title(picture.response)
    words = markup.text(f"{what[:1].upper()}{what[1:]}. {says}")
    return (
        f'<figure><div class="figures">{inner}</div>'
        f"<figcaption>{words} {links}</figcaption></figure>"
    )
