"""Records as they stand beside a page: one small file, of which the same bytes come out again.

The values of a field stand together, because neighbours are alike: a third less than compressed
lines. The file is JSON, compressed by xz: an object with `order`, the number of the table that
each record is in, and `tables`, each with `fields` (paths into a record) and `columns` (the values
of each field). Lines that are no records as `append` writes them are kept as they are.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from typing import Any

NAME = "records.json.xz"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 4, "pb": 0}]
"""Settings for text: numbers in JSON have no alignment."""
Path = tuple[str | int, ...]


def packed(data: bytes) -> bytes:
    """Returns the packed file of a file of records; equal files give equal bytes."""
    tables: dict[tuple[Path, ...], list[list[Any]]] = {}
    numbers: dict[tuple[Path, ...], int] = {}
    order = []
    *lines, end = data.split(b"\n")
    for line in lines:
        found = dict(_leaves(_record(line), ()))
        columns = tables.setdefault(tuple(found), [[] for _ in found])
        order.append(numbers.setdefault(tuple(found), len(numbers)))
        for column, value in zip(columns, found.values(), strict=True):
            column.append(value)
    told = {
        "order": order,
        "tables": [{"fields": key, "columns": columns} for key, columns in tables.items()],
        "end": end.decode("latin-1"),
    }
    text = json.dumps(told, separators=(",", ":"))
    return lzma.compress(text.encode(), format=lzma.FORMAT_XZ, filters=FILTERS)


def unpacked(data: bytes) -> bytes:
    """Returns the file of records again; raises `ValueError` if it is damaged or cut."""
    try:
        told = json.loads(lzma.decompress(data, format=lzma.FORMAT_XZ))
        rows = [zip(*table["columns"], strict=True) for table in told["tables"]]
        fields = [[tuple(path) for path in table["fields"]] for table in told["tables"]]
        lines = [_line(dict(zip(fields[at], next(rows[at]), strict=True))) for at in told["order"]]
        return b"\n".join([*lines, told["end"].encode("latin-1")])
    except (lzma.LZMAError, KeyError, TypeError, IndexError, StopIteration) as error:
        raise ValueError(f"these are no packed records: {error}") from error


def _record(line: bytes) -> Any:
    """Returns what a line holds, or its text if it could not be written again from that."""
    try:
        value = json.loads(line)
        if isinstance(value, dict) and json.dumps(value, sort_keys=True).encode() == line:
            return value
    except ValueError:
        pass
    return line.decode("latin-1")


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yields the values within a record with their paths."""
    if isinstance(value, Mapping) and value:
        for name in sorted(value):
            yield from _leaves(value[name], (*path, name))
    elif isinstance(value, list) and value:
        for at, one in enumerate(value):
            yield from _leaves(one, (*path, at))
    else:
        yield path, value


def _line(leaves: Mapping[Path, Any]) -> bytes:
    """Returns the line of a record."""
    text = leaves.get(())
    if isinstance(text, str):
        return text.encode("latin-1")
    return json.dumps(_grown(leaves), sort_keys=True).encode()


def _grown(leaves: Mapping[Path, Any]) -> Any:
    """Returns the value that has these values within."""
    if () in leaves:
        return leaves[()]
    inner: dict[str | int, dict[Path, Any]] = {}
    for (first, *rest), value in leaves.items():
        inner.setdefault(first, {})[tuple(rest)] = value
    if all(isinstance(name, int) for name in inner):
        return [_grown(inner[at]) for at in range(len(inner))]
    return {name: _grown(own) for name, own in inner.items()}
