"""Puts an application of the table, and recipes of images, into the text of a design.

The result is a design that needs no table: it is what the records keep. What the user wrote stays
as it is, line by line, but for the tables [application], which become comments; the whole
application stands at the end. Errors name the lines of the user's text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from coracle_lab.applications import sources, toml
from coracle_lab.applications.table import APPS, Table, find, table
from coracle_lab.design import Design
from coracle_lab.design.application import PLACEHOLDER
from coracle_lab.design.check import Source, check, near
from coracle_lab.design.parse import of_tree, read
from coracle_lab.design.place import headers
from coracle_lab.errors import LabError


def resolve(text: str, name: str, files: Sequence[Path] = (), directory: Path | None = None) -> str:
    """Returns the text of a design with its application in it.

    `files` are tables of the user's, `directory` is where a relative `source` of the design is
    looked for: that of the file `name`, if it is not given.
    """
    source = Source(text, name)
    tree = read(source)
    check(source, tree)
    known = table(files)
    whole = dict(tree)
    if "application" in tree:
        own = directory if directory is not None else Path(name).parent
        whole["application"] = _application(source, tree["application"], known, own)
        source = _merged(source, tree["application"], known)
    design = of_tree(source, whole)
    _responses(source, design)
    recipes = list(_recipes(design, known, tree.get("image", [])))
    if recipes:
        whole["image"] = [*tree.get("image", []), *recipes]
    return text if whole == tree else _written(text, whole, recipes)


def _application(
    source: Source, given: Mapping[str, Any], known: Table, directory: Path
) -> dict[str, Any]:
    """Returns a design's application: the entry that it uses, and its own keys before that."""
    own = dict(given)
    if "source_sha256" in own:
        return own
    if "source" in own and not own["source"].startswith(f"{APPS}/"):
        own["source"] = str((directory / own["source"]).absolute())
    merged = own
    if "use" in own:
        entry = find(known, own.pop("use"), source)
        merged = {**entry, **own}
        parameters = {**entry.get("parameters", {}), **own.get("parameters", {})}
        if parameters:
            merged["parameters"] = parameters
    if "source" in merged:
        merged["source_sha256"] = sources.digest(merged["source"])
    return merged


@dataclass(frozen=True)
class Merged(Source):
    """The text of a design whose application is an entry of a table: an error about a key that
    the design does not have itself is in the table."""

    own: Mapping[str, Any]
    entry: Source
    number: int

    def where(self, path: tuple[str | int, ...]) -> str:
        """Returns the place of a key, in the design or in the table."""
        inner: Any = self.own
        for part in path[1:] if path[:1] == ("application",) else ():
            if isinstance(inner, Mapping) and part not in inner:
                return self.entry.where(("application", self.number, *path[1:]))
            inner = inner[part]
        return super().where(path)


def _merged(source: Source, own: Mapping[str, Any], known: Table) -> Source:
    """Returns the source of a design, and of the entry that it uses."""
    if "use" not in own:
        return source
    return Merged(source.text, source.name, own, *known.places[own["use"]])


@cache
def _fields() -> tuple[str, ...]:
    """Returns the names that a record of every application has."""
    path = resources.files("coracle_lab").joinpath("run", "schema", "record.json")
    return tuple(json.loads(path.read_text("utf-8"))["$defs"]["record"]["properties"])


def _responses(source: Source, design: Design) -> None:
    """Refuses responses that no row can have. Those that `reads` finds are known by rows alone."""
    application = design.application
    if application is None or application.reads is not None:
        return
    found = list(application.responses)
    known = [*found, "wall_s", "user_s", "system_s", "max_rss_bytes"]
    for name in design.responses:
        some = name.endswith("@*") and any(one.startswith(name[:-1]) for one in found)
        if not some and name not in known and name not in _fields():
            source.fail(("responses",), f'unknown response "{name}"', near(name, known))
    for name in application.rates:
        if name not in {one.partition("@")[0] for one in found} | set(found):
            hint = near(name, found) if found else "rates are names of responses: add it there"
            source.fail(("application", "rates"), f'unknown response "{name}"', hint)


def images(design: Design) -> Iterator[str]:
    """Yields the names of all images that the rows of a design can have."""
    image = design.application.image if design.application is not None else None
    if image is None:
        return
    assert design.application is not None
    used = sorted(set(PLACEHOLDER.findall(image)))
    factors = [(name, factor.levels) for name in used if (factor := design.factor(name))]
    for levels in itertools.product(*(levels for _, levels in factors)):
        chosen = dict(zip((name for name, _ in factors), levels, strict=True))
        yield substituted(image, {**design.application.parameters, **chosen})


def substituted(word: str, values: Mapping[str, str]) -> str:
    """Returns a word with each `{NAME}` that has a value replaced by it."""
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)


def _recipes(
    design: Design, known: Table, own: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yields the table's recipes of the design's images, but for those that it has itself."""
    there = {entry["name"] for entry in own}
    for name in dict.fromkeys(images(design)):
        if name in known.images and name not in there:
            yield known.images[name]


def _written(text: str, tree: dict[str, Any], recipes: Sequence[Mapping[str, Any]]) -> str:
    """Returns a text that has the tree, and as much of the user's text as possible."""
    parts = [_without_application(text).rstrip("\n")]
    if "application" in tree:
        parts.append("\n".join(["[application]", *toml.lines(tree["application"])]))
    for recipe in recipes:
        parts.append("\n".join(["[[image]]", *toml.lines(recipe)]))
    made = "\n\n".join(parts) + "\n"
    try:
        if read(Source(made, "")) == tree:
            return made
    except LabError:
        # [application] was not written as a table of its own.
        pass
    return toml.document(tree)


def _without_application(text: str) -> str:
    """Returns the text with each line of a table [application] as a comment."""
    begins = {number: path for path, number in headers(text)}
    lines, inside = [], False
    for number, line in enumerate(text.split("\n"), start=1):
        inside = begins[number][:1] == ("application",) if number in begins else inside
        lines.append(f"# {line}".rstrip() if inside and line.strip() else line)
    return "\n".join(lines)
