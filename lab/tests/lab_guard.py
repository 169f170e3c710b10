"""Fails a test that starts a program and is not marked `real`.

Python tells of each start by an audit event. Tests without the mark run on machines that have
Python's packages and nothing else, so they may start Python, what every POSIX system has, and files
that they have written themselves.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

EVENTS = {"subprocess.Popen": 0, "os.posix_spawn": 0, "os.exec": 0, "os.system": 0}
"""Events of a start (PEP 578), and which of their arguments is the program."""
OWN = {Path(path).resolve() for path in (sys.executable, getattr(sys, "_base_executable", ""))}
BASE = {"cat", "env", "false", "ls", "sh", "sleep", "true"}
"""Utilities that POSIX has."""
WRITTEN = Path(tempfile.gettempdir()).resolve()
"""Where the files of tests are."""


def allowed(program: str) -> bool:
    """Tells whether a test without the mark may start a program."""
    path = Path(program)
    if path.name == program or path.parent in (Path("/bin"), Path("/usr/bin")):
        return path.name in BASE or (path.exists() and path.resolve() in OWN)
    return path.resolve() in OWN or WRITTEN in path.resolve().parents or not path.exists()


class StartedError(BaseException):
    """A program was started. No `except Exception` of what is tested takes it."""


class Guard:
    """An audit hook. It cannot be removed, so it is switched on for each test."""

    def __init__(self) -> None:
        """Makes a hook that forbids nothing yet."""
        self.on = False
        self.started: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raises at a start; it is kept as well, for those that catch everything."""
        if not self.on or event not in EVENTS:
            return
        program = os.fsdecode(arguments[EVENTS[event]])
        if event != "os.system" and allowed(program):
            return
        self.started.append(program)
        raise StartedError(f"{program} was started by a test that is not marked `real`")

    def told(self) -> str | None:
        """Returns what a test has started, and forgets it."""
        programs, self.started = self.started, []
        if not programs:
            return None
        return (
            f"the test has started {', '.join(programs)}: mark it `real`, or start nothing but"
            " Python (lab/README.md, Tests)"
        )
