"""Puts an application of the table, and recipes of images, into the text of a design.

The result is a design that needs no table: it is what the records keep. What the user wrote stays
as it is, line by line, but for the tables [application], which become comments; the whole
application stands at the end. Errors name the lines of the user's text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coracle_lab.applications import sources, toml
from coracle_lab.applications.table import APPS, Table, find, table
from coracle_lab.design import Design
from coracle_lab.design.application import PLACEHOLDER
from coracle_lab.design.check import Source, check
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
    design = of_tree(source, whole)
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
