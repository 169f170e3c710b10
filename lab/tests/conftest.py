"""Fixtures: a user's home with an image, and hosts with user namespaces and without.

Tests that start programs have the mark `real`; `lab_guard` fails others that do.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import lab_host as hosts
import pytest
from lab_guard import Guard

guard = Guard()
sys.addaudithook(guard)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests with the mark `long` whose file is of another share than the wanted one."""
    part, of = (int(number) for number in os.environ.get("CORACLE_TEST_SHARE", "1/1").split("/"))
    is_left_out = [
        item.get_closest_marker("long") is not None
        and zlib.crc32(item.path.name.encode()) % of != part - 1
        for item in items
    ]
    config.hook.pytest_deselected(
        items=[item for item, left_out in zip(items, is_left_out, strict=True) if left_out]
    )
    items[:] = [item for item, left_out in zip(items, is_left_out, strict=True) if not left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watches a test, with the fixtures that are made for it."""
    guard.on = item.get_closest_marker("real") is None
    try:
        return (yield)
    finally:
        guard.on = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Fails a test that has started a program, also one that has caught the error."""
    done = yield
    told = guard.told()
    if told is not None:
        pytest.fail(told, pytrace=False)
    return done


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
