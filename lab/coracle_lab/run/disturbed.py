"""The rule by which disturbed blocks are repeated: it is declared before anything is measured.

A block is disturbed if one of its sentinels (before or after one of its rows) took longer than
the lower quartile of the session's sentinels by more than a fraction, 10 % unless the design
says otherwise. Disturbed blocks are repeated once, whole and in the same order, after all
others, the most disturbed first; at most a quarter of the blocks, so that a machine that is
always disturbed does not run for ever. The rule looks at the sentinel only, never at a result.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from coracle_lab.run.records import Record

SHARE = 0.25
"""At most this part of the blocks is repeated."""


def lower_quartile(records: Sequence[Record]) -> float:
    """Returns the lower quartile of all sentinels of some records, or NaN."""
    names = ("sentinel_before_s", "sentinel_after_s")
    every = (record.fields.get(name) for record in records for name in names)
    times = [float(time) for time in every if time is not None]
    return statistics.quantiles(times, n=4)[0] if len(times) >= 2 else math.nan


def excesses(records: Sequence[Record]) -> dict[int, float]:
    """Returns, for each block, by which fraction its worst sentinel exceeds its session's lower
    quartile."""
    sessions = {record.session for record in records}
    base = {s: lower_quartile([r for r in records if r.session == s]) for s in sessions}
    result: dict[int, float] = {}
    for record in records:
        excess = record.sentinel_s() / base[record.session] - 1
        if record.block and not math.isnan(excess):
            result[record.block] = max(excess, result.get(record.block, excess))
    return result


def disturbed(records: Sequence[Record], above: float) -> list[int]:
    """Returns all blocks whose first attempts were disturbed, the most disturbed first."""
    first = [record for record in records if record.attempt == 1]
    found = excesses(first)
    return sorted((b for b in found if found[b] > above), key=lambda b: (-found[b], b))


def to_repeat(records: Sequence[Record], blocks: int, above: float) -> list[int]:
    """Returns the blocks that the rule has repeated, in the order of their repetition.

    Blocks whose repetition has begun come first, so that a session that was cut off goes on with
    them, and they count. A design of one block has nothing to repeat.
    """
    if blocks < 2:
        return []
    begun = list(dict.fromkeys(r.block for r in records if r.attempt > 1 and r.block))
    new = [block for block in disturbed(records, above) if block not in begun]
    return begun + new[: max(0, math.ceil(blocks * SHARE) - len(begun))]
