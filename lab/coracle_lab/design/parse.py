"""Makes a `Design` of the text of a design file.

Order: TOML, then the schema (`check`), then what a schema cannot say: levels that are not told
apart, a `where` that names nothing, a kind that does not go with the rest.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from coracle_lab.design.application import application, images, level_text
from coracle_lab.design.check import Source, check, near, spelled
from coracle_lab.design.fractions import check_fraction
from coracle_lab.design.model import (
    ABOVE,
    COLUMNS,
    FRACTIONS,
    NESTED_COLUMNS,
    Design,
    Factor,
    LeftOut,
    Nested,
    Nodes,
    Precision,
)
from coracle_lab.design.options import check_used, options
from coracle_lab.errors import LabError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CELLS_AT_MOST = 100_000
ROWS_AT_MOST = 1_000_000
AGAIN = "-again"
"""`native-again` is native a second time: what its comparison with native shows is noise (A/A)."""

TABLES = {"fractional": "fractional", "nested": "nested"}


def parse(text: str, name: str) -> Design:
    """Returns the design that `text` (TOML) describes; `name` is the file's, for messages.

    Raises `LabError` with the place and a hint.
    """
    source = Source(text, name)
    return of_tree(source, read(source))


def read(source: Source) -> dict[str, Any]:
    """Returns the TOML tree of a text, or raises `LabError` with the place."""
    text, name = source.text, source.name
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        at = f"{name}, line {place.group(1)}, column {place.group(2)}" if place else name
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise LabError(f"{at}: this is not TOML: {what}", "strings need quotes") from error


def of_tree(source: Source, tree: dict[str, Any]) -> Design:
    """Returns the design of a TOML tree; messages name the places of `source`."""
    _finite(source, tree, ())
    check(source, tree)
    kind = tree.get("kind", "blocks")
    _tables_of_kind(source, tree, kind)
    factors = _factors(source, tree["factors"])
    generator = check_fraction(source, tree, kind, factors)
    left_out = _left_out(source, tree.get("where", []), factors, kind)
    words = options(source, tree.get("options", {}), factors)
    check_used(source, tree, kind, factors)
    precision = _precision(source, tree, kind)
    nested = Nested(**{k: int(v) for k, v in tree["nested"].items()}) if "nested" in tree else None
    design = Design(
        name=tree.get("name", source.name),
        kind=kind,
        seed=int(tree["seed"]),
        factors=factors,
        replicates=_replicates(source, tree, precision, nested),
        precision=precision,
        nested=nested,
        generator=generator,
        resolution=tree.get("fractional", {}).get("resolution"),
        left_out=left_out,
        base=_base(tree, factors),
        margin=float(tree.get("margin", 0.01)),
        responses=tuple(tree.get("responses", ("wall_s",))),
        application=application(source, tree.get("application"), factors),
        session=tree.get("session"),
        transport=tree.get("transport"),
        pinning=tree.get("pinning"),
        sentinel_above=float(tree.get("sentinel", {}).get("above", ABOVE)),
        same=tree.get("same"),
        nodes=Nodes(**tree["nodes"]) if "nodes" in tree else None,
        images=images(tree.get("image", ())),
        options=words,
        text=tree.get("text", ""),
        notes=tuple(_notes(source, tree, factors)),
    )
    _bounded(source, design)
    return design


def _finite(source: Source, value: Any, path: tuple[str | int, ...]) -> None:
    """Refuses NaN and infinity, which TOML has and every bound of the schema lets through."""
    if isinstance(value, float) and not math.isfinite(value):
        source.fail(path, f"{spelled(path)} = {value} is not a number", "write a finite number")
    pairs: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        pairs = iter(value.items())
    elif isinstance(value, list):
        pairs = iter(enumerate(value))
    for key, inner in pairs:
        _finite(source, inner, (*path, key))


def _tables_of_kind(source: Source, tree: Mapping[str, Any], kind: str) -> None:
    """Each kind has its table, and no other kind's."""
    for table, owner in TABLES.items():
        if table in tree and kind != owner:
            source.fail(
                (table,),
                f'[{table}] does not belong to kind = "{kind}"',
                f'write kind = "{owner}", or take the table out',
            )
        if kind == owner and table not in tree:
            source.fail(("kind",), f'kind = "{kind}" needs the table [{table}]', f"add [{table}]")


