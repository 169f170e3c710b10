"""`coracle-lab compare OLD NEW`: what changed between two sessions, by ratios to native."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coracle_lab.errors import UNTRUSTED, LabError

if TYPE_CHECKING:
    from coracle_lab.report.twice import Cell

HEAD = ("environment", "old", "new", "new/old", "95 % interval", "verdict")
SAID = (
    "Compared are ratios to {base}, each in its own session. Times of the two sessions are not"
    " compared: the machine, its load or its software can be another."
)


def add(commands: Any) -> None:
    """Adds the command's words."""
    parser = commands.add_parser(
        "compare",
        help="what changed between two records of the same program",
        description="Compares each environment's ratio to native in NEW with that in OLD: a ratio"
        " of ratios with its interval, and a verdict. Times of two sessions are not compared.",
    )
    parser.add_argument("old", metavar="OLD", type=Path, help="directory of records")
    parser.add_argument("new", metavar="NEW", type=Path, help="directory of records, made later")


def run(options: argparse.Namespace) -> int:
    """Prints the changes; returns 3 if the A/A guard does not trust one of the two."""
    try:
        from coracle_lab.report import analysis, directory, twice
    except ImportError as error:
        raise LabError(f"no comparison: {error}", "install coracle-lab[report]") from error
    old, new = (analysis.analyse(directory.opened(one)) for one in (options.old, options.new))
    for one in (old, new):
        if one.screened:
            raise LabError(
                f"{one.store.directory}: its design has no base: it compares levels of factors",
                "coracle-lab report shows the effects of each",
            )
    found = twice.compare(old, new)
    trusted = twice.trusted(old, new)
    print(f"old: {options.old} ({old.dates()})\nnew: {options.new} ({new.dates()})")
    print(SAID.format(base=new.design.base))
    for text in found.alarms:
        print(text)
    for cell in found.cells:
        _cell(cell, trusted, new.design.base)
    for text in found.only:
        print(f"not compared: {text}")
    return 0 if trusted else UNTRUSTED


def _cell(cell: Cell, trusted: bool, base: str) -> None:
    """Prints one cell."""
    print()
    print(", ".join(part for part in (cell.response, cell.name) if part))
    rows: list[Sequence[str]] = [HEAD]
    for one in cell.changes:
        verdict = one.verdict if trusted or one.ratio is None else "not trusted"
        interval = one.intervals[0] if one.intervals else None
        rows.append((
            one.environment,
            _ratio(one.old),
            _ratio(one.new),
            _ratio(one.ratio),
            f"{interval.low:.4f} to {interval.high:.4f}" if interval is not None else "",
            verdict,
        ))  # fmt: skip
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    for row in rows:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )
    if cell.base is not None:
        print(f"{base} itself: {(cell.base - 1) * 100:+.1f} % (median, new to old; not judged)")


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
