"""Fixtures: the lab's programs, compiled once."""

from __future__ import annotations

import pytest
from lab_kernels import Kernels


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The programs that this session has compiled."""
    return Kernels(tmp_path_factory.mktemp("kernels"))
