"""The overhead study's measurements, read where they are."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

Study = dict[str, dict[str, dict[str, list[float]]]]
"""File → number of ranks, or size of the message → environment → times."""

COLUMN = {"ping-pong": "size"}
FILES = ("nas", "nas-alpine", "ondes3d", "ondes3d-alpine", "ondes3d-ligurian", "ping-pong")


def directory() -> Path:
    """Returns where the six CSV files should be: beside the repository, or under a variable."""
    shared = os.environ.get("CORACLE_SHARED")
    root = Path(shared) if shared else Path(__file__).resolve().parents[3].parent / "shared"
    return root / "data" / "overhead-study"


@pytest.fixture(scope="session")
def study() -> Study:
    """Returns the study's times; skips without the files, which are not in the repository."""
    where = directory()
    if not where.is_dir():
        pytest.skip(f"SKIP: no {where}: the overhead study's CSV files (set CORACLE_SHARED)")
    found: Study = {}
    for name in FILES:
        cells: dict[str, dict[str, list[float]]] = {}
        with (where / f"{name}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                cell = cells.setdefault(row[COLUMN.get(name, "parallelism")], {})
                cell.setdefault(row["environment"], []).append(float(row["time"]))
        found[name] = cells
    return found
