"""Two-level fractions: fractional factorial and Plackett-Burman designs, made by `pydoe`.

They screen which of many options costs: `n` two-level factors in far fewer than 2^n cells. The
price is that effects are mixed up with interactions; `aliases` lists which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from typing import Any

from coracle_lab.design.check import Source
from coracle_lab.design.model import FRACTIONS, Design, Factor
from coracle_lab.errors import LabError

FACTORS_AT_MOST = 26


@cache
def _pydoe() -> Any:
    """Imports `pydoe`, which only these two kinds need."""
    try:
        import pydoe
    except ImportError as error:
        raise LabError(
            "fractional and Plackett-Burman designs need the package pydoe",
            "pip install 'coracle-lab[report]', or expand the design elsewhere: its CSV is enough",
        ) from error
    return pydoe


def check_fraction(
    source: Source, tree: Mapping[str, Any], kind: str, factors: tuple[Factor, ...]
) -> str | None:
    """Checks the factors of a fraction; returns the generator of a fractional design.

    An environment alone does not count as a factor: all rows have it.
    """
    if kind not in FRACTIONS:
        return None
    factors = tuple(one for one in factors if one.name != "environment" or len(one.levels) > 1)
    for factor in factors:
        if len(factor.levels) != 2:
            source.fail(
                ("factors", factor.name),
                f"{factor.name} has {len(factor.levels)} levels, and a {kind} design takes two",
                'use two levels, or kind = "blocks"',
            )
    if not 2 <= len(factors) <= FACTORS_AT_MOST:
        source.fail(
            ("factors",),
            f"a {kind} design takes 2 to {FACTORS_AT_MOST} factors, and this one has"
            f" {len(factors)}",
            'use kind = "blocks"',
        )
    if kind == "plackett-burman":
        return None
    given = tree["fractional"]
    if "generator" not in given:
        return None
    return _checked(source, given["generator"].lower(), len(factors))


def _checked(source: Source, generator: str, count: int) -> str:
    """Returns a generator of the user's, with one space between words."""
    path = ("fractional", "generator")
    words = generator.split()
    if len(words) != count:
        source.fail(
            path,
            f"the generator has {len(words)} words, and there are {count} factors",
            'give one word a factor, for example "a b c abc"',
        )
    basic = {word for word in words if re.fullmatch("[a-z]", word)}
    for word in words:
        letters = word.lstrip("+-")
        if not re.fullmatch("[+-]?[a-z]+", word) or not set(letters) <= basic:
            source.fail(
                path,
                f'"{word}" is not a product of the letters {" ".join(sorted(basic))}',
                "single letters are basic factors, longer words products of them",
            )
        if len(set(letters)) != len(letters) or words.count(word) > 1:
            source.fail(path, f'"{word}" repeats itself', "each word and letter counts once")
    unsigned = [frozenset(word.lstrip("+-")) for word in words]
    if len(set(unsigned)) != len(unsigned):
        source.fail(path, "two factors have the same product", "they could not be told apart")
    return " ".join(words)


def matrix(design: Design) -> list[tuple[int, ...]]:
    """Returns the fraction, one tuple of -1 and +1 (first and second level) for each cell."""
    count = len(design.varied)
    pydoe = _pydoe()
    try:
        if design.kind == "plackett-burman":
            found = pydoe.pbdesign(count)
        elif design.generator is not None:
            found = pydoe.fracfact(design.generator)
        else:
            found = pydoe.fracfact_by_res(count, design.resolution)
    except ValueError as error:
        raise LabError(
            f"{design.name}: no {design.kind} design for {count} factors: {error}",
            "use fewer factors, or a lower resolution",
        ) from error
    return [tuple(int(sign) for sign in row) for row in found.tolist()]


def fraction_cells(design: Design) -> list[dict[str, str]]:
    """Returns the cells of a fraction, in the order of its matrix."""
    found = []
    for signs in matrix(design):
        sign = dict(zip((factor.name for factor in design.varied), signs, strict=True))
        found.append(
            {f.name: f.levels[1 if sign.get(f.name, -1) > 0 else 0] for f in design.factors}
        )
    return found


def aliases(design: Design) -> list[str]:
    """Lists the two-factor interactions that each main effect of a fraction is mixed up with.

    "init = +0.33 volumes*layers" says: a third of that interaction, if there is one, shows as an
    effect of `init`. Other kinds have no aliases.
    """
    if design.kind not in FRACTIONS:
        return []
    rows = matrix(design)
    columns = list(zip(*rows, strict=True))
    names = [factor.name for factor in design.varied]
    found = []
    for main, column in enumerate(columns):
        for one, other in combinations(range(len(names)), 2):
            if main in (one, other):
                continue
            share = sum(
                a * b * c for a, b, c in zip(column, columns[one], columns[other], strict=True)
            ) / len(rows)
            if share:
                found.append(f"{names[main]} = {share:+.2g} {names[one]}*{names[other]}")
    return found
