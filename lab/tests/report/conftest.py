"""Pages that are made once for all tests that only look at them."""

from __future__ import annotations

from pathlib import Path

import lab_made as made
import pytest

from coracle_lab.cli import main


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a directory with records of everything, and their page in `report`."""
    directory = tmp_path_factory.mktemp("example")
    made.example(directory)
    assert main(["report", str(directory)]) == 0
    return directory


@pytest.fixture(scope="session")
def study_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of the overhead study's own page."""
    files = made.study()
    into = tmp_path_factory.mktemp("study")
    assert main(["report", "--oracle", str(files), "--into", str(into)]) == 0
    return into
