"""The cache: `$CORACLE_LAB_CACHE`, else `coracle-lab` in `$XDG_CACHE_HOME` or in `~/.cache`."""

from __future__ import annotations

import os
from pathlib import Path


def directory() -> Path:
    """Returns the directory for trees, builds and scratch."""
    own = os.environ.get("CORACLE_LAB_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "coracle-lab"