def _factors(source: Source, table: Mapping[str, list[Any]]) -> tuple[Factor, ...]:
    reserved = {*COLUMNS, *NESTED_COLUMNS, "Blocks", "block", "number"}
    factors = []
    for name, levels in table.items():
        if name in reserved:
            source.fail(("factors", name), f'"{name}" is a column of the lab', "rename the factor")
        words = tuple(level_text(level) for level in levels)
        for word in words:
            if words.count(word) > 1:
                source.fail(
                    ("factors", name), f'{name} has the level "{word}" twice', "take one out"
                )
            if any(ord(letter) < 32 for letter in word) or word != word.strip():
                source.fail(
                    ("factors", name),
                    f"the level {word!r} of {name} has control characters or outer spaces",
                    "levels are written into CSV files and names; use plain words",
                )
        factors.append(Factor(name, words))
    return tuple(factors)


def _left_out(
    source: Source, entries: list[Mapping[str, Any]], factors: tuple[Factor, ...], kind: str
) -> tuple[LeftOut, ...]:
    """Returns every cell that a `where` leaves out, in standard order."""
    if not entries:
        return ()
    if kind in FRACTIONS:
        source.fail(
            ("where",),
            f"a {kind} design without some of its rows mixes up the effects of its factors",
            'take the level out of its factor, or use kind = "blocks"',
        )
    if math.prod(len(factor.levels) for factor in factors) > CELLS_AT_MOST:
        _too_many(source)
    rules = [_rule(source, index, entry, factors) for index, entry in enumerate(entries)]
    cells = full_factorial(factors)
    hits = [(cell, _first_rule(cell, rules)) for cell in cells]
    for index in range(len(rules)):
        if all(hit != index for _, hit in hits):
            source.fail(
                ("where", index),
                "this leaves nothing out that an earlier [[where]] does not",
                "take it out",
            )
    out = tuple(LeftOut(cell, rules[hit][1]) for cell, hit in hits if hit is not None)
    if len(out) == len(cells):
        source.fail(("where",), "[[where]] leaves every cell out", "nothing would be measured")
    return out


def _first_rule(
    cell: Mapping[str, str], rules: list[tuple[dict[str, list[str]], str]]
) -> int | None:
    """Returns the index of the first rule that leaves the cell out."""
    for index, (levels, _) in enumerate(rules):
        if all(cell[name] in allowed for name, allowed in levels.items()):
            return index
    return None


def _rule(
    source: Source, index: int, entry: Mapping[str, Any], factors: tuple[Factor, ...]
) -> tuple[dict[str, list[str]], str]:
    """Returns the levels that one `where` names, after looking each of them up."""
    known = {factor.name: list(factor.levels) for factor in factors}
    rule: dict[str, list[str]] = {}
    for name, given in entry["leave_out"].items():
        place = ("where", index, "leave_out", name)
        if name not in known:
            source.fail(place, f'unknown factor "{name}" in leave_out', near(name, list(known)))
        rule[name] = [level_text(v) for v in (given if isinstance(given, list) else [given])]
        for level in rule[name]:
            if level not in known[name]:
                source.fail(place, f'unknown level "{level}" of {name}', near(level, known[name]))
    return rule, entry["reason"]


def full_factorial(factors: tuple[Factor, ...]) -> list[dict[str, str]]:
    """Returns all cells in standard order: the first factor changes fastest, as in R."""
    names = [factor.name for factor in factors]
    backwards = itertools.product(*(factor.levels for factor in reversed(factors)))
    return [dict(zip(names, reversed(levels), strict=True)) for levels in backwards]


