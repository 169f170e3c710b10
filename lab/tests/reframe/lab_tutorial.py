"""The suites of ReFrame's own tutorial, as its package installs them, and what comes of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import lab_host as hosts

EXAMPLES = Path(sys.prefix, "share/doc/reframe-hpc/examples")
SUITES = (
    "tutorial/deps/deps_complex.py",
    "tutorial/stream/stream_fixtures.py",
    "howto/testlib_example.py",
)
PASSING = ("T0", "T1", "T3", "T4", "T5", "T6", "HelloFoo", "stream_test")
FAILING = ("T2", "T7", "T8", "T9")
"""Tests that fail on purpose, and those that depend on them."""

SITE = """
from coracle_lab.reframe import partitions
from coracle_lab.reframe.partitions import launcher

here = {"scheduler": "local", "launcher": launcher(), "environs": ["builtin"], "max_jobs": 4}
site_configuration = {
    "systems": [{"name": "lab", "hostnames": [".*"], "partitions": partitions(here)}],
    "environments": [
        {
            "name": "builtin",
            "cc": "gcc",
            "features": ["openmp"],
            "extras": {"omp_flag": "-fopenmp -static -DSTREAM_ARRAY_SIZE=100000"},
        }
    ],
}
"""
"""A site file as the tutorial wants it: with a compiler. The image has no library of OpenMP's."""


def words(host: hosts.Host) -> list[str]:
    """Returns ReFrame's words for the suites and the site, which are copied for the user."""
    place = host.lab / "tutorial"
    if not EXAMPLES.exists():
        hosts.skip(f"ReFrame's tutorial is not in {EXAMPLES}")
    if not place.exists():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(EXAMPLES, place, ignore=ignore)
        (place / "site.py").write_text(SITE)
    return ["-C", str(place / "site.py"), *(f"-c{place / suite}" for suite in SUITES)]


def check(results: dict[tuple[str, str], str], environments: list[str], said: str) -> None:
    """Compares the results with what the tutorial is to give, in each environment."""
    for environment in environments:
        partition = environment.replace(":", "-")
        for test in PASSING:
            assert results.get((partition, test)) == "pass", f"{environment} {test}: {said}"
        for test in FAILING:
            assert results.get((partition, test)) != "pass", f"{environment} {test}: {said}"
