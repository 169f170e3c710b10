"""A piece: the rows that one start of ReFrame runs, and the process that runs them.

`python piece.py FILE REFRAME-ARGUMENTS` reads the piece and starts ReFrame in
the same process. The process dies with the one that started it: a session that is killed leaves
no ReFrame that goes on with its rows.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
START = "start"
"""The level of a nested design in which the rows of one launch differ."""


@dataclass(frozen=True)
class Task:
    """One attempt of one row: what identifies it, its launch line, its request to the timer."""

    row: int
    block: int
    attempt: int
    levels: Mapping[str, str]
    words: tuple[str, ...]
    request: Mapping[str, Any]
    ranks: int = 1
    scratch: str | None = None
    """A directory that is emptied before the row."""
    launches: bool = False
    """The words start the ranks themselves: no launcher stands before them."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What the texts of the output have to be, as far as that is known."""
    starts: int = 1
    """So many rows of one launch are one task: the timer starts the words so often."""

    @property
    def key(self) -> str:
        """A name whose alphabetical order is the order of running: attempts, then rows."""
        return f"{self.attempt:04}-{self.row:08}"

    def start(self, number: int) -> Task:
        """Returns the task of one start of the launch, from 0."""
        if number == 0:
            return self
        levels = {**self.levels, START: str(int(self.levels[START]) + number)}
        return replace(self, row=self.row + number, levels=levels)


@dataclass(frozen=True)
class Piece:
    """Tasks, and what is the same for all of them."""

    design: str
    session: str
    records: str
    kept: str
    success: str | None = None
    responses: Mapping[str, str] = field(default_factory=dict)
    reads: str | None = None
    series: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()

    def write(self, path: Path) -> None:
        """Writes the piece for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> Piece:
        """Returns the piece that a file holds."""
        told = json.loads(path.read_text())
        tasks: Sequence[Mapping[str, Any]] = told.pop("tasks")
        made = (Task(**{**task, "words": tuple(task["words"])}) for task in tasks)
        return Piece(**told, tasks=tuple(made))


current: Piece | None = None
"""The piece of this process: the module `rows`, which ReFrame imports by its file, reads it."""


def main(arguments: Sequence[str]) -> int:
    """Runs a piece in ReFrame; returns ReFrame's exit status."""
    # As a module it has another name than as a program, and so another `current`.
    from coracle_lab.run import piece

    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return 1
    piece.current = Piece.read(Path(arguments[0]))
    from reframe.frontend import cli

    sys.argv = ["reframe", *arguments[1:]]
    status = cli.main()
    return int(status or 0)


if __name__ == "__main__":
    # Started by its path: the package is found wherever the session's own is.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    sys.exit(main(sys.argv[1:]))