def _precision(source: Source, tree: Mapping[str, Any], kind: str) -> Precision | None:
    given = tree.get("precision")
    if given is None:
        return None
    if kind != "blocks":
        source.fail(
            ("precision",),
            f'[precision] does not go with kind = "{kind}"',
            'only whole blocks can be added one by one; use kind = "blocks", or replicates = N',
        )
    if "replicates" in tree:
        source.fail(("precision",), "both replicates and [precision] are given", "take one out")
    most = int(given["blocks_at_most"])
    least = int(given.get("blocks_at_least", min(10, most)))
    if least > most:
        source.fail(
            ("precision", "blocks_at_least"),
            f"blocks_at_least = {least} is more than blocks_at_most = {most}",
            "raise blocks_at_most",
        )
    hours = given.get("hours_at_most")
    return Precision(
        half_width=float(given["half_width"]),
        level=float(given.get("level", 0.95)),
        blocks_at_least=least,
        blocks_at_most=most,
        hours_at_most=None if hours is None else float(hours),
    )


def _replicates(
    source: Source, tree: Mapping[str, Any], precision: Precision | None, nested: Nested | None
) -> int:
    if nested is not None:
        if "replicates" in tree:
            source.fail(
                ("replicates",),
                "a nested design has its numbers in [nested]",
                "take replicates out",
            )
        return nested.sessions * nested.launches * nested.starts
    if precision is not None:
        return precision.blocks_at_most
    if "replicates" not in tree:
        source.fail(
            (),
            "neither replicates nor [precision] is given",
            "add replicates = 30, or a table [precision] with half_width and blocks_at_most",
        )
    return int(tree["replicates"])


def _notes(source: Source, tree: Mapping[str, Any], factors: tuple[Factor, ...]) -> Iterator[str]:
    """Yields what is allowed but weakens the design."""
    parameters = tree.get("application", {}).get("parameters", {})
    if "nodes" in tree and not any("ranks" in (one.name, *parameters) for one in factors):
        yield "[nodes] without a factor or parameter ranks: the program runs on one of the nodes"
    environment = next((factor for factor in factors if factor.name == "environment"), None)
    if tree.get("kind") in FRACTIONS:
        _without_base(source, tree, environment)
        return
    base = tree.get("base", "native")
    if environment is None:
        if "base" in tree:
            source.fail(("base",), 'there is no factor "environment"', "take base out, or add it")
        return
    if base not in environment.levels:
        if "base" in tree:
            levels = list(environment.levels)
            source.fail(("base",), f'base = "{base}" is not an environment', near(base, levels))
        yield f'no "{base}" among the environments: there is nothing to compare them with'
    elif base + AGAIN not in environment.levels:
        yield f'no "{base}{AGAIN}" among the environments: without A/A no verdict is printed'


def _base(tree: Mapping[str, Any], factors: tuple[Factor, ...]) -> str:
    """Returns the base; of a fraction the first environment, which compares nothing there."""
    if tree.get("kind") in FRACTIONS:
        return next((one.levels[0] for one in factors if one.name == "environment"), "native")
    return str(tree.get("base", "native"))


def _without_base(source: Source, tree: Mapping[str, Any], environment: Factor | None) -> None:
    """Refuses what needs a base, which a fraction does not have."""
    for key in ("base", "same"):
        if key in tree:
            what = "a fraction has no base: each factor's second level is compared with its first"
            source.fail((key,), what, f"take {key} out")
    several = environment is not None and len(environment.levels) > 1
    if several and tree.get("application", {}).get("texts"):
        what = "the rows of a fraction with two environments have no base whose texts they have"
        source.fail(("application", "texts"), what, "take texts out, or one environment")


def _too_many(source: Source) -> None:
    source.fail(
        ("factors",),
        f"the factors have more than {CELLS_AT_MOST} cells",
        'use fewer levels, or kind = "fractional" to screen',
    )


def _bounded(source: Source, design: Design) -> None:
    """Refuses a design whose rows would not fit into memory or a lifetime."""
    if design.screens:
        return
    cells = math.prod(len(factor.levels) for factor in design.factors)
    if cells > CELLS_AT_MOST:
        _too_many(source)
    rows = (cells - len(design.left_out)) * design.replicates
    if rows > ROWS_AT_MOST:
        source.fail(
            ("replicates",),
            f"the design has {rows} rows, more than {ROWS_AT_MOST}",
            "use fewer replicates",
        )
