"""What the page shows of the runs themselves: in their order, and against a normal distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from coracle_lab.figures.values import ENVIRONMENT, Cloud, Facet, Picture
from coracle_lab.report.judged import environment_of
from coracle_lab.run.cells import of_cell
from coracle_lab.run.records import Record

LAYOUT = "order"
AT_LEAST = 3
"""Of fewer runs of a cell their own median and deviation say nothing."""


def picture(
    made: Sequence[Record], response: str, environments: Sequence[str], base: str
) -> Picture | None:
    """Returns the picture of one response; None if no cell has been measured often enough.

    `made` are the records in the order in which their runs were made. Each run is divided by the
    median of its cell, so all cells are in one picture.
    """
    runs = [(number, record, record.value(response)) for number, record in enumerate(made, start=1)]
    cells: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = {}
    for number, record, value in runs:
        if value > 0 and math.isfinite(value):
            # Each start of a launch has a number of its own.
            cell = tuple(sorted(of_cell(record.levels).items()))
            cells.setdefault(cell, []).append((number, value))
    ordered: dict[str, list[tuple[int, float]]] = {}
    deviations: dict[str, list[float]] = {}
    for cell, values in cells.items():
        if len(values) < AT_LEAST:
            continue
        environment = environment_of(dict(cell))
        middle = statistics.median(value for _, value in values)
        ordered.setdefault(environment, []).extend((at, value / middle) for at, value in values)
        deviations.setdefault(environment, []).extend(
            _standardised([math.log(value) for _, value in values])
        )
    present = tuple(name for name in environments if name in ordered)
    if not present:
        return None
    return Picture(
        base=base,
        environments=present,
        x_name=ENVIRONMENT,
        xs=present,
        response=response,
        facets=(
            Facet("order", tuple(_in_order(name, ordered[name]) for name in present)),
            Facet("normal", tuple(_normal(name, deviations[name]) for name in present)),
        ),
    )


def _standardised(logs: Sequence[float]) -> list[float]:
    mean, spread = statistics.fmean(logs), statistics.stdev(logs)
    return [(value - mean) / spread if spread else 0.0 for value in logs]


def _in_order(name: str, runs: Sequence[tuple[int, float]]) -> Cloud:
    places, values = zip(*sorted(runs), strict=True)
    return Cloud(name, name, values, places=tuple(map(float, places)))


def _normal(name: str, deviations: Sequence[float]) -> Cloud:
    """Returns deviations by size beside the normal quantiles at Blom's places."""
    count, normal = len(deviations), statistics.NormalDist()
    places = [normal.inv_cdf((at - 0.375) / (count + 0.25)) for at in range(1, count + 1)]
    return Cloud(name, name, tuple(sorted(deviations)), places=tuple(places))
