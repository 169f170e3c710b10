"""Reads the overhead study's own measurements, where they are at hand: figures 1 to 4 of it.

The study's files are in its companion repository; they are read where they are and never copied.
Times are in milliseconds. Each figure is drawn as in the paper (means, 3 s/√n), and judged by the
lab's statistics beside. The study has no A/A, and its runs are in completely random order.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coracle_lab.design import Design, Factor
from coracle_lab.errors import LabError
from coracle_lab.figures.values import levels_in_order
from coracle_lab.report.judged import Judged, judge_cells
from coracle_lab.run.cells import Cell

BASE = "native"
ORDER = (BASE, "singularity", "docker")
REFERENCE = (
    "Alles, Carissimi, Schnorr, Assessing the Computation and Communication Overhead of Linux"
    " Containers for HPC Applications, WSCAD 2018, and the measurements of its companion repository"
)


@dataclass(frozen=True)
class Study:
    """One figure of the study: files with the names of their cases."""

    figure: str
    title: str
    files: tuple[tuple[str, str], ...]
    layout: str
    x: str


FIGURES = (
    Study(
        "Fig. 1",
        "NAS-EP class B and Ondes3D, small case",
        (("nas.csv", "NAS-EP class B"), ("ondes3d.csv", "Ondes3D default")),
        "times",
        "ranks",
    ),
    Study(
        "Fig. 2",
        "Ondes3D, Ligurian earthquake, 64 nodes",
        (("ondes3d-ligurian.csv", "Ondes3D Ligurian"),),
        "times",
        "ranks",
    ),
    Study("Fig. 3", "MPI ping-pong", (("ping-pong.csv", "ping-pong"),), "series", "bytes"),
    Study(
        "Fig. 4",
        "Alpine inside, Debian 9 outside",
        (
            ("nas-alpine.csv", "NAS-EP class B, Alpine"),
            ("ondes3d-alpine.csv", "Ondes3D Ligurian, Alpine"),
        ),
        "times",
        "ranks",
    ),
)


def of_file(name: str) -> Study | None:
    """Returns a figure of one file alone; None if the study has no such file."""
    for study in FIGURES:
        for file, case in study.files:
            if file == name:
                return Study(study.figure, case, ((file, case),), study.layout, study.x)
    return None


def read(directory: Path, study: Study) -> list[Judged]:
    """Returns the study's values, compared with native by the lab's statistics.

    Raises `LabError` if a file is missing or is not one of the study's.
    """
    found = []
    for name, case in study.files:
        cells = _cells(directory / name)
        for level in levels_in_order(list(cells)):
            levels = {"case": case} if len(study.files) > 1 else {}
            if study.x == "ranks":
                levels["ranks"] = level
            response = "makespan_s" if study.x == "ranks" else f"latency_s@{level}"
            values = {one: cells[level][one] for one in ORDER if one in cells[level]}
            found.append((response, Cell(levels, values, paired=False), values))
    # Only what judging needs: nothing of this design is run.
    design = Design(
        study.figure, "completely-randomised", 1, (Factor("environment", ORDER),), 1, base=BASE
    )
    return judge_cells(found, design)


def _cells(path: Path) -> dict[str, dict[str, list[float]]]:
    """Returns the times of a file in seconds: level of x, environment, runs."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(
            f"{path}: it cannot be read: {error}",
            "--oracle names the directory of the overhead study's CSV files",
        ) from error
    cells: dict[str, dict[str, list[float]]] = {}
    for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        level, environment = row.get("parallelism") or row.get("size"), row.get("environment")
        try:
            time = float(row.get("time") or "")
        except ValueError:
            time = math.nan
        if level is None or environment is None or not math.isfinite(time):
            raise LabError(
                f"{path}, line {number}: it has no environment, time, and parallelism or size",
                "take the files as the study published them",
            )
        cells.setdefault(level, {}).setdefault(environment, []).append(time / 1e3)
    if not cells:
        raise LabError(f"{path}: it holds no measurement")
    return cells


def environments(judged: Sequence[Judged]) -> tuple[str, ...]:
    """Returns the environments of a figure, native first."""
    return tuple(name for name in ORDER if any(name in one.runs for one in judged))
