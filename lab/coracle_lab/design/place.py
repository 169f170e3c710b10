"""Finds the line of a key in a TOML text, for messages.

`tomllib` returns values without places. This scanner follows table headers, `key = value` lines,
brackets and strings far enough to say on which line a key begins. A key inside an inline table or
an array has the line of the key that holds it. It is used for texts that `tomllib` has accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Path = tuple[str | int, ...]

HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
BARE = re.compile(r"""\s*([A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*""")
STRING = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*')


def _dotted(text: str) -> tuple[list[str], int]:
    """Reads a dotted key at the beginning of `text`; returns its parts and its length."""
    parts: list[str] = []
    at = 0
    while match := BARE.match(text, at):
        parts.append(match.group(1).strip("\"'"))
        at = match.end()
        if at >= len(text) or text[at] != ".":
            break
        at += 1
    return parts, at


class _Scanner:
    """Follows a TOML text line by line: the table, open brackets, an open long string."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self.headers: list[tuple[Path, int]] = []
        self.table: Path = ()
        self.count: dict[Path, int] = {}
        self.depth = 0
        self.quote: str | None = None

    def feed(self, number: int, line: str) -> None:
        if self.quote is None and self.depth == 0:
            line = self._begin(number, line)
        self._skip(line)

    def _begin(self, number: int, line: str) -> str:
        """Records a header or a key that begins on this line; returns what follows it."""
        header = HEADER.match(line)
        if header:
            path = self._absolute(_dotted(header.group(2))[0])
            self.headers.append((path, number))
            if header.group(1) == "[[":
                index = self.count.get(path, 0)
                self.count[path] = index + 1
                self.lines.setdefault(path, number)
                path = (*path, index)
            self.table = path
            self.lines.setdefault(path, number)
            return ""
        parts, end = _dotted(line)
        if parts and line[end : end + 1] == "=":
            path = self.table
            for part in parts:
                path = (*path, part)
                self.lines.setdefault(path, number)
            return line[end + 1 :]
        return line

    def _absolute(self, parts: Sequence[str]) -> Path:
        """Returns the path of a header: a table below an array belongs to its last element."""
        path: Path = ()
        for part in parts:
            if path in self.count:
                path = (*path, self.count[path] - 1)
            path = (*path, part)
        return path

    def _skip(self, line: str) -> None:
        """Counts brackets outside strings and comments; notes a long string that stays open."""
        if self.quote is not None:
            end = line.find(self.quote)
            if end < 0:
                return
            line = line[end + 3 :]
            self.quote = None
        while match := STRING.search(line):
            self._brackets(line[: match.start()])
            found = match.group()
            line = line[match.end() :]
            if found.startswith("#"):
                return
            if found in ('"""', "'''"):
                end = line.find(found)
                if end < 0:
                    self.quote = found
                    return
                line = line[end + 3 :]
        self._brackets(line)

    def _brackets(self, text: str) -> None:
        self.depth += sum(text.count(c) for c in "[{") - sum(text.count(c) for c in "]}")


def _scanned(text: str) -> _Scanner:
    scanner = _Scanner()
    for number, line in enumerate(text.split("\n"), start=1):
        scanner.feed(number, line.rstrip("\r"))
    return scanner


def headers(text: str) -> list[tuple[Path, int]]:
    """Returns the tables' headers in their order, each with its line (from 1)."""
    return _scanned(text).headers


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """Returns the line (from 1) of the key at `path`, or of the nearest key that holds it."""
    scanner = _scanned(text)
    wanted = tuple(path)
    while wanted:
        if wanted in scanner.lines:
            return scanner.lines[wanted]
        wanted = wanted[:-1]
    return None
