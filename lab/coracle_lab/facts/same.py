"""Compares the files that a program executed natively with those of a container.

Native and container are compared like with like if the program and the libraries that both have
mapped are the same bytes. The comparison is of digests; names only say which files correspond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

Mapped = Sequence[Mapping[str, Any]]
STARTERS = ("nsenter", "srun")
"""Programs that start a row's own: `nsenter` is too brief for each look to see it, and what `srun`
starts is not seen at all."""


@dataclass(frozen=True)
class Likeness:
    """What is said of one environment's files beside those of the base."""

    program: str
    """`same`, `other` (another file under the program's name) or `unseen`."""
    other_libraries: tuple[str, ...] = ()

    def breaks(self, called_equal: str | None) -> bool:
        """Tells whether something differs that a design calls equal: "program" or "files"."""
        if called_equal is None:
            return False
        return self.program == "other" or (called_equal == "files" and bool(self.other_libraries))

    def text(self) -> str:
        """Returns a clause for the verdict; empty if nothing differs."""
        if self.program == "unseen":
            return "the program's file was not seen"
        libraries = ", ".join(self.other_libraries[:3])
        if len(self.other_libraries) > 3:
            libraries += f" and {len(self.other_libraries) - 3} more"
        if self.program == "other":
            return "another program file" + (f", other {libraries}" if libraries else "")
        return f"other {libraries}" if libraries else ""


def stem(path: str) -> str:
    """Returns a library's name without its version: `libm-2.31.so` and `libm.so.6` are `libm`."""
    name = PurePosixPath(path).name.partition(".so")[0]
    head, dash, tail = name.rpartition("-")
    return head if dash and tail[:1].isdigit() else name


def programs(base: Mapped) -> list[Mapping[str, Any]]:
    """Returns the files from which the base's processes were started."""
    started = [file for file in base if file["program"] and file["sha256"]]
    return [file for file in started if PurePosixPath(file["path"]).name not in STARTERS]


def compare(base: Mapped, other: Mapped) -> Likeness | None:
    """Returns what differs; None if the base's program was not seen, so that nothing is known."""
    started = programs(base)
    if not started:
        return None
    digests = {file["sha256"] for file in other if file["sha256"]}
    names = {stem(file["path"]) for file in other}
    missing = [file for file in started if file["sha256"] not in digests]
    if not missing:
        program = "same"
    elif any(stem(file["path"]) in names for file in missing):
        program = "other"
    else:
        program = "unseen"
    different = {
        stem(file["path"])
        for file in base
        if not file["program"]
        and file["sha256"] not in digests
        and file["sha256"]
        and any(stem(file["path"]) == stem(one["path"]) and one["sha256"] for one in other)
    }
    return Likeness(program, tuple(sorted(different)))
