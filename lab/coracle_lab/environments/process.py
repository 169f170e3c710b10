"""Runs a command to its end, within a time limit, and finds the line that says what was wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_LENGTH = 300
"""The longest line that is repeated to the user."""
_ERROR = re.compile(r"^(error|fatal|e: )|\berror: ", re.I)
"""A line that names the error: of a program, of apt, of a compiler (`a.c:1:2: error: ...`)."""


@dataclass(frozen=True)
class Said:
    """All that a command has written, and why it counts as failed (nothing: it has not)."""

    out: str
    why: str

    def version(self) -> str:
        """Returns the version in the output: the first word that has digits and dots."""
        found = re.search(r"\d+\.\d[^\s,;]*", self.out)
        return found[0] if found else ""


def run(command: Sequence[str], limit_s: float) -> Said:
    """Runs a command without standard input, in a process group that ends with the time limit."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Said("", f"{command[0]}: {error.strerror}")
    with child:
        try:
            out, errors = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return Said("", f"{command[0]} did not end within {limit_s:g} s")
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
    if child.returncode == 0:
        return Said(out + errors, "")
    why = _reason(errors or out) or _status(command[0], child.returncode)
    return Said(out + errors, why)


def _reason(text: str) -> str:
    """The line that names the error: the first that says so, else the last one.

    Coracle says what caused it in the line after that.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    at = next((at for at, line in enumerate(lines) if _ERROR.search(line)), -1)
    named = re.sub(r"^(error|fatal): ", "", lines[at], flags=re.I)
    if at >= 0 and (cause := "".join(lines[at + 1 : at + 2])).startswith("cause: "):
        named = f"{named}: {cause.removeprefix('cause: ')}"
    return named[:_LENGTH]


def _status(program: str, status: int) -> str:
    if status < 0:
        return f"{program} was ended by {signal.Signals(-status).name}"
    return f"{program} ended with status {status}"
