"""Writes TOML: what the lab puts into the text of a design."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from coracle_lab.errors import LabError


def quoted(word: str) -> str:
    """Returns a word as a string of TOML."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise LabError(f"{word!r} is not UTF-8", "records hold text only") from error
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")


def array(words: Sequence[str]) -> str:
    """Returns words as an array of TOML."""
    return value(list(words))


def value(given: Any) -> str:
    """Returns a value on one line."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, str):
        return quoted(given)
    if isinstance(given, int | float):
        return repr(given)
    if isinstance(given, Mapping):
        inner = ", ".join(lines(given))
        return f"{{ {inner} }}" if inner else "{}"
    return "[" + ", ".join(value(one) for one in given) + "]"


def lines(table: Mapping[str, Any]) -> list[str]:
    """Returns the lines of a table, without its header."""
    return [f"{key if _is_bare(key) else quoted(key)} = {value(v)}" for key, v in table.items()]


def document(tree: Mapping[str, Any]) -> str:
    """Returns the text of a whole document."""
    plain = {key: one for key, one in tree.items() if not isinstance(one, Mapping)}
    parts = ["\n".join(lines(plain))]
    for key, one in tree.items():
        if isinstance(one, Mapping):
            parts.append("\n".join([f"[{key}]", *lines(one)]))
    return "\n\n".join(parts) + "\n"


def _is_bare(key: str) -> bool:
    return key.isascii() and key.replace("_", "").replace("-", "").isalnum()
