"""Finds the package's directories of data: applications, and the papers' designs.

In the source tree they lie beside the package (`lab/apps`, `lab/papers`); an installation has
them in it (`pyproject.toml` maps them to `coracle_lab.apps` and `coracle_lab.papers`).
"""

from __future__ import annotations

from pathlib import Path

from coracle_lab.errors import LabError

PACKAGE = Path(__file__).resolve().parent


def directory(name: str) -> Path:
    """Returns the directory "apps" or "papers"."""
    for place in (PACKAGE / name, PACKAGE.parent / name):
        if any(place.glob("*.toml")):
            return place
    raise LabError(
        f"the directory {name} of coracle-lab is missing", "install coracle-lab again", status=1
    )
