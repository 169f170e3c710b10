"""Inputs of the models for tests: planted machines, records on disk, the overhead study's CSVs."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from coracle_lab.design import Row
from coracle_lab.model.law import Tables
from coracle_lab.model.messages import Messages
from coracle_lab.model.sample import sample
from coracle_lab.run import records, store

SIZES = (1, 1024, 65536, 1048576)
Cells = dict[int, dict[str, list[float]]]


class Machine:
    """A planted machine on which the law holds exactly.

    A start is `start` plus an exponential with the mean `tail`; work is normal; a message takes
    `latency` + size / `bandwidth`, with normal noise.
    """

    def __init__(
        self,
        start: float = 0.05,
        tail: float = 0.02,
        work: float = 8.0,
        latency: float = 50e-6,
        bandwidth: float = 1e8,
        noise: float = 0.01,
    ) -> None:
        self.start, self.tail, self.work = start, tail, work
        self.latency, self.bandwidth, self.noise = latency, bandwidth, noise

    def starts(self, rng: Generator, count: int) -> NDArray[np.float64]:
        return self.start + rng.exponential(self.tail, count)

    def works(self, rng: Generator, count: int) -> NDArray[np.float64]:
        return self.work * rng.normal(1, self.noise, count)

    def ping_pong(self, rng: Generator, count: int) -> NDArray[np.float64]:
        plain = self.latency + np.array(SIZES) / self.bandwidth
        return np.asarray(plain * rng.normal(1, self.noise, (count, len(SIZES))))

    def expected(self, ranks: int, messages: list[tuple[float, float]]) -> float:
        """T(p); the largest of p exponentials has the mean 1 + 1/2 + ... + 1/p."""
        launch = self.start + self.tail * sum(1 / k for k in range(1, ranks + 1))
        exchanged = sum(n * (self.latency + size / self.bandwidth) for n, size in messages)
        return launch + self.work / ranks + exchanged


def tables(
    rng: Generator, machines: Mapping[str, Machine], starts: int = 200, blocks: int = 30
) -> Tables:
    """Measures the inputs of the law on planted machines."""
    return Tables(
        {n: sample(m.starts(rng, starts), f"starts of {n}") for n, m in machines.items()},
        {n: sample(m.works(rng, blocks), f"work of {n}") for n, m in machines.items()},
        Messages(
            SIZES,
            {n: sample(m.ping_pong(rng, blocks), f"messages of {n}") for n, m in machines.items()},
        ),
    )


def seeded(seed: int = 18) -> Generator:
    return np.random.Generator(np.random.PCG64(seed))


def recorded(
    directory: Path,
    design: str,
    values: Callable[[Row], Mapping[str, float]],
    outcome: Callable[[Row], str] = lambda row: "ok",
    cpus: int = 64,
    machine: str = "m",
) -> Path:
    """Makes a directory of records; `values` are the responses of a row, `wall_s` among them."""
    found = store.create(directory, design, "d.toml")
    for row in found.rows:
        responses = dict(values(row))
        wall = responses.pop("wall_s", 1.0)
        ok = outcome(row) == "ok"
        records.append(
            directory / "records.jsonl",
            {
                "schema": records.SCHEMA,
                "design": found.digest,
                "row": row.number,
                "block": row.block,
                "attempt": 1,
                "session": "s",
                "levels": dict(row.levels),
                "outcome": outcome(row),
                "why": None if ok else "exit status 7",
                "exit_status": 0 if ok else 7,
                "wall_s": wall,
                "user_s": 0.0,
                "system_s": 0.0,
                "max_rss_bytes": 1,
                "minor_faults": 1,
                "major_faults": 0,
                "voluntary_switches": 0,
                "involuntary_switches": 0,
                "output_sha256": "0" * 64,
                "responses": responses,
                "sentinel_before_s": 0.05,
                "sentinel_after_s": 0.05,
                "steal_ticks": 0,
                "started": "2026-01-01T00:00:00Z",
                "host": "h",
            },
        )
    facts = {
        "machine": {"id": machine, "virtual": False, "cpu": "c"},
        "state": {"governors": [], "on_battery": None, "load_1m": 0.0, "host": "h"},
        "process": {"affinity": list(range(cpus)), "nice": 0},
    }
    found.append_facts("s", facts, {})
    return directory


def study(name: str, column: str) -> Cells:
    """Returns a table of the overhead study, which is not in the repository; skips without."""
    shared = os.environ.get("CORACLE_SHARED")
    root = Path(shared) if shared else Path(__file__).resolve().parents[3].parent / "shared"
    where = root / "data" / "overhead-study" / name
    if not where.is_file():
        print(f"SKIP: no {where} (set CORACLE_SHARED)")
        pytest.skip(f"no {where}: the overhead study's CSV files (set CORACLE_SHARED)")
    found: Cells = {}
    with where.open(newline="") as file:
        for row in csv.DictReader(file):
            cell = found.setdefault(int(row[column]), {})
            cell.setdefault(row["environment"], []).append(float(row["time"]))
    return found
