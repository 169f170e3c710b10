"""Makes a record of what the timer measured and of what the program printed.

A row is right if the program ended with status 0, its output contains the pattern of success
where there is one, every response and every text is found in it, the texts are those of the
base's first run, and every rank has told its times, if the program's ranks do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import reframe.utility.sanity as sn
from reframe.core.exceptions import SanityError

from coracle_lab.facts import plain
from coracle_lab.run import lab_lines, records
from coracle_lab.run.lab_lines import Timer, Wrong
from coracle_lab.run.piece import Piece, Task

TAIL_BYTES = 64 << 10
"""How much of a failed row's output is kept."""


def measured(path: Path) -> list[dict[str, Any]]:
    """Returns the timer's lines, one for each start; none if it did not write all of them."""
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValueError):
        return []


def record(
    piece: Piece, task: Task, measured: Mapping[str, Any], directory: Path, number: int = 0
) -> dict[str, Any]:
    """Returns the record of one start, the launch's first one if `number` is 0.

    It is published, so its words name no machine.
    """
    result = _judged(piece, task, measured, directory, number)
    for name in ("why", "mapped"):
        if name in result:
            result[name] = plain.tree(result[name])
    return result


def _judged(
    piece: Piece, task: Task, measured: Mapping[str, Any], directory: Path, number: int
) -> dict[str, Any]:
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
        result.update(outcome="failed", why=_status(result, printed(directory, "errors", number)))
    elif not (math.isfinite(result["wall_s"]) and result["wall_s"] > 0):
        result.update(outcome="void", why=f"the clock went from 0 to {result['wall_s']} s")
        result["wall_s"] = 0.0
    else:
        try:
            _read_output(piece, task, result, printed(directory, "output", number))
        except Wrong as wrong:
            result.update(outcome="failed", why=str(wrong))
    return result


def _status(fields: Mapping[str, Any], errors: Path) -> str:
    """Returns what is said of a program that failed: its status and its last line."""
    what = f"exit status {fields['exit_status']}"
    if fields.get("signal"):
        what = f"ended by signal {fields['signal']}"
    # mpirun puts lines of dashes around what it says itself, after the program's last words.
    text = _tail(errors, 4096).decode(errors="replace").strip()
    own, _, launchers = text.partition("-" * 20)
    last = (own.strip() or launchers.strip("- \r\n").partition("\n")[0]).split("\n")[-1].strip()
    return f"{what}: {last[:200]}" if last else what


def _read_output(piece: Piece, task: Task, result: dict[str, Any], output: Path) -> None:
    """Adds responses, texts and ranks to a record; raises `Wrong` for what is missing or wrong."""
    text = output.read_text(errors="replace")
    if piece.success is not None:
        try:
            sn.evaluate(sn.assert_found_s(piece.success, text))
        except SanityError:
            what = "the output does not contain what a right one contains"
            raise Wrong(f"{what}: {piece.success}") from None
    responses: dict[str, float] = result["responses"]
    if piece.reads is not None:
        timer = Timer(result.get("boot", ""), result["clock_start_s"], result["clock_end_s"])
        told = lab_lines.read(text.split("\n"), piece.series, timer, task.ranks)
        responses.update(told.responses)
        if told.ranks:
            result["ranks"] = told.ranks
    for name, pattern in piece.responses.items():
        responses[name] = _number(name, _first(f"response {name}", pattern, text))
    if piece.texts:
        found = {name: _first(f"text {name}", p, text) for name, p in piece.texts.items()}
        result["texts"] = found
        _same_texts(found, task.texts)


def _first(what: str, pattern: str, text: str) -> str:
    """Returns the first group where the pattern is found first."""
    try:
        return str(sn.evaluate(sn.extractsingle_s(pattern, text, 1)))
    except SanityError:
        raise Wrong(f"the {what} is not in the output") from None


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise Wrong(f"the response {name} is {text!r}, and not a number") from None
    if not math.isfinite(number):
        raise Wrong(f"the response {name} is {number}")
    return number


def _same_texts(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Refuses a text that is another one than that of the base's first run."""
    for name, text in found.items():
        if name in expected and text != expected[name]:
            raise Wrong(
                f"the text {name} is {text[:80]!r}; in the first run of the base it was"
                f" {expected[name][:80]!r}"
            )


def _tail(path: Path, size: int) -> bytes:
    """Returns a file's last bytes; nothing if it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read()
    except OSError:
        return b""


def printed(directory: Path, name: str, number: int) -> Path:
    """Returns the file that a start (from 0) printed to, as the timer names it."""
    return directory / (f"{name}.{number}" if number else name)


def keep(directory: Path, task: Task, stage: Path, number: int) -> None:
    """Keeps the end of a failed start's output and errors beside the records."""
    directory.mkdir(exist_ok=True)
    for name in ("output", "errors"):
        target = directory / f"row-{task.row}-attempt-{task.attempt}.{name}"
        target.write_bytes(_tail(printed(stage, name, number), TAIL_BYTES))
