"""Records that are made up, for tests of what is said of them, and pictures of made-up values.

`python lab_made.py` writes `figures.json` anew: what the figures of `pictures()` consist of.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from coracle_lab import figures
from coracle_lab.design import Row
from coracle_lab.figures import Cloud, Facet, Picture, Ratio
from coracle_lab.run import records, store
from coracle_lab.run.store import Store

KEPT = Path(__file__).with_name("figures.json")
RATIOS = {
    "native": 1.0, "native-again": 1.0, "coracle:N1": 1.001, "coracle:P1": 1.02, "docker": 1.08,
}  # fmt: skip
PARTS = ("launch", "start", "work", "communication", "end")

FACTS: Mapping[str, Any] = {
    "machine": {
        "id": "0123", "cpu": "Processor X", "architecture": "x86_64", "cpus_online": "0-1",
        "memory_bytes": 8 << 30, "virtual": False, "product": None,
    },
    "state": {
        "host": "h", "kernel": "6.1", "kernel_build": "1", "governors": [], "on_battery": None,
        "load_1m": 0.1,
    },
    "process": {"affinity": [0, 1], "nice": 0},
    "filesystem": {"path": "/", "mount": "/", "type": "ext4"},
    "python": "3.11",
    "commit": "0123456789abcdef0123456789abcdef01234567",
}  # fmt: skip


def study() -> Path:
    """Returns the directory of the overhead study's CSV files, or skips."""
    shared = os.environ.get("CORACLE_SHARED")
    root = Path(shared) if shared else Path(__file__).resolve().parents[3].parent / "shared"
    where = root / "data" / "overhead-study"
    if not where.is_dir():
        print(f"SKIP: no {where}")
        pytest.skip(f"SKIP: no {where}: the overhead study's CSV files (set CORACLE_SHARED)")
    return where


# Records.


def design(
    environments: Sequence[str] = tuple(RATIOS),
    factors: str = "",
    more: str = "",
    application: str = 'command = ["model"]',
    name: str = "model",
) -> str:
    """Returns the text of a design."""
    return (
        f'name = "{name}"\nseed = 5\nreplicates = 12\n{more}\n[factors]\n'
        f"environment = {json.dumps(list(environments))}\n{factors}\n[application]\n{application}\n"
    )


def line(found: Store, row: Row, wall: float, **more: Any) -> dict[str, Any]:
    """Returns a record that is right."""
    fields = {
        "schema": 1, "design": found.digest, "row": row.number, "block": row.block, "attempt": 1,
        "session": "s", "levels": dict(row.levels), "outcome": "ok", "why": None,
        "exit_status": 0, "wall_s": wall, "user_s": 0.0, "system_s": 0.0, "max_rss_bytes": 1,
        "minor_faults": 1, "major_faults": 0, "voluntary_switches": 0,
        "involuntary_switches": 0, "output_sha256": "0" * 64, "responses": {},
        "sentinel_before_s": 0.05, "sentinel_after_s": 0.05, "steal_ticks": 0,
        "started": "2026-01-01T00:00:00Z", "host": "h",
    }  # fmt: skip
    return {**fields, **more}


def failed(why: str = "exit status 7") -> dict[str, Any]:
    """Returns the fields of a record that has failed."""
    return {"outcome": "failed", "why": why}


Maker = Callable[[Store, Row], Iterator[dict[str, Any]]]


def make(directory: Path, text: str, maker: Maker | None = None) -> Store:
    """Returns a store with the records that `maker` gives for each row."""
    found = store.create(directory, text, "d.toml")
    versions = {"native": "", "docker": "Docker version 20"}
    fact = {
        "schema": 1, "session": "s", "design": found.digest, "label": None,
        "environments": versions, "facts": FACTS,
    }  # fmt: skip
    found.facts_path.write_text(json.dumps(fact, sort_keys=True) + "\n")
    for row in found.rows:
        for one in (maker or plain())(found, row):
            records.append(directory / "records.jsonl", one)
    return found


