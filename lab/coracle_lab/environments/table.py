"""Reads tables of environments: TOML files with one `[[environment]]` for each.

The form is documented in the package's docstring. Errors name the file, the entry and the key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from coracle_lab.environments.template import SINGLE, Item, check, placeholders
from coracle_lab.errors import LabError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Takes = Literal["image", "tree", "host"]
BUILTIN = Path(__file__).with_name("builtin.toml")
VALUE = "{value}"


@dataclass(frozen=True)
class Entry:
    """One entry of a table. Its name may hold `{value}`, and then it is several environments."""

    name: str
    text: str
    takes: Takes
    command: Sequence[Item]
    place: str
    program: str | None = None
    root: bool = False
    all_gpus: bool = False
    version: Sequence[Item] = ()
    probe: Sequence[Item] = ()
    prepare: Sequence[Sequence[Item]] = ()
    clean: Sequence[Sequence[Item]] = ()
    values: Sequence[str] = ()
    numbers: bool = False
    least: float = 0.0
    one_rank: str | None = None
    launches: bool = False

    def names(self) -> list[str]:
        """Returns the names of the environments; of those with a number, examples."""
        if VALUE not in self.name:
            return [self.name]
        return [self.name.replace(VALUE, value) for value in self.values]

    def value(self, name: str) -> str | None:
        """Returns the value that a name has in the place of `{value}`, or None if none fits."""
        before, _, after = self.name.partition(VALUE)
        if not (name.startswith(before) and name.endswith(after)):
            return None
        value = name[len(before) : len(name) - len(after)]
        if value in self.values:
            return value
        if not self.numbers or not _is_number(value):
            return None
        if float(value) < self.least:
            raise LabError(f"{name}: {value} is less than {self.least:g}, the least possible")
        return value


_LISTS = ("version", "probe", "command")
_LISTS_OF_LISTS = ("prepare", "clean")
_TEXTS = ("name", "text", "program", "one_rank")
_REQUIRED = ("name", "text", "takes", "command")
_SWITCHES = ("root", "numbers", "all_gpus", "launches")
_KEYS = (*_TEXTS, "takes", "values", "least", *_SWITCHES, *_LISTS, *_LISTS_OF_LISTS)


def read(path: Path) -> list[Entry]:
    """Returns the entries of a file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {error}") from error
    unknown = set(document) - {"environment"}
    if unknown:
        raise LabError(
            f"{path}: unknown key {min(unknown)!r}", "each entry begins with [[environment]]"
        )
    entries = document.get("environment", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise LabError(
            f"{path}: 'environment' is not a list of tables",
            "each entry begins with [[environment]], with two brackets",
        )
    return [_entry(entry, str(path), number) for number, entry in enumerate(entries, 1)]


def _entry(entry: Mapping[str, Any], path: str, number: int) -> Entry:
    name = entry.get("name")
    place = f"{path}: environment {name if isinstance(name, str) and name else number}"
    unknown = set(entry) - set(_KEYS)
    if unknown:
        raise LabError(f"{place}: unknown key {min(unknown)!r}", f"there are: {', '.join(_KEYS)}")
    for key in _REQUIRED:
        if key not in entry:
            raise LabError(f"{place}: {key!r} is missing")
    for key in entry:
        _check_key(key, entry[key], place)
    made = Entry(place=place, **entry)
    _check_values(made)
    if made.program is None and "program" in _used(made):
        raise LabError(f"{place}: {{program}} is used and 'program' is missing")
    return made


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


# What each key must be, templates left out.
_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(_TEXTS, (_is_text, "a text")),
    **dict.fromkeys(_SWITCHES, (lambda value: isinstance(value, bool), "true or false")),
    "takes": (lambda value: value in get_args(Takes), f"one of {', '.join(get_args(Takes))}"),
    "least": (
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
        "a number",
    ),
    "values": (
        lambda value: isinstance(value, list) and all(_is_text(one) for one in value),
        "a list of texts",
    ),
}


def _check_key(key: str, value: object, place: str) -> None:
    if key not in _KINDS:
        _check_template(key, value, f"{place}: {key}")
        return
    fits, kind = _KINDS[key]
    if not fits(value):
        raise LabError(f"{place}: {key} must be {kind}, and is {value!r}")


def _check_template(key: str, value: object, where: str) -> None:
    if key in _LISTS_OF_LISTS:
        if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
            raise LabError(f"{where} is not a list of commands, each a list of words")
        for command in value:
            _check_template("", command, where)
        return
    if not isinstance(value, list) or not value or not _all_words(value):
        raise LabError(f"{where} is not a list of words and of groups of words")
    # A command that is prepared or cleaned is a group itself, so that it can be repeated.
    check([cast("Item", value)] if key == "" else value, where)


def _all_words(items: list[object]) -> bool:
    return all(
        isinstance(item, str) or (isinstance(item, list) and item and _all_words(item))
        for item in items
    )


def _check_values(entry: Entry) -> None:
    several = VALUE in entry.name
    if several and not entry.values:
        raise LabError(f"{entry.place}: the name has {VALUE} and 'values' is missing")
    if not several and (entry.values or entry.numbers or entry.least):
        raise LabError(
            f"{entry.place}: 'values', 'numbers' and 'least' need {VALUE} in the name",
            f'for example name = "{entry.name}:{VALUE}"',
        )
    if entry.numbers and not all(_is_number(value) for value in entry.values):
        raise LabError(f"{entry.place}: 'numbers' is true and not all values are numbers")


def _used(entry: Entry) -> set[str]:
    templates = (entry.command, entry.version, entry.probe, entry.prepare, entry.clean)
    return set().union(*(placeholders(template) for template in templates)) & SINGLE


def _is_number(text: str) -> bool:
    whole, _, part = text.partition(".")
    return whole.isdecimal() and whole.isascii() and (part == "" or part.isdecimal())
