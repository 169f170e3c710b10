"""Fixtures: a user's home with an image, and hosts with user namespaces and without."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import lab_host as hosts
import pytest


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A directory with all that a host needs. Not pytest's own: other users cannot enter that."""
    directory = Path(tempfile.mkdtemp(prefix="coracle-lab-test-"))
    try:
        hosts.make(directory)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session", params=["allowed", "forbidden"])
def host(request: pytest.FixtureRequest, place: Path) -> hosts.Host:
    """A host with user namespaces, and one without."""
    made = hosts.Host(place, forbidden=request.param == "forbidden")
    done = made.run(["true"])
    if done.returncode != 0:
        hosts.skip(f"user namespaces cannot be {request.param} here: {done.stderr.strip()}")
    return made
