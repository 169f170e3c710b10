"""Expands a `Design` into its rows, in run order.

- *blocks*: block `b` has every cell once, in random order. Each block's order depends on the seed
  and on `b` alone, so more blocks leave the earlier ones as they are.
- *completely-randomised*: all replicates of all cells in one random order, in one block.
- *fractional*, *plackett-burman*: as blocks, with the cells of the fraction.
- *nested*: each session has `launches` blocks; a block launches every cell once, in random order;
  a launch is `starts` rows one after the other. Blocks are numbered through all sessions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict

from coracle_lab.design.fractions import fraction_cells
from coracle_lab.design.model import ABOVE, Application, Design, Row
from coracle_lab.design.order import VERSION, permuted
from coracle_lab.design.parse import full_factorial
from coracle_lab.errors import LabError


def standard(design: Design) -> list[tuple[int, dict[str, str]]]:
    """Returns the design's cells with their numbers in standard order (from 1).

    A cell that is left out keeps its number to itself.
    """
    if design.screens:
        return list(enumerate(fraction_cells(design), start=1))
    gone = {tuple(cell.levels.values()) for cell in design.left_out}
    every = enumerate(full_factorial(design.factors), start=1)
    return [(number, cell) for number, cell in every if tuple(cell.values()) not in gone]


def cells(design: Design) -> list[Mapping[str, str]]:
    """Returns the cells that the design measures, in standard order."""
    return [cell for _, cell in standard(design)]


def blocks(design: Design) -> int:
    """Returns the number of blocks; with a precision it is the most."""
    if design.kind == "completely-randomised":
        return 1
    if design.nested is not None:
        return design.nested.sessions * design.nested.launches
    return design.replicates


def block_rows(design: Design, block: int) -> list[Row]:
    """Returns the rows of one block (from 1), numbered as in the whole design."""
    last = blocks(design)
    if not 1 <= block <= last:
        raise LabError(f"{design.name}: there is no block {block}", f"blocks go from 1 to {last}")
    return _block(design, block, dict(standard(design)))


def expand(design: Design) -> list[Row]:
    """Returns every row of the design in run order; equal designs have equal rows."""
    cell_of = dict(standard(design))
    return [row for b in range(1, blocks(design) + 1) for row in _block(design, b, cell_of)]


def _block(design: Design, block: int, cell_of: Mapping[int, Mapping[str, str]]) -> list[Row]:
    numbers = list(cell_of)
    if design.kind == "completely-randomised":
        runs = len(numbers) * design.replicates
        order = permuted(list(range(runs)), design.seed, "all")
        chosen = [cell_of[numbers[position % len(numbers)]] for position in order]
        return [Row(at, 1, levels) for at, levels in enumerate(chosen, start=1)]
    order = permuted(numbers, design.seed, f"block {block}")
    if design.nested is None:
        first = (block - 1) * len(order) + 1
        return [Row(first + at, block, cell_of[number]) for at, number in enumerate(order)]
    session, launch = divmod(block - 1, design.nested.launches)
    starts = design.nested.starts
    place = {"session": str(session + 1), "launch": str(launch + 1)}
    first = (block - 1) * len(order) * starts + 1
    return [
        Row(first + at * starts + s, block, {**cell_of[number], **place, "start": str(s + 1)})
        for at, number in enumerate(order)
        for s in range(starts)
    ]


def remaining(rows: list[Row], done: Collection[int]) -> list[Row]:
    """Returns the rows that are still to be run, in run order; `done` holds row numbers."""
    known = {row.number for row in rows}
    strange = sorted(set(done) - known)
    if strange:
        raise LabError(
            f"row {strange[0]} was measured, but the design has {len(rows)} rows",
            "these records belong to another design; use another directory for the records",
        )
    return [row for row in rows if row.number not in done]


LATER = ("source_sha256", "build", "build_in", "launcher", "parameters", "reads", "series", "texts")
"""Fields of an application that are in the digest if they are not at their defaults."""
BESIDE = ("text", "source", "host", "rates")
"""Fields of an application that are never in the digest."""


def _what_runs(application: Application) -> dict[str, object]:
    """Returns what of an application decides its rows."""
    default = asdict(Application(command=application.command, name=application.name))
    return {
        name: value
        for name, value in asdict(application).items()
        if name not in BESIDE and (name not in LATER or value != default[name])
    }


def digest(design: Design) -> str:
    """Returns the SHA-256 of all that decides which rows are run, and what a row runs.

    Kind, seed, factors, what is left out, replicates or precision, and the application are in it.
    What only judges the results (margin, base, responses), labels, texts, recipes of images and
    the place of the source are not. What a design leaves at a default that came with a later
    version is not either, so that earlier designs keep their digests.
    """
    decides = {
        "order": VERSION,
        "kind": design.kind,
        "seed": design.seed,
        "factors": [[factor.name, list(factor.levels)] for factor in design.factors],
        "left_out": [dict(cell.levels) for cell in design.left_out],
        "replicates": design.replicates,
        "precision": asdict(design.precision) if design.precision else None,
        "nested": asdict(design.nested) if design.nested else None,
        "generator": design.generator,
        "resolution": design.resolution,
        "application": _what_runs(design.application) if design.application else None,
        "transport": design.transport,
        "pinning": design.pinning,
    }
    decides |= {
        name: value
        for name, value in (
            ("same", design.same),
            ("sentinel", None if design.sentinel_above == ABOVE else design.sentinel_above),
            ("nodes", asdict(design.nodes) if design.nodes else None),
            ("options", design.options or None),
        )
        if value is not None
    }
    text = json.dumps(decides, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
