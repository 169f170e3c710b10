"""The order plot and the Q-Q plot have every run, in the order in which they were made."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from typing import Any

import pytest
from scipy import stats

from coracle_lab.report import order
from coracle_lab.run.records import Record

NAMES = ("native", "coracle:N1")


def made(runs: list[tuple[str, str, float]]) -> list[Record]:
    """Returns records of (environment, ranks, seconds), in the order in which they were made."""
    records = []
    for row, (environment, ranks, seconds) in enumerate(runs, start=1):
        fields: Mapping[str, Any] = {
            "row": row, "block": 1, "attempt": 1, "outcome": "ok", "responses": {},
            "levels": {"environment": environment, "ranks": ranks}, "wall_s": seconds,
        }  # fmt: skip
        records.append(Record(fields))
    return records


def test_runs_are_over_the_median_of_their_own_levels_in_their_order() -> None:
    base = [("native", "1", 4.0), ("coracle:N1", "1", 8.0), ("native", "4", 1.0)]
    picture = order.picture(made(base * 3 + [("native", "1", 5.0)]), "wall_s", NAMES, "native")
    assert picture is not None
    native, coracle = picture.facets[0].clouds
    assert native.places == (1, 3, 4, 6, 7, 9, 10)
    assert native.values == (1, 1, 1, 1, 1, 1, 1.25)
    assert (coracle.environment, coracle.values) == ("coracle:N1", (1, 1, 1))
    # Without spread there is nothing to standardise.
    assert set(picture.facets[1].clouds[1].values) == {0}


def test_normal_logarithms_lie_on_the_line_and_a_tail_does_not() -> None:
    draw = random.Random(7)
    calm = [math.exp(draw.gauss(0, 0.01)) for _ in range(400)]
    tailed = [2.0 if at % 20 == 0 else value for at, value in enumerate(calm)]
    runs = [("native", "1", value) for value in calm] + [("coracle:N1", "1", v) for v in tailed]
    picture = order.picture(made(runs), "wall_s", NAMES, "native")
    assert picture is not None
    native, coracle = picture.facets[1].clouds
    away = [
        max(abs(at - value) for at, value in zip(cloud.places, cloud.values, strict=True))
        for cloud in (native, coracle)
    ]
    assert away[0] < 0.5 < 1 < away[1]
    wanted = [stats.norm.ppf((at - 0.375) / 400.25) for at in range(1, 401)]
    assert native.places == pytest.approx(wanted)
    assert all(one <= other for one, other in itertools.pairwise(native.values))


def test_starts_of_all_launches_are_runs_of_one_cell() -> None:
    every = made([("native", "1", 1.0), ("native", "1", 2.0), ("native", "1", 3.0)])
    for at, one in enumerate(every):
        dict.__setitem__(one.fields["levels"], "launch", str(at))
    picture = order.picture(every, "wall_s", NAMES, "native")
    assert picture is not None
    assert picture.facets[0].clouds[0].values == (0.5, 1.0, 1.5)


def test_too_few_runs_have_no_picture() -> None:
    runs = made([("native", "1", 1.0), ("native", "1", 2.0), ("native", "1", math.nan)])
    assert order.picture(runs, "wall_s", NAMES, "native") is None
