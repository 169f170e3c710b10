"""The directory that is empty at the beginning of each row."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coracle_lab.errors import FAILED, LabError

AS_OWNER = ("unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", "--")
"""Removes what has the user's subordinate ids as owners: a container's root may give files away."""


def empty(directory: Path) -> None:
    """Makes a directory that is there and has nothing in it."""
    remove(directory)
    directory.mkdir(parents=True)


def remove(directory: Path) -> None:
    """Removes the directory, if it is there. Raises `LabError` if that cannot be done."""

    def allow(function: Callable[..., Any], path: str, error: Any) -> None:
        # The program may have taken its own right to change a directory, or to read one.
        Path(path).parent.chmod(0o700)
        if function in (os.unlink, os.rmdir):
            function(path)
        else:
            Path(path).chmod(0o700)
            shutil.rmtree(path)

    if not directory.exists():
        return
    try:
        shutil.rmtree(directory, onerror=allow)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            subprocess.run([*AS_OWNER, str(directory)], capture_output=True, check=False)
        if directory.exists():
            why = f"{directory} cannot be removed: {error.strerror}"
            raise LabError(why, status=FAILED) from error
