"""The terminal's table of a fraction: factors by the size of their effect, and the verdicts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from coracle_lab.cli import table
from coracle_lab.report import numbers, screened
from coracle_lab.report.screened import Screened
from coracle_lab.run import records
from coracle_lab.run.records import Record
from coracle_lab.run.store import Store

HEAD = ("factor: first, second level", "ratio", "95 % interval", "costs (95 %)", "verdict")
WORDS = (0, 4)
"""Columns of words; the others are numbers."""


def show(store: Store, every: Sequence[Record], responses: Sequence[str]) -> bool:
    """Prints the effects on some responses; returns whether the guard trusts them."""
    try:
        found = screened.judge(store, records.last_attempts(every), responses)
        earlier = screened.judge(store, records.first_attempts(every), responses)
    except ImportError as error:
        print(f"no table: {error}; install coracle-lab[report] here or where the records go")
        return True
    for one in found:
        if len(found) > 1:
            print(one.response)
        print("\n".join(lines(one)))
        print(one.screen.guard.text)
        for note in one.screen.notes:
            print(f"note: {note}")
        if (p := one.screen.interactions_p) is not None and p < 0.05:
            print(f"note: some factors act together (p {p:.2g}): ratios are means over the others")
    again = records.repeated(every)
    if again:
        other = "; ".join(text for _, _, text in screened.changed(earlier, found))
        words = other or "each verdict is of the same kind"
        print(f"repeated blocks: {', '.join(map(str, again))}; with their first attempts: {words}")
    if not screened.trusted(found):
        print("no verdict is trusted", file=sys.stderr)
    return screened.trusted(found)


def lines(one: Screened) -> list[str]:
    """Returns the table of one response."""
    rows = [HEAD]
    for effect in one.screen.effects:
        limits = numbers.at(effect.ratio_intervals, 0.95)
        ends = None if one.rate else numbers.at(effect.difference_intervals, 0.95)
        cost = "" if ends is None else table.span(ends.low, ends.high, one.response)
        rows.append((
            one.levels(effect),
            "" if effect.ratio is None else f"{effect.ratio:.4f}",
            "" if limits is None else f"{limits.low:.4f} to {limits.high:.4f}",
            cost,
            one.verdict(effect),
        ))  # fmt: skip
    return table.lines(rows, WORDS)


def plan(store: Store, made: Sequence[Record], names: Sequence[str]) -> None:
    """Prints how small an effect a fraction's blocks will show, from the records so far."""
    try:
        found = screened.judge(store, records.last_attempts(made), names)
    except ImportError as error:
        print(f"no smallest effect: {error}; install coracle-lab[report]")
        return
    planned = len({row.block for row in store.rows})
    for one in found:
        screen = one.screen
        if screen.smallest is None or screen.sd is None:
            print(f"{one.response}: {screen.guard.text}")
            continue
        half = screen.smallest * (screen.blocks / planned) ** 0.5
        print(
            f"{one.response}: {planned} blocks show effects to about ±{half * 100:.1f} % (95 %);"
            f" {screen.blocks} so far show ±{screen.smallest * 100:.1f} %"
        )
