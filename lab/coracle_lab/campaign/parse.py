"""Makes a `Campaign` of the text of a campaign file, at one size.

Order: TOML, the schema, then each figure's design: the table of the size is merged over
`[figure.design]` (tables merge, arrays and values replace), and the result has to be what the
schema of designs describes. Errors name the line in the campaign's file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from coracle_lab.applications import toml
from coracle_lab.campaign.groups import GROUPS, PREFIX
from coracle_lab.campaign.model import SIZES, Campaign, Figure, Size
from coracle_lab.design.check import Source, check, near
from coracle_lab.design.parse import read
from coracle_lab.design.place import line_of
from coracle_lab.errors import LabError

FACTOR = "environment"
SERIES = "@*"
"""`NAME@*`: every response of a series."""
FIELDS = (
    "id", "title", "of", "layout", "shows_not", "x", "panels", "oracle", "model",
)  # fmt: skip
"""Keys of a figure that are taken as they are."""


@cache
def schema(complete: bool = True) -> dict[str, Any]:
    """Returns the JSON schema of campaign files; if not complete, without required keys."""
    text = resources.files("coracle_lab.campaign").joinpath("schema.json").read_text("utf-8")
    tree: dict[str, Any] = json.loads(text)
    if not complete:
        del tree["required"], tree["properties"]["figure"]["items"]["required"]
    return tree


def is_campaign(text: str) -> bool:
    """Tells whether a text is a campaign file, and not a design file."""
    try:
        return "figure" in read(Source(text, ""))
    except LabError:
        return False


def size_of(word: str) -> Size:
    """Returns the size of that name."""
    for size in SIZES:
        if size == word:
            return size
    raise LabError(f'unknown size "{word}"', near(word, list(SIZES)))


@dataclass(frozen=True)
class Part(Source):
    """The design of one figure: its keys stand in the size's table, or in `[figure.design]`."""

    index: int
    size: Size

    def line(self, path: tuple[str | int, ...]) -> int | None:
        """Returns the line of a key of the design; None for what is in neither table."""
        for table in (self.size, "design"):
            place = ("figure", self.index, table)
            found = line_of(self.text, (*place, *path))
            # Of a key that is not there it is the line of the table.
            if path and found != line_of(self.text, place):
                return found
        return None


def parse(text: str, name: str, size: Size) -> Campaign:
    """Returns the campaign that `text` (TOML) describes; `name` is the file's, for messages."""
    source = Source(text, name)
    tree = read(source)
    # A key that is misspelled is told as that, and not as one that is missing.
    check(source, tree, schema(complete=False))
    check(source, tree, schema())
    _once(source, tree["figure"])
    _models(source, tree["figure"])
    table = {"environment": tree["environment"]} if "environment" in tree else None
    return Campaign(
        name=name,
        title=tree["title"],
        paper=tree["paper"],
        text=tree["text"],
        figures=tuple(
            _figure(text, name, index, entry, size) for index, entry in enumerate(tree["figure"])
        ),
        environments=None if table is None else toml.document(table),
        size=size,
    )


def _once(source: Source, entries: list[Mapping[str, Any]]) -> None:
    """Refuses two figures of one id: they would have the same records."""
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry["id"].lower() in seen:
            source.fail(
                ("figure", index, "id"),
                f'there is a figure "{entry["id"]}" already',
                "give it another id",
            )
        seen.add(entry["id"].lower())


def _models(source: Source, entries: list[Mapping[str, Any]]) -> None:
    """Refuses a layout without its model, a model without its layout, and both with a design."""
    for index, entry in enumerate(entries):
        is_model = entry["layout"] == "model"
        designs = [key for key in (*SIZES, "design") if key in entry]
        if is_model != ("model" in entry) or (is_model and designs):
            source.fail(
                ("figure", index, "layout"),
                'layout = "model" has the key "model" and no design',
                "see docs/lab.md, A file of figures",
            )


def _figure(text: str, name: str, index: int, entry: Mapping[str, Any], size: Size) -> Figure:
    """Returns one figure, with its design at the size."""
    design = None
    if size in entry:
        source = Part(text, name, index, size)
        tree = merged(entry.get("design", {}), entry.get(size, {}))
        check(source, tree)
        _names(source, entry, tree)
        tree.setdefault("name", entry["id"])
        judged = [one for one in entry["responses"] if not one.endswith(SERIES)]
        if judged:
            tree.setdefault("responses", judged)
        design = toml.document(tree)
    return Figure(
        **{key: entry[key] for key in FIELDS if key in entry},
        responses=tuple(entry["responses"]),
        published=tuple(entry.get("published", ())),
        design=design,
        reason=None if design is not None or "model" in entry else _reason(entry, size),
    )


def _reason(entry: Mapping[str, Any], size: Size) -> str:
    """Returns why a figure is not made at a size."""
    there = [one for one in SIZES if one in entry]
    sizes = f"it is made at size {' and '.join(there)}" if there else "it has no design"
    return str(entry.get("reason", f"not a figure of size {size}: {sizes}"))


def merged(one: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a table with another one over it: tables merge, all else is replaced."""
    result = dict(one)
    for key, value in over.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = merged(before, value)
        result[key] = value
    return result


def _names(source: Part, entry: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Looks up the factors that the figure names, and the groups of environments."""
    factors = list(tree["factors"])
    for key in ("x", "panels"):
        if key in entry and entry[key] not in factors:
            Source(source.text, source.name).fail(
                ("figure", source.index, key),
                f'{key} = "{entry[key]}" is not a factor of the design of {entry["id"]}',
                near(entry[key], factors),
            )
    for level in tree["factors"].get(FACTOR, []):
        if isinstance(level, str) and level.startswith(PREFIX) and level not in GROUPS:
            source.fail(
                ("factors", FACTOR),
                f'unknown group of environments "{level}"',
                near(level, list(GROUPS)),
            )
