"""Keeps two processes from running one design, and a session from running beside the last one.

The lock is the kernel's (`flock`), so it ends with its holder, however that dies. A second file,
`busy`, is held by the timer of a running row: a session that starts after its predecessor was
killed waits until that timer has ended its program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from coracle_lab.errors import LabError

BUSY_WAIT_S = 15.0


@contextlib.contextmanager
def held(directory: Path) -> Iterator[int]:
    """Holds the directory's lock; yields its descriptor, which ReFrame inherits.

    Raises `LabError` if another process has it, with that process's number.
    """
    path = directory / "lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
            raise LabError(
                f"{directory}: {holder} is running this design",
                "wait for its end, or name another directory with --records",
            ) from error
        except OSError as error:
            raise LabError(
                f"{path}: it cannot be locked: {error.strerror}",
                "keep records on a file system that has flock(2)",
            ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield file
    finally:
        os.close(file)


def wait_for_last_row(directory: Path) -> None:
    """Waits for the timer of a killed session, and ends a program that outlived its timer."""
    path = directory / "busy"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        limit = time.monotonic() + BUSY_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > limit:
                    raise LabError(
                        f"{directory}: a program of an earlier session still runs",
                        f"find its timer with: fuser {path}",
                    ) from error
                time.sleep(0.05)
        _end_orphan(os.pread(file, 200, 0).decode(errors="replace").split())
        os.ftruncate(file, 0)
    finally:
        os.close(file)


def _end_orphan(words: list[str]) -> None:
    """Ends the process group that the file names, if its leader is still the same process."""
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return
    try:
        stat = Path(f"/proc/{words[0]}/stat").read_text()
    except OSError:
        return
    if stat.rpartition(")")[2].split()[19] == words[1]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(words[0]), signal.SIGKILL)
