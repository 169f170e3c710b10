"""Finds out what a figure needs and this host lacks, without running anything of it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coracle_lab import nodes
from coracle_lab.applications import Table, images
from coracle_lab.campaign import designs
from coracle_lab.campaign.model import Figure
from coracle_lab.design.check import Source
from coracle_lab.design.parse import read
from coracle_lab.errors import LabError

ASK_S = 60
MAKES_IMAGES = "mmdebstrap"


def tree_of(figure: Figure) -> Mapping[str, Any] | None:
    """Returns the design of a figure as a tree; None if it has none at its size."""
    return None if figure.design is None else read(Source(figure.design, figure.id))


def packages(figures: Iterable[Figure], known: Table) -> list[str]:
    """Returns the Debian packages that the native rows of some figures need, and what makes
    their images."""
    wanted: set[str] = set()
    for figure in figures:
        tree = tree_of(figure)
        if tree is None:
            continue
        application = designs.application(tree, known)
        wanted.update(application.get("host", ()))
        if "image" in application:
            wanted.add(MAKES_IMAGES)
    return sorted(wanted)


def lacking(wanted: Iterable[str]) -> list[str] | None:
    """Returns those of some Debian packages that are not installed; None without dpkg."""
    names = sorted(wanted)
    program = shutil.which("dpkg-query")
    if program is None:
        return None
    if not names:
        return []
    words = [program, "--show", "--showformat=${db:Status-Status} ${Package}\\n", *names]
    said = subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=False)
    there = {
        name
        for state, _, name in (line.partition(" ") for line in said.stdout.splitlines())
        if state == "installed"
    }
    return [name for name in names if name not in there]


def why_not(figure: Figure, known: Table) -> str | None:
    """Returns why a figure cannot be made here, as far as that can be seen before; else None."""
    tree = tree_of(figure)
    if tree is None:
        return figure.reason
    application = designs.application(tree, known)
    missing = lacking(application.get("host", ()))
    if missing:
        return f"not installed: {', '.join(missing)}"
    return _image(application) or _nodes(tree)


def _image(application: Mapping[str, Any]) -> str | None:
    """Returns why the image cannot be had; one that has to be pulled is tried later."""
    image = application.get("image")
    if image is None:
        return None
    try:
        if "{" not in image and images.identity(image) is not None:
            return None
    except LabError as error:
        return error.message
    if shutil.which(MAKES_IMAGES) is None:
        return f"image {image} is not in Coracle's store, and {MAKES_IMAGES} is not installed"
    return None


def _nodes(tree: Mapping[str, Any]) -> str | None:
    """Returns why nodes cannot be simulated here."""
    given = tree.get("nodes")
    if given is None or given["count"] < 2:
        return None
    try:
        with (
            tempfile.TemporaryDirectory() as place,
            nodes.made(given["count"], given.get("rate"), Path(place)),
        ):
            return None
    except LabError as error:
        return error.message
