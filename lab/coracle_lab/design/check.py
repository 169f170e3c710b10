"""Checks a design's TOML tree against `schema.json`, with messages for people.

Each error names the key, its line, what is wrong and what there is. Of several errors the one
nearest to the beginning of the file is reported.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any, NoReturn

import jsonschema

from coracle_lab.design.place import line_of
from coracle_lab.errors import LabError


@dataclass(frozen=True)
class Source:
    """The text of a design file and its name; makes errors that say where."""

    text: str
    name: str

    def line(self, path: tuple[str | int, ...]) -> int | None:
        """Returns the line of a key, or None for what is not in the file."""
        return line_of(self.text, path)

    def where(self, path: tuple[str | int, ...]) -> str:
        """Returns "NAME, line 3" for a key, or "NAME" for what is not in the file."""
        line = self.line(path)
        return self.name if line is None else f"{self.name}, line {line}"

    def fail(self, path: tuple[str | int, ...], what: str, hint: str | None = None) -> NoReturn:
        """Raises the error about the key at `path`."""
        raise LabError(f"{self.where(path)}: {what}", hint)


@cache
def schema() -> dict[str, Any]:
    """Returns the JSON schema of design files."""
    text = resources.files("coracle_lab.design").joinpath("schema.json").read_text("utf-8")
    tree: dict[str, Any] = json.loads(text)
    return tree


def spelled(path: tuple[str | int, ...]) -> str:
    """Returns a path of keys as TOML's users write it: "precision.level", "where[2].reason"."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the design"


def listed(names: list[str]) -> str:
    """Returns "a, b and c", each in quotes."""
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def near(name: str, names: list[str]) -> str:
    """Returns a hint that lists `names` and says which one `name` may have meant."""
    close = get_close_matches(name, names, n=1, cutoff=0.4)
    return (f'did you mean "{close[0]}"? ' if close else "") + f"there is {listed(names)}"


def check(source: Source, tree: dict[str, Any], wanted: dict[str, Any] | None = None) -> None:
    """Raises `LabError` unless the tree is what the schema describes: that of designs, if no
    other one is given."""
    validator = jsonschema.Draft202012Validator(schema() if wanted is None else wanted)
    errors = list(validator.iter_errors(tree))
    if errors:
        raise min((_message(source, error) for error in errors), key=lambda pair: pair[0])[1]


def _message(source: Source, error: Any) -> tuple[int, LabError]:
    """Returns the line and the error for one violation of the schema."""
    path = tuple(error.absolute_path)
    path, what, hint = _explained(path, error)
    # What is missing has no line, and is often the key that another line misspells.
    line = source.line(path) if error.validator != "required" else None
    return line or sys.maxsize, LabError(f"{source.where(path)}: {what}", hint)


def _explained(path: tuple[str | int, ...], error: Any) -> tuple[tuple[str | int, ...], str, str]:
    """Returns the place, what is wrong and a hint, for one violation of the schema."""
    about = error.schema.get("description", "")
    hint = f"{spelled(path)}: {about}" if about else "coracle-lab's schema.json lists every key"
    key = spelled(path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        extra = next(name for name in error.instance if name not in known)
        return (*path, extra), f'unknown key "{extra}" in {key}', near(extra, known)
    if error.validator == "required":
        missing = re.sub("'(.*)' is a required.*", r"\1", error.message)
        described = error.schema["properties"][missing].get("description", "")
        example = described or f"{missing} = {error.schema['properties'][missing].get('type')}"
        return path, f'{key} has no "{missing}"', f"add {missing}: {example}"
    if error.validator == "enum":
        choices = [str(choice) for choice in error.validator_value]
        return path, f"{key} = {error.instance!r} is unknown", near(str(error.instance), choices)
    if "propertyNames" in error.absolute_schema_path:
        return (
            (*path, error.instance),
            f'"{error.instance}" is not a name for a factor',
            "a name begins with a letter and has letters, digits and underscores only",
        )
    return path, f"{key}: {_violated(error)}", hint


def _violated(error: Any) -> str:
    """Returns what is wrong with a value, without jsonschema's quoting of whole tables."""
    value, wanted = error.instance, error.validator_value
    if error.validator in ("type", "anyOf"):
        kinds = wanted if isinstance(wanted, str | list) else "text, number or list"
        kinds = kinds if isinstance(kinds, str) else " or ".join(kinds)
        return f"{value!r} is not of the type that belongs here ({kinds})"
    words = {
        "minimum": f"{value!r} is less than {wanted}",
        "maximum": f"{value!r} is more than {wanted}",
        "exclusiveMinimum": f"{value!r} is not more than {wanted}",
        "minItems": "the list is empty",
        "minLength": f"{value!r} is too short",
        "minProperties": "the table is empty",
        "maxProperties": f"only one of {listed(sorted(value))} can be given"
        if value and isinstance(value, dict)
        else "too many",
        "uniqueItems": "the same thing is listed twice",
        "pattern": f"{value!r} is not of the form {wanted}",
    }
    return words.get(error.validator, str(error.message))
