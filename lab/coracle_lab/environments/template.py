"""Fills placeholders into the words of a command.

A template is a list of words. A word may hold placeholders, as in `--root={tree}`; `{{` and `}}`
stand for braces. `{tree?}` adds no text and is only the condition of a group, and `{tree|}` is
empty if it has no value. A list within the list is a group:

- a group whose placeholder has no value is left out (`["--gpus", "{gpus}"]`);
- a group with a placeholder of a family is repeated for each of its members
  (`["-v", "{volume}"]`);
- a group that has no placeholder itself is left out if all groups in it are empty
  (`["env", ["{variable}"]]`).

Outside of groups, a placeholder without a value is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from coracle_lab.errors import LabError

Item: TypeAlias = "str | Sequence[Item]"

SINGLE = frozenset(
    {
        "program",
        "value",
        "image",
        "rootfs",
        "tree",
        "scratch",
        "cache",
        "python",
        "here",
        "workdir",
        "gpus",
        "uid",
        "gid",
        "user",
        "id",
        "probe_tree",
        "ranks",
    }
)
"""Placeholders that have one value or none."""

FAMILIES: Mapping[str, str] = {
    "volume": "volumes",
    "source": "writable",
    "target": "writable",
    "ro_source": "readonly",
    "ro_target": "readonly",
    "variable": "variables",
    "passed": "passed",
    "option": "options",
}
"""Placeholders that stand for each member of a family, and the family."""

WORDS = "{words}"
"""The word of a command that the program and its arguments take the place of."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}?|]*)([?|]?)\}|[{}]")
_CONDITION = re.compile(r"\{[^{}?|]*\?\}")


@dataclass(frozen=True)
class Values:
    """What the placeholders stand for."""

    single: Mapping[str, str | None]
    families: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)

    def with_member(self, member: Mapping[str, str]) -> Values:
        """Returns the values within a group that is repeated, for one member of its family."""
        return Values({**self.single, **member}, self.families)


def placeholders(item: Item) -> set[str]:
    """Returns the names of all placeholders in a word or a group."""
    if isinstance(item, str):
        return {match[1] for match in _TOKEN.finditer(item) if match[1] is not None}
    return set().union(*(placeholders(part) for part in item))


def check(items: Sequence[Item], place: str) -> None:
    """Raises an error if a template has an unknown placeholder or a group of two families."""
    for item in items:
        if isinstance(item, str):
            _check_word(item, place)
            continue
        families = {FAMILIES[name] for name in _direct(item) if name in FAMILIES}
        if len(families) > 1:
            named = " and ".join(sorted(families))
            raise LabError(f"{place}: one group cannot be repeated for {named}")
        check(item, place)


def _check_word(word: str, place: str) -> None:
    for match in _TOKEN.finditer(word):
        if match[0] in "{}":
            raise LabError(
                f"{place}: single {match[0]!r} in {word!r}", "write a brace of the text twice"
            )
    if word == WORDS:
        return
    unknown = placeholders(word) - SINGLE - set(FAMILIES)
    if unknown:
        known = ", ".join(sorted(SINGLE | set(FAMILIES)))
        raise LabError(f"{place}: unknown placeholder {{{min(unknown)}}}", f"there are: {known}")


def fill(items: Sequence[Item], values: Values) -> list[str]:
    """Returns the words of a template."""
    words: list[str] = []
    for item in items:
        if not isinstance(item, str):
            words += fill_group(item, values)
        elif not _CONDITION.fullmatch(item):
            words.append(_word(item, values))
    return words


def fill_group(group: Sequence[Item], values: Values) -> list[str]:
    """Returns the words of a group, which are none if it is left out."""
    return [word for words in fill_each(group, values) for word in words]


def fill_each(group: Sequence[Item], values: Values) -> list[list[str]]:
    """Returns the words of a group, one list for each time that it is repeated."""
    direct = _direct(group)
    families = {FAMILIES[name] for name in direct if name in FAMILIES and name not in values.single}
    if families:
        members = values.families.get(families.pop(), ())
        return [fill(group, values.with_member(member)) for member in members]
    if any(values.single.get(name) is None for name in direct):
        return []
    inner = [fill_group(part, values) for part in group if not isinstance(part, str)]
    if inner and not direct and not any(inner):
        return []
    return [fill(group, values)]


def _direct(group: Sequence[Item]) -> set[str]:
    """The placeholders that a group depends on: those in its words, not in the groups in it."""
    words = [part for part in group if isinstance(part, str) and part != WORDS]
    found = (match for word in words for match in _TOKEN.finditer(word))
    return {match[1] for match in found if match[1] is not None and match[2] != "|"}


def _word(word: str, values: Values) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        found = values.single.get(match[1])
        if found is None and match[2] == "|":
            return ""
        if found is None:
            raise LabError(f"{match[1]} is needed and not given (in {word!r})")
        return "" if match[2] == "?" else found

    return word if word == WORDS else _TOKEN.sub(value, word)
