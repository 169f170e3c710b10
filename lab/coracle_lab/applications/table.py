"""Reads tables of applications and of images: TOML files with [[application]] and [[image]].

The keys of an entry are those of a design's [application] but `use`; the schema of designs is
the one description of them. Errors name the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from coracle_lab import data
from coracle_lab.design.check import Source, check, near, schema
from coracle_lab.design.parse import read
from coracle_lab.errors import LabError

APPS = "{apps}"
"""Stands for the built-in directory in the `source` of an application."""


@dataclass(frozen=True)
class Table:
    """All applications and images by name; `source` of an entry is already absolute, or below
    `APPS`. `places` are the files of the applications, and their numbers there."""

    applications: Mapping[str, Mapping[str, Any]]
    images: Mapping[str, Mapping[str, Any]]
    places: Mapping[str, tuple[Source, int]]


@cache
def _schema() -> dict[str, Any]:
    """Returns the schema of a table: parts of the schema of designs."""
    parts = deepcopy(schema()["properties"])
    application = parts["application"]
    del application["properties"]["use"]
    del application["properties"]["source_sha256"]
    application["required"] = ["name", "text", "command"]
    return {
        "$schema": schema()["$schema"],
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "image": parts["image"],
            "application": {"type": "array", "items": application},
        },
    }


def builtin() -> list[Path]:
    """Returns the files of the built-in table."""
    return sorted(data.directory("apps").glob("*.toml"))


def table(more: Sequence[Path] = ()) -> Table:
    """Returns the built-in table, with the entries of the user's files."""
    applications: dict[str, Mapping[str, Any]] = {}
    images: dict[str, Mapping[str, Any]] = {}
    places: dict[str, tuple[Source, int]] = {}
    for path in [*builtin(), *more]:
        tree, source = _read(path)
        for number, entry in enumerate(tree.get("application", [])):
            if entry["name"] in applications:
                source.fail(
                    ("application", number),
                    f'there is an application "{entry["name"]}" already',
                    "give it another name",
                )
            applications[entry["name"]] = _placed(entry, path)
            places[entry["name"]] = source, number
        for number, entry in enumerate(tree.get("image", [])):
            if images.setdefault(entry["name"], entry) != entry:
                source.fail(
                    ("image", number),
                    f'there is another image "{entry["name"]}" already',
                    "give it another name, or the same release and packages",
                )
    return Table(applications, images, places)


def _read(path: Path) -> tuple[dict[str, Any], Source]:
    """Returns the tree of a file, checked."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(f"{path}: it cannot be read as text: {error}") from error
    source = Source(text, str(path))
    tree = read(source)
    check(source, tree, _schema())
    return tree, source


def _placed(entry: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Returns an entry whose source does not depend on the table's place."""
    if "source" not in entry:
        return entry
    apps = data.directory("apps")
    if path.resolve().parent == apps.resolve():
        return {**entry, "source": f"{APPS}/{entry['source']}"}
    return {**entry, "source": str((path.parent / entry["source"]).absolute())}


def find(given: Table, name: str, source: Source) -> Mapping[str, Any]:
    """Returns the entry of an application that a design uses."""
    if name not in given.applications:
        source.fail(
            ("application", "use"),
            f'there is no application "{name}"',
            near(name, sorted(given.applications)),
        )
    return given.applications[name]
