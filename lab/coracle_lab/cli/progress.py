"""Shows on a terminal how far a session is; says nothing elsewhere."""

from __future__ import annotations

import sys

from coracle_lab.run.session import Progress


def duration(seconds: float) -> str:
    """Returns a time for humans: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def show(progress: Progress) -> None:
    """Writes one line over the last one, if standard error is a terminal."""
    if not sys.stderr.isatty():
        return
    text = progress.what
    if progress.done or progress.left_s is not None:
        text += f": {progress.done} of {progress.total}"
    if progress.left_s is not None:
        text += f", about {duration(progress.left_s)} left"
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def clear() -> None:
    """Removes the line."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Writes a note that stays."""
    clear()
    print(f"note: {text}", file=sys.stderr)
