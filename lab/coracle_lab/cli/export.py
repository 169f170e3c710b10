"""`coracle-lab export`: records as one flat table, for other programs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from coracle_lab.errors import FAILED, LabError

DIRECTORY = "directory"
"""The first column: which directory of records a line is of."""


def add(commands: Any) -> None:
    """Adds the command's words."""
    parser = commands.add_parser(
        "export",
        help="records as CSV, JSON or Parquet",
        description="Writes one line for each attempt of each row of some directories of records:"
        " all that is recorded, failed rows and repetitions too. FILE can be - for the terminal.",
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    for name, what in (
        ("csv", "comma-separated values"),
        ("json", "JSON, with times of ranks and mapped files"),
        ("parquet", "Parquet (needs pyarrow)"),
    ):
        kind.add_argument(f"--{name}", metavar="FILE", type=Path, help=what)
    parser.add_argument("records", metavar="DIR", type=Path, nargs="+", help="records")


def run(options: argparse.Namespace) -> int:
    """Writes the table."""
    kinds = {"csv": options.csv, "json": options.json, "parquet": options.parquet}
    kind, path = next((name, value) for name, value in kinds.items() if value is not None)
    if kind == "parquet":
        _pyarrow()
    lines = _lines(options.records, whole=kind == "json")
    if kind == "parquet":
        _parquet(lines, path)
    else:
        _write(path, _csv(lines) if kind == "csv" else json.dumps(lines, indent=1) + "\n")
    if str(path) != "-":
        print(f"{path}: {len(lines)} attempts")
    return 0


def _lines(directories: list[Path], whole: bool) -> list[dict[str, Any]]:
    """Returns one line for each attempt; cut lines are told."""
    from coracle_lab.report import directory, judged
    from coracle_lab.report.flat import flat
    from coracle_lab.run import records

    lines = []
    for given in directories:
        for path in directory.below(given):
            found = directory.opened(path)
            made = records.read(path / "records.jsonl", found.digest)
            judged.check_labels(found.rows, made.records)
            if made.cut_lines:
                print(f"note: {path}: {made.cut_lines} cut lines are ignored", file=sys.stderr)
            flattened = flat(found.design, made.records, whole)
            lines += [{DIRECTORY: str(path), **line} for line in flattened]
    if not lines:
        raise LabError("there are no records to export", "coracle-lab run makes them", FAILED)
    return lines


def _csv(lines: list[dict[str, Any]]) -> str:
    from coracle_lab.report.written import written

    return written(lines)


def _write(path: Path, text: str) -> None:
    """Writes a whole file or none."""
    if str(path) == "-":
        sys.stdout.write(text)
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise LabError(f"{path}: {error.strerror}", status=FAILED) from error


def _pyarrow() -> None:
    """Refuses Parquet before anything is read, where it cannot be written."""
    try:
        import pandas
        import pyarrow  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise LabError(
            f"no Parquet: {error}", "pip install pyarrow, or take --csv, which needs nothing"
        ) from error
    del pandas, pyarrow


def _parquet(lines: list[dict[str, Any]], path: Path) -> None:
    import pandas

    part = path.with_name(f".{path.name}.part")
    try:
        pandas.DataFrame(lines).to_parquet(part, index=False)
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise LabError(f"{path}: {error.strerror}", status=FAILED) from error
