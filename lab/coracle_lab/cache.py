"""The cache: `$CORACLE_LAB_CACHE`, else `coracle-lab` in `$XDG_CACHE_HOME` or in `~/.cache`."""

from __future__ import annotations

import os
from pathlib import Path

from coracle_lab.errors import LabError


def directory() -> Path:
    """Returns the directory for trees, builds and scratch."""
    own = os.environ.get("CORACLE_LAB_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "coracle-lab"
    try:
        return Path.home() / ".cache/coracle-lab"
    except RuntimeError as error:
        raise LabError(
            "this user has no home directory", "set HOME, or CORACLE_LAB_CACHE for the lab alone"
        ) from error
