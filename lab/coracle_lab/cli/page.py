"""`coracle-lab report`: writes the page of a design, of a directory of records, of a campaign."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from coracle_lab import applications
from coracle_lab import design as designs
from coracle_lab.cli import papers
from coracle_lab.cli.progress import note
from coracle_lab.design import Design
from coracle_lab.errors import UNTRUSTED, LabError
from coracle_lab.run import store
from coracle_lab.run.store import Store

PAGE = "report"
"""The directory of a page, below that of its records."""


def add(commands: Any) -> None:
    """Adds the command's words."""
    parser = commands.add_parser(
        "report",
        help="write one HTML page of records, with figures and tables",
        description="Writes index.html, and SVG, PNG and CSV files beside it. The program need not"
        " be here: records are enough, wherever they were made.",
    )
    add = parser.add_argument
    add(
        "file",
        metavar="FILE|DIR",
        type=Path,
        nargs="?",
        help="design file, campaign file, or directory of records (or of several of them)",
    )
    add("--into", metavar="DIR", type=Path, help="where the page is written")
    add("--records", metavar="DIR", type=Path, help="where the records of FILE are")
    add(
        "--oracle",
        metavar="DIR",
        type=Path,
        help="the overhead study's CSV files: drawn beside, or alone if nothing else is named",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page; returns 3 if the A/A guard does not trust a figure."""
    try:
        from coracle_lab.report import page
    except ImportError as error:
        raise LabError(f"no page: {error}", "install coracle-lab[report]") from error
    oracle: Path | None = options.oracle
    if oracle is not None and not oracle.is_dir():
        raise LabError(f"{oracle}: there is no such directory", "it has the study's CSV files")
    if options.file is None:
        if oracle is None:
            raise LabError("no records are named", "coracle-lab report DIR, or --oracle DIR")
        into = options.into or Path("overhead-study")
        page.write_study(oracle, into)
        return _told(into, True)
    campaign = papers.of_file(options)
    if campaign is not None:
        trusted = papers.page_of(*campaign, oracle, options.into)
        return _told(options.into or campaign[1], trusted)
    return _records(options, oracle)


def _told(into: Path, trusted: bool) -> int:
    """Says where the page is; returns the exit status."""
    print(into / "index.html")
    if not trusted:
        print("A/A fails: no verdict is printed (see the page)", file=sys.stderr)
    return 0 if trusted else UNTRUSTED


def _records(options: argparse.Namespace, oracle: Path | None) -> int:
    """Writes the page of one or more directories of records."""
    from coracle_lab.report import directory, page

    given: Path = options.file
    place, now = (given, None) if given.is_dir() else _of_design(given, options.records)
    if given.is_dir() and options.records is not None:
        raise LabError(f"--records: {given} has its records itself", "name the design file")
    if (place / "records").is_dir() and not (place / "design.toml").exists():
        # What `papers` has made: the records stand beside the page.
        place = place / "records"
    found = [(path, directory.opened(path)) for path in directory.below(place)]
    if now is not None:
        found = [(path, _judged_by(one, now)) for path, one in found]
    sections = [
        page.Section(directory.figure_of(one, path.resolve().name), one) for path, one in found
    ]
    into = options.into or place / PAGE
    title = found[0][1].design.name if len(found) == 1 else place.resolve().name
    text = found[0][1].design.text if len(found) == 1 else ""
    return _told(into, page.write(title, text, sections, into, oracle))


def _judged_by(made: Store, now: Design) -> Store:
    """Returns records that are judged as a design says that has the same rows."""
    names = ("margin", "base", "responses")
    was = {name: getattr(made.design, name) for name in names}
    new = {name: getattr(now, name) for name in names}
    notes = [f"{name} was {_text(was[name])} in the design when it was begun, and is now"
             f" {_text(new[name])}" for name in names if was[name] != new[name]]  # fmt: skip
    return replace(made, design=replace(made.design, **new, notes=(*made.design.notes, *notes)))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _of_design(path: Path, records: Path | None) -> tuple[Path, Design | None]:
    """Returns the directory of a design file's records, and the design that judges them.

    That is None for the design that was measured: the file is another one, which is noted, or what
    it needs is not here.
    """
    text = store.read_text(path)
    place = records or path.with_name(f"{path.stem}-records")
    kept = place / "design.toml"
    if not kept.exists():
        raise LabError(f"{path}: there are no records of it in {place}", f"coracle-lab run {path}")
    measured = designs.digest(designs.parse(store.read_text(kept), str(kept)))
    try:
        now = designs.parse(applications.resolve(text, str(path), ()), str(path))
    except LabError as error:
        # The application's table or its source is not here, and is not needed.
        note(f"the page is judged as the design in {place} says: {error.message}")
        return place, None
    if designs.digest(now) != measured:
        note(f"{path} has changed since: the page is of the design that was measured, {kept}")
        return place, None
    return place, now