def plain(ratios: Mapping[str, float] = RATIOS, noise: float = 0.004, time: float = 1.0) -> Maker:
    """Returns a maker of times in these ratios; the noise depends on the row alone."""

    def maker(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        ranks = float(row.levels.get("ranks", 1))
        ratio = ratios.get(row.levels["environment"], 1.0)
        yield line(found, row, time / ranks * ratio * spread(row, noise))

    return maker


def spread(row: Row, noise: float) -> float:
    """Returns a factor near 1 that depends on the row's number alone."""
    return math.exp(random.Random(row.number).gauss(0, noise))


def example(directory: Path) -> None:
    """Makes records of several designs: ranks with everything that can happen, a series, a rate,
    a nested one."""

    def ranks(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        (one,) = plain(time=8.0)(found, row)
        parts = dict(zip(PARTS, (0.02, 0.08, 0.8, 0.08, 0.02), strict=True))
        split = {f"{name}_s": one["wall_s"] * part for name, part in parts.items()}
        if row.number in (17, 50):
            yield {**one, **failed()}
        elif row.block == 3:
            # Disturbed at first, and repeated.
            yield {**one, "wall_s": one["wall_s"] * 1.3, "sentinel_before_s": 0.07}
            yield {**one, "attempt": 2, "responses": split}
        elif row.levels["environment"] != "docker" or row.block < 11:
            yield {**one, "responses": split}

    def series(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        ratio = RATIOS[row.levels["environment"]] ** 4
        times = {size: (1e-5 + size * 1e-9) * ratio * spread(row, 0.01) for size in (1, 64, 65536)}
        found_values = {f"one_way_s@{size}": time for size, time in times.items()}
        yield line(found, row, 1.0, responses=found_values)

    def rate(found: Store, row: Row) -> Iterator[dict[str, Any]]:
        gflops = 7.84 / RATIOS[row.levels["environment"]] * spread(row, 0.004)
        yield line(found, row, 1.0, responses={"gflops": gflops})

    make(
        directory / "ep",
        design(factors="ranks = [1, 2, 4]", name="EP & <b>ranks</b>", more='text = "in \\"S\\""'),
        ranks,
    )
    make(
        directory / "pingpong",
        design(
            factors='kind = ["cold", "warm"]',
            more='responses = ["one_way_s@*"]',
            application='command = ["pp", "{kind}"]\nreads = "lab"\nseries = "bytes"',
        ),
        series,
    )
    make(
        directory / "hpl",
        design(
            more='responses = ["gflops"]',
            application='command = ["hpl"]\nrates = ["gflops"]\nresponses = {gflops = "(x)"}',
        ),
        rate,
    )
    nested = "[nested]\nsessions = 1\nlaunches = 6\nstarts = 4\n"
    text = design(more='kind = "nested"').replace("replicates = 12\n", "")
    make(directory / "starts", text + nested, plain(time=0.03))


# Pictures.


def _cloud(environment: str, x: str, time: float, part: str = "", model: bool = False) -> Cloud:
    chance = random.Random(f"{environment} {x} {part}")
    ratio = RATIOS[environment]
    values = tuple(time * ratio * chance.gauss(1, 0.01) for _ in range(8))
    if environment == "native":
        return Cloud(environment, x, values, part=part, model=model)
    single = tuple(ratio * chance.gauss(1, 0.01) for _ in range(8))
    limits = (ratio - 0.01, ratio + 0.01), (ratio - 0.015, ratio + 0.015)
    return Cloud(environment, x, values, Ratio(ratio, *limits), single, part, model)


def _effects() -> Picture:
    """Returns a picture of three factors, whose levels are the parts of clouds."""
    names = ("volumes: 0, 50", "init: no, yes", "again: first, second")
    clouds = []
    for name, ratio in zip(names, (1.4, 0.9, 1.0), strict=True):
        limits = (ratio - 0.05, ratio + 0.05), (ratio - 0.08, ratio + 0.08)
        clouds.append(Cloud(name, name, (0.01, 0.011, 0.012), part="first"))
        values = (0.01 * ratio, 0.012 * ratio)
        clouds.append(
            Cloud(name, name, values, Ratio(ratio, *limits), (ratio, ratio * 1.02), "second")
        )
    facets = (Facet("", tuple(clouds)),)
    return Picture("the first level", names, "environment", names, "wall_s", facets)


def pictures() -> dict[str, tuple[str, Picture]]:
    """Returns (layout, picture) by name: each layout, with what is special to it."""
    names = tuple(RATIOS)
    ranks = ("1", "2", "4")
    over = frozenset({"4"})
    by_ranks = [_cloud(name, x, 80 / int(x)) for name in names for x in ranks]
    modelled = [*by_ranks, _cloud("docker", "256", 1.0, model=True)]
    alone = [_cloud(name, name, 0.03) for name in names]
    sizes = tuple(str(2**power) for power in range(0, 21, 4))
    sized = [_cloud(name, x, 1e-5 + int(x) * 1e-9) for name in names for x in sizes]
    split = [
        _cloud(name, x, time, part)
        for name in names
        for x in ("1", "4")
        for part, time in zip(PARTS, (0.02, 0.1, 1.0, 0.3, 0.02), strict=True)
    ]

    def picture(x: str, xs: Sequence[str], clouds: Sequence[Cloud], **more: Any) -> Picture:
        facets = (Facet("", tuple(clouds)),)
        return Picture("native", names, x, tuple(xs), "wall_s", facets, **more)

    two = (Facet("EP", tuple(by_ranks)), Facet("wave", tuple(by_ranks)))
    return {
        "times": ("times", Picture("native", names, "ranks", ranks, "wall_s", two, over)),
        "times by environment": ("times", picture("environment", names, alone)),
        "times as in the paper": ("times", picture("ranks", ranks, by_ranks, view="mean")),
        "times with a model": ("times", picture("ranks", (*ranks, "256"), modelled)),
        "series": ("series", picture("bytes", sizes, sized)),
        "ratios": ("ratios", picture("ranks", ranks, by_ranks, over=over)),
        "rates": ("rates", picture("environment", names, alone, rate=True)),
        "distribution": ("distribution", picture("environment", names, alone)),
        "split": ("split", picture("ranks", ("1", "4"), split, over=over, parts=PARTS)),
        "scaling": ("scaling", picture("ranks", ranks, by_ranks, over=over)),
        "effects": ("effects", _effects()),
        "order": ("order", _order(names)),
        "scaling with a model": ("scaling", picture("ranks", (*ranks, "256"), modelled)),
    }


def _order(names: Sequence[str]) -> Picture:
    """Returns runs in their order, one of them far away, and the same beside normal quantiles."""
    values = [1 + 0.002 * ((at * 7) % 11 - 5) for at in range(20)]
    values[4] = 1.9
    places = tuple(float(at) for at in range(20))
    facets = (
        tuple(Cloud(name, name, tuple(values), places=places) for name in names),
        tuple(Cloud(name, name, tuple(sorted(values)), places=places) for name in names),
    )
    shown = (Facet("order", facets[0]), Facet("normal", facets[1]))
    return Picture("native", tuple(names), "environment", tuple(names), "wall_s", shown)


def drawn(layout: str, picture: Picture) -> Figure:
    """Returns the figure of a picture."""
    return figures.LAYOUTS[layout][0](picture)


def describe(figure: Figure) -> list[dict[str, Any]]:
    """Returns what each of a figure's axes consists of."""
    return [
        {
            "title": axes.get_title(),
            "x": axes.get_xlabel(),
            "y": axes.get_ylabel(),
            "scales": [axes.get_xscale(), axes.get_yscale()],
            "x labels": [one.get_text() for one in axes.get_xticklabels() if one.get_text()],
            "y labels": [one.get_text() for one in axes.get_yticklabels() if one.get_text()],
            "points": sum(
                len(one.get_offsets())
                for one in axes.collections
                if isinstance(one, PathCollection)
            ),
            "lines": len(axes.lines),
            "hatches": [one.get_hatch() for one in axes.patches if one.get_hatch()],
            "texts": [one.get_text() for one in axes.texts],
        }
        for axes in figure.axes
    ]


def legends(figure: Figure) -> list[list[str]]:
    """Returns the labels of a figure's legends."""
    panes = [figure, *figure.subfigs]
    return [[text.get_text() for text in one.get_texts()] for pane in panes for one in pane.legends]


def structure() -> dict[str, Any]:
    """Returns what all figures consist of."""
    return {
        name: {"axes": describe(figure), "legends": legends(figure)}
        for name, (layout, picture) in pictures().items()
        for figure in [drawn(layout, picture)]
    }


if __name__ == "__main__":
    KEPT.write_text(json.dumps(structure(), indent=1, ensure_ascii=False) + "\n")
