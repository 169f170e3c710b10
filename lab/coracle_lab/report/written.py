"""Writes lines as CSV; needs nothing but the standard library."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence


def written(lines: Sequence[Mapping[str, object]]) -> str:
    """Returns lines as CSV; a column that some lines lack is empty there."""
    head = list(dict.fromkeys(name for line in lines for name in line))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for line in lines:
        writer.writerow(["" if line.get(name) is None else line[name] for name in head])
    return out.getvalue()
