"""Nested sampling by ultranest; each point is stored into an SQLite file.

Words: POINTS. The likelihood is that of a torus-shaped shell in four dimensions. Pseudo-random
numbers begin with a fixed seed, so that evidence and points are the same to the last bit in each
environment; another number of ranks has others. With ranks (mpi4py) each stores the points that it
computes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sqlite3
import sys

import numpy as np
from ultranest import ReactiveNestedSampler

NAMES = ["a", "b", "c", "d"]
SEED = 31187
COMMIT = 100
EVIDENCE, EVIDENCE_WITHIN = -4.613, 1.0
"""COMMIT is the number of points in a transaction. The logarithm of the evidence is known: that of
16 pi^3 sigma / 10^4, with sigma = 0.2; the estimate of 100 points is off by 0.15."""


def likelihood(values: np.ndarray) -> float:
    """Returns the logarithm of the likelihood of a point, without any library's kernels."""
    a, b, c, d = (float(value) for value in values)
    shell = (math.sqrt((math.sqrt(a * a + b * b) - 2.0) ** 2 + c * c) - 1.0) / 0.2
    return -0.5 * (shell * shell + d * d)


class Stored:
    """The likelihood, which stores each point that it is asked for."""

    def __init__(self, rank: int) -> None:
        """Makes the file of this rank."""
        self.base = sqlite3.connect(f"points-{rank}.sqlite")
        self.base.execute("CREATE TABLE points (a REAL, b REAL, c REAL, d REAL, l REAL)")
        self.count = 0

    def __call__(self, values: np.ndarray) -> float:
        """Returns the likelihood."""
        value = likelihood(values)
        point = [float(one) for one in values]
        self.base.execute("INSERT INTO points VALUES (?, ?, ?, ?, ?)", (*point, value))
        self.count += 1
        if self.count % COMMIT == 0:
            self.base.commit()
        return value

    def digest(self) -> str:
        """Ends the file, and returns the SHA-256 of all points in it."""
        self.base.commit()
        rows = self.base.execute("SELECT * FROM points ORDER BY rowid")
        result = hashlib.sha256()
        for row in rows:
            result.update(" ".join(one.hex() for one in row).encode())
        (count,) = self.base.execute("SELECT count(*) FROM points").fetchone()
        self.base.close()
        if count != self.count:
            raise ValueError(f"{count} points are stored of {self.count}")
        return result.hexdigest()


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 2:
        sys.stderr.write("error: words: POINTS\n")
        raise SystemExit(2)
    rank, ranks = 0, 1
    if "OMPI_COMM_WORLD_SIZE" in os.environ or "PMI_SIZE" in os.environ:
        from mpi4py import MPI

        rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    logging.getLogger("ultranest").setLevel(logging.WARNING)
    np.random.seed(SEED + rank)
    stored = Stored(rank)
    sampler = ReactiveNestedSampler(NAMES, stored, lambda cube: cube * 10.0 - 5.0)
    result = sampler.run(
        min_num_live_points=int(sys.argv[1]),
        show_status=False,
        viz_callback=False,
        min_ess=0,
        frac_remain=0.1,
    )
    evidence = float(result["logz"])
    if not abs(evidence - EVIDENCE) <= EVIDENCE_WITHIN:
        sys.stderr.write(f"error: the evidence is {evidence}, and not {EVIDENCE}\n")
        raise SystemExit(1)
    points = stored.digest()
    if ranks > 1:
        points = hashlib.sha256("".join(MPI.COMM_WORLD.allgather(points)).encode()).hexdigest()
    if rank == 0:
        print(f"evidence {evidence.hex()}")
        print(f"points {points}")
        print("lab", json.dumps({"calls": int(result["ncall"]), "log_evidence": evidence}))


if __name__ == "__main__":
    main()
