"""Factors that are options: their levels put words into the environment's command.

The table [options] of a design says which, so that one environment is measured with and without
them, and needs no entry for each combination:

    [options]
    init = { yes = ["--init"] }
    volumes = { 50 = ["--volume=/usr/share:/mnt/{1..50}:ro"] }

A level without words adds none. A word with `{1..50}` is fifty words, as in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from coracle_lab.design.application import FILLED, PLACEHOLDER, RANKS, words
from coracle_lab.design.check import Source, near
from coracle_lab.design.model import FRACTIONS, Factor

ENVIRONMENT = "environment"
SAME = "again"
"""The factor that changes nothing: what its levels differ by is noise, as `native-again` is."""
RANGE = re.compile(r"\{([0-9]{1,4})\.\.([0-9]{1,4})\}")
WORDS_AT_MOST = 1000

Options = dict[str, dict[str, tuple[str, ...]]]


def options(source: Source, given: Mapping[str, Any], factors: tuple[Factor, ...]) -> Options:
    """Returns the words of each level of each factor of the table, ranges written out."""
    levels = {factor.name: factor.levels for factor in factors if factor.name != ENVIRONMENT}
    found: Options = {}
    for name, table in given.items():
        if name not in levels:
            what = f'unknown factor "{name}" in [options]'
            hint = near(name, list(levels)) if levels else "the design has environments alone"
            source.fail(("options", name), what, hint)
        for level in table:
            if level not in levels[name]:
                place = ("options", name, level)
                hint = near(level, list(levels[name]))
                source.fail(place, f'unknown level "{level}" of {name} in [options]', hint)
        every = {level: _written_out(source, name, table.get(level, ())) for level in levels[name]}
        if len(set(every.values())) < len(every):
            source.fail(
                ("options", name),
                f"two levels of {name} have the same words",
                f'give each its own; a factor that changes nothing is called "{SAME}"',
            )
        found[name] = every
    return found


def _written_out(source: Source, name: str, given: Collection[str]) -> tuple[str, ...]:
    """Returns words with each range as single words."""
    found: list[str] = []
    for word in given:
        ranges = RANGE.findall(word)
        if not ranges:
            found.append(word)
            continue
        first, last = (int(end) for end in ranges[0])
        if len(ranges) > 1 or last < first:
            source.fail(
                ("options", name),
                f'"{word}" is not one word with one range',
                "a range is written {1..50}, the smaller number first",
            )
        found += [RANGE.sub(str(number), word) for number in range(first, last + 1)]
    if len(found) > WORDS_AT_MOST:
        source.fail(
            ("options", name),
            f"{len(found)} words for one level, more than {WORDS_AT_MOST}",
            "use a smaller range",
        )
    return tuple(found)


def check_used(
    source: Source, tree: Mapping[str, Any], kind: str, factors: tuple[Factor, ...]
) -> None:
    """Refuses a factor of a fraction that changes nothing, unless its name says so."""
    application = tree.get("application", {})
    if kind not in FRACTIONS or "command" not in application:
        return
    used = {ENVIRONMENT, RANKS, *tree.get("options", {})}
    for key in FILLED:
        for _, word in words(application.get(key, ()), ()):
            used.update(PLACEHOLDER.findall(word))
    for factor in factors:
        place = ("factors", factor.name)
        if factor.name == SAME and factor.name in used:
            source.fail(place, f'"{SAME}" changes something', "rename it: it stands for A/A")
        if factor.name != SAME and factor.name not in used:
            source.fail(
                place,
                f"{factor.name} changes nothing: neither [options] nor the application has it",
                f'add it to [options], or call it "{SAME}" if that is meant: then it is A/A',
            )
