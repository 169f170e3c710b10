"""Makes a record of what the timer measured and of what the program printed.

A row is right if the program ended with status 0, its output contains the pattern of success
where there is one, and every response is found in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import reframe.utility.sanity as sn
from reframe.core.exceptions import SanityError

from coracle_lab.run import records
from coracle_lab.run.piece import Piece, Task

TAIL_BYTES = 64 << 10
"""How much of a failed row's output is kept."""


def measured(path: Path) -> dict[str, Any] | None:
    """Returns the timer's line, or None if it wrote no whole line."""
    try:
        line: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return line


def record(
    piece: Piece, task: Task, measured: Mapping[str, Any], directory: Path
) -> dict[str, Any]:
    """Returns the task's record."""
    result: dict[str, Any] = {
        **measured,
        "schema": records.SCHEMA,
        "design": piece.design,
        "session": piece.session,
        "row": task.row,
        "block": task.block,
        "attempt": task.attempt,
        "levels": dict(task.levels),
        "responses": {},
    }
    result.setdefault("sentinel_before_s", None)
    result.setdefault("sentinel_after_s", None)
    if result["outcome"] != "ok":
        return result
    if result["exit_status"] != 0:
        result.update(outcome="failed", why=_status(result, directory / "errors"))
    elif not (math.isfinite(result["wall_s"]) and result["wall_s"] > 0):
        result.update(outcome="void", why=f"the clock went from 0 to {result['wall_s']} s")
        result["wall_s"] = 0.0
    else:
        wrong = _read_output(piece, directory / "output", result["responses"])
        if wrong is not None:
            result.update(outcome="failed", why=wrong)
    return result


def _status(fields: Mapping[str, Any], errors: Path) -> str:
    """Returns what is said of a program that failed: its status and its last line."""
    what = f"exit status {fields['exit_status']}"
    if fields.get("signal"):
        what = f"ended by signal {fields['signal']}"
    lines = _tail(errors, 4096).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{what}: {last[:200]}" if last else what


def _read_output(piece: Piece, output: Path, responses: dict[str, float]) -> str | None:
    """Looks for the pattern of success and for the responses; returns what is missing."""
    try:
        if piece.success is not None:
            sn.evaluate(sn.assert_found(piece.success, str(output)))
        for name, pattern in piece.responses.items():
            found = sn.evaluate(sn.extractsingle(pattern, str(output), 1, float))
            if not math.isfinite(found):
                return f"the response {name} is {found}"
            responses[name] = found
    except SanityError:
        missing = next((name for name in piece.responses if name not in responses), "success")
        if piece.success is not None and not responses:
            return f"the output does not contain what a right one contains: {piece.success}"
        return f"the response {missing} is not in the output"
    return None


def _tail(path: Path, size: int) -> bytes:
    """Returns a file's last bytes; nothing if it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read()
    except OSError:
        return b""


def keep(directory: Path, task: Task, stage: Path) -> None:
    """Keeps the end of a failed row's output and errors beside the records."""
    directory.mkdir(exist_ok=True)
    for name in ("output", "errors"):
        target = directory / f"row-{task.row}-attempt-{task.attempt}.{name}"
        target.write_bytes(_tail(stage / name, TAIL_BYTES))
