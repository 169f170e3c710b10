# ruff: noqa: PTH115, PTH116, PTH123, PTH208
# The timer imports this file, and importing pathlib would double its start.
"""Finds the files that a program's processes execute: their programs and mapped libraries.

The timer calls `Looker.look` every few milliseconds during a thrown-away first run. Each look
reads `/proc/PID/maps` of the program and all its descendants, and opens the files that are
mapped as code, through `/proc/PID/root`, so that they are read as the process sees them; they
are hashed after the program's end. What lives for less than a millisecond can be missed, and
files of another user's processes cannot be read: then nothing is said about them.

Standard library only, Python 3.6 or later: the timer imports the file by its path.
"""

import contextlib
import ctypes
import hashlib
import os
from stat import S_ISREG

FILES = 500
"""So many files are looked at, at most."""
PR_SET_CHILD_SUBREAPER = 36


def text(path: str) -> str:
    """Return a file's text; nothing if the process has ended or is another user's."""
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def children(pid: int) -> "list[int]":
    """Return a process's children, those of all its threads."""
    threads = []  # type: list[str]
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    every = [text(f"/proc/{pid}/task/{thread}/children").split() for thread in threads]
    return [int(word) for words in every for word in words]


def code(pid: int) -> "set[str]":
    """Return the paths of the files that a process has mapped as code."""
    lines = [line.split(None, 5) for line in text(f"/proc/{pid}/maps").split("\n")]
    return {
        words[5]
        for words in lines
        if len(words) == 6 and "x" in words[1] and words[5].startswith("/")
    }


class Looker:
    """Collects what it sees at each look."""

    def __init__(self) -> None:
        """Make orphans among this process's descendants its children, so that they are found."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.open = {}  # type: dict[tuple[str, int, int], int]
        self.own = text("/proc/self/cmdline")
        self.unreadable = set()  # type: set[str]
        self.programs = set()  # type: set[tuple[str, int, int]]

    def look(self) -> None:
        """Look once at all descendants of this process, which started the program."""
        waiting = children(os.getpid())
        while waiting:
            pid = waiting.pop()
            waiting.extend(children(pid))
            if text(f"/proc/{pid}/cmdline") == self.own:
                # A forked child that has not become the program yet.
                continue
            with contextlib.suppress(OSError):
                program = os.readlink(f"/proc/{pid}/exe")
                self.add(pid, program, True)
                for path in code(pid):
                    self.add(pid, path, False)

    def add(self, pid: int, path: str, is_program: bool) -> None:
        """Open a file as the process sees it, unless that file is open already."""
        if path.endswith(" (deleted)") or path.startswith("/memfd:"):
            self.unreadable.add(path.replace(" (deleted)", ""))
            return
        inside = f"/proc/{pid}/exe" if is_program else f"/proc/{pid}/root{path}"
        for place in (inside, path):
            try:
                stat = os.stat(place)
                if not S_ISREG(stat.st_mode):
                    # The file was executed by a path that means another one here.
                    continue
                key = (path, stat.st_dev, stat.st_ino)
                if is_program:
                    self.programs.add(key)
                if key not in self.open and len(self.open) < FILES:
                    self.open[key] = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
                return
            except OSError:
                continue
        self.unreadable.add(path)

    def files(self) -> "list[dict[str, object]]":
        """Hash the files; return each with its path and whether a process was started from it."""
        digests = {}  # type: dict[tuple[str, str], bool]
        for key, file in self.open.items():
            result = hashlib.sha256()
            with os.fdopen(file, "rb") as stream:
                for block in iter(lambda: stream.read(1 << 20), b""):
                    result.update(block)
            found = (key[0], result.hexdigest())
            digests[found] = digests.get(found, False) or key in self.programs
        self.open.clear()
        files = [
            {"path": path, "sha256": digest, "program": program}
            for (path, digest), program in sorted(digests.items())
        ]  # type: list[dict[str, object]]
        known = {path for path, _ in digests}
        files += [
            {"path": path, "sha256": None, "program": False}
            for path in sorted(self.unreadable - known)
        ]
        return files
