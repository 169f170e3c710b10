"""Writes the page: one HTML file with everything in it, and files beside it that it links to.

No script, no font, no picture comes from elsewhere, and the page says so to the browser. Made
twice from the same records, all files are equal byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coracle_lab.errors import LabError
from coracle_lab.figures import styles_once
from coracle_lab.report import markup, opposite, oracle, study
from coracle_lab.report.css import CSS
from coracle_lab.report.methods import METHODS
from coracle_lab.report.section import Made, Section, made
from coracle_lab.report.summary import Entry, summary

__all__ = ["Section", "write", "write_study"]

ALONE = "summary.html"
"""The page that has the verdicts and nothing beside it."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
FIRST_LINE = (
    "Ratios are to the base: above 1 is slower. A verdict is read with its interval; “undecided”"
    " says how many more blocks would decide."
)
WHOLE = (
    "Made by coracle-lab from the records that each figure links to; made again from them, it is"
    " the same byte by byte."
)
SHORT = (
    "Made by coracle-lab. This page has the verdicts alone. The command that wrote it has written"
    " index.html too, with pictures, all tables, statistics.csv of each figure, and the records."
)


def write(
    title: str,
    text: str,
    sections: Sequence[Section],
    into: Path,
    oracle_files: Path | None = None,
    alone: bool = False,
) -> bool:
    """Writes `index.html` and the files of all sections into a directory.

    `oracle_files` is the directory of the overhead study's CSV files. With `alone` the verdicts
    are written once more, into `summary.html`. Returns whether the A/A guard trusts every figure.
    """
    names = [markup.slug(section.figure.id) for section in sections]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise LabError(f'two figures would be written to "{double}"', "their ids have to differ")
    parts = [made(section, into, oracle_files) for section in sections]
    _write(title, text, parts, into)
    if alone:
        short = [replace(part, html=part.alone) for part in parts]
        _write(title, text, short, into, ALONE)
    return all(part.alarm is None for part in parts)


def write_study(files: Path, into: Path) -> None:
    """Writes a page of the overhead study's own figures 1 to 4 alone."""
    parts = []
    for one in oracle.FIGURES:
        name = markup.slug(one.figure)
        html, judged = study.html(files, one, into, name)
        body = f"<h2>{markup.text(f'{one.figure}: {one.title}')}</h2>{html}"
        entry = Entry(name, f"{one.figure}: {one.title}", tuple(judged), study.shown(judged))
        parts.append(Made(f'<section id="{name}">{body}</section>', entry))
    _write(
        "The overhead study's figures, from its own measurements",
        f"{oracle.REFERENCE}. Drawn as in the paper, and judged by the lab's statistics.",
        parts,
        into,
    )


def _write(
    title: str, text: str, parts: Sequence[Made], into: Path, name: str = "index.html"
) -> None:
    alarms = [part.alarm for part in parts if part.alarm is not None]
    red = "".join(markup.paragraph(alarm, "alarm") for alarm in alarms)
    about = markup.paragraph(text) if text else ""
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="generator" content="coracle-lab">
<link rel="icon" href="data:,">
<title>{markup.text(title)}</title>
<style>{CSS}</style>
</head>
<body>
<header>{red}<h1>{markup.text(title)}</h1>
{summary([part.entry for part in parts])}
<p class="small soft">{markup.text(FIRST_LINE)}</p>
{about}</header>
<main>
{opposite.section([part.entry for part in parts])}
{"".join(part.html for part in parts)}
</main>
{_footer(SHORT if name == ALONE else WHOLE)}
</body>
</html>
"""
    into.mkdir(parents=True, exist_ok=True)
    try:
        part = into / f".{name}.part"
        part.write_text(styles_once(page), encoding="utf-8")
        part.rename(into / name)
    except OSError as error:
        raise LabError(f"{into}: {error.strerror}", status=1) from error


def _footer(words: str) -> str:
    items = "".join(
        f"<dt>{markup.text(name)}</dt><dd>{markup.text(what)}"
        f' <span class="soft">{markup.text(reference)}</span></dd>'
        for name, what, reference in METHODS
    )
    return (
        f'<footer><h2 id="methods">Methods</h2><dl>{items}</dl><p>{markup.text(words)}</p></footer>'
    )
