"""Writes rows as CSV and reads them again, with the columns of R's `DoE.base`.

`export.design` of that package writes `name`, `run.no.in.std.order`, `run.no` and `run.no.std.rp`
before the factors, and a blocked design has its blocks in a column `Blocks`. Here:

- `name`, `run.no`: the row's number in run order;
- `run.no.in.std.order`: the cell's number in standard order (the first factor changes fastest);
- `run.no.std.rp`: that number, a dot, and how often the cell has come so far ("7.2");
- `Blocks`: the block's number.

Text is quoted and numbers are not, as `write.csv` does.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence

from coracle_lab.design.model import COLUMNS, NESTED_COLUMNS, Design, Row
from coracle_lab.design.rows import standard
from coracle_lab.errors import LabError


def to_csv(design: Design, rows: Sequence[Row]) -> str:
    """Returns the rows as CSV, one line each, in the order given."""
    names = [factor.name for factor in design.factors]
    number_of = {_key(cell, names): number for number, cell in standard(design)}
    extra = [*NESTED_COLUMNS] if design.nested is not None else []
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow([*COLUMNS, *names, *extra])
    seen: Counter[int] = Counter()
    for row in rows:
        cell = number_of[_key(row.levels, names)]
        seen[cell] += 1
        place = [str(row.number), str(cell), row.number, f"{cell}.{seen[cell]}", str(row.block)]
        writer.writerow([*place, *(row.levels[name] for name in (*names, *extra))])
    return out.getvalue()


def _key(levels: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(levels[name] for name in names)


def from_csv(text: str) -> list[Row]:
    """Returns the rows of a CSV that `to_csv`, or R, has written.

    Raises `LabError` with the line where a column is missing or a number is none.
    """
    lines = list(csv.reader(io.StringIO(text)))
    if not lines:
        raise LabError("the table of rows is empty", "write it again with coracle-lab plan")
    header = lines[0]
    for needed in ("run.no", "Blocks"):
        if needed not in header:
            raise LabError(
                f'the table of rows has no column "{needed}"', f"its columns are {header}"
            )
    levels = [at for at, name in enumerate(header) if name not in COLUMNS]
    rows: list[Row] = []
    for line, fields in enumerate(lines[1:], start=2):
        if len(fields) != len(header):
            raise LabError(
                f"line {line} of the table of rows has {len(fields)} of {len(header)} columns",
                "the file was cut off; write it again with coracle-lab plan",
            )
        number = _number(fields[header.index("run.no")], "run.no", line)
        block = _number(fields[header.index("Blocks")], "Blocks", line)
        if number != len(rows) + 1:
            raise LabError(
                f"line {line} of the table of rows has run.no {number} instead of {len(rows) + 1}",
                "rows never change after they are written; restore the file",
            )
        rows.append(Row(number, block, {header[at]: fields[at] for at in levels}))
    return rows


def _number(text: str, column: str, line: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise LabError(
            f'line {line} of the table of rows: {column} is "{text}"', "it has to be 1 or more"
        )
    return int(text)
