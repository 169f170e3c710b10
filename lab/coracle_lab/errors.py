"""The one error that a user sees: what is wrong, and what to do."""

from __future__ import annotations

USAGE = 2
"""Exit status: the command, a design file or a table is wrong."""
FAILED = 1
"""Exit status: rows have failed."""
UNTRUSTED = 3
"""Exit status: everything was measured, and the A/A guard does not trust it."""


class LabError(Exception):
    """An error with an optional hint, and the exit status that it leads to."""

    def __init__(self, message: str, hint: str | None = None, status: int = USAGE) -> None:
        """Takes the message, a hint, and the exit status."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status

    def text(self) -> str:
        """Returns the lines for standard error."""
        lines = [f"error: {self.message}"]
        if self.hint is not None:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)
