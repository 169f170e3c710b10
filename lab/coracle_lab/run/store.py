"""The directory of one design's records: what is written there once, and what is appended.

design.toml           the design file as it was at the first start
rows.csv              the expanded rows; never changed afterwards
environments-N.toml   the user's own tables of environments
records.jsonl         one line for each attempt (`records`)
facts.jsonl           one line for each session: machine, state, process
failed/               the end of what failed rows printed
lock, busy, alive     see `lock` and `session`
reframe/              ReFrame's own files; can be deleted
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coracle_lab.design import Design, Row, digest, expand, from_csv, parse, to_csv
from coracle_lab.errors import LabError
from coracle_lab.facts import machine, plain

SCHEMA = 1


@dataclass(frozen=True)
class Store:
    """A directory whose design and rows are known to be those that its records belong to."""

    directory: Path
    design: Design
    digest: str
    rows: Sequence[Row]

    @property
    def facts_path(self) -> Path:
        """The file of facts."""
        return self.directory / "facts.jsonl"

    def environment_files(self) -> list[Path]:
        """Returns the user's own tables of environments."""
        return sorted(self.directory.glob("environments-*.toml"))

    def sessions(self) -> list[Mapping[str, Any]]:
        """Returns the facts of all earlier sessions; a line that is cut off tells nothing."""
        try:
            lines = self.facts_path.read_text().split("\n")
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if value.get("schema") == SCHEMA:
                found.append(value)
        return found

    def append_facts(
        self,
        session: str,
        now: Mapping[str, Any],
        environments: Mapping[str, str],
        images: Mapping[str, str] | None = None,
        builds: Mapping[str, str] | None = None,
        site: str | None = None,
    ) -> list[str]:
        """Appends the facts of a session; returns what the user is told about them.

        `environments` are versions, `images` the ids of images in Coracle's store, and `builds`
        says where what was built: in an image, or on the host. `site` is the site file by which
        rows ran elsewhere; None: they ran on this host.
        """
        label = self.design.session
        line = {
            "schema": SCHEMA,
            "session": session,
            "design": self.digest,
            "label": label,
            "environments": environments,
            "images": images or {},
            "builds": builds or {},
            "site": site,
            "facts": now,
        }
        said = machine.warnings(now)
        others = {machine.other_machine(one["facts"], now) for one in self.sessions()}
        for other in sorted(name for name in others if name is not None):
            said.append(
                f"earlier records here were made on another machine, {other}: blocks of different"
                " machines are compared within each block only"
            )
        text = json.dumps(plain.tree(line), sort_keys=True)
        _append(self.facts_path, text)
        return said


def _append(path: Path, text: str) -> None:
    """Appends a line, on a line of its own even after a cut one, and syncs it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(file).st_size
            whole = size == 0 or os.pread(file, 1, size - 1) == b"\n"
            os.write(file, (("" if whole else "\n") + text + "\n").encode())
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", status=1) from error


def _write_once(path: Path, text: str) -> None:
    """Writes a file that appears whole or not at all, and stays as it is if it is there."""
    if path.exists():
        if path.suffix == ".toml" and path.stem != "design" and read_text(path) != text:
            raise LabError(
                f"{path}: the table of environments was another one when this was begun",
                "restore it, or name another directory with --records",
            )
        return
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", status=1) from error


def read_text(path: Path) -> str:
    """Returns a file's text, or raises `LabError`."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise LabError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: it cannot be read as text: {error}") from error


def _rows(path: Path) -> list[Row]:
    """Returns the rows of a file, or raises `LabError` that names it."""
    try:
        return list(from_csv(read_text(path)))
    except LabError as error:
        raise LabError(
            f"{path}: {error.message}", "rows.csv is written once; restore it"
        ) from error


def create(directory: Path, text: str, name: str, environments: Sequence[Path] = ()) -> Store:
    """Returns the store of a design; makes the directory, or goes on with the one that is there.

    Raises `LabError` if the directory belongs to another design, or has other rows.
    """
    design = parse(text, name)
    if design.application is None:
        raise LabError(
            f"{name}: the design has no application", "add [application] command = [...]"
        )
    rows = expand(design)
    own = digest(design)
    kept = directory / "design.toml"
    if kept.exists():
        theirs = digest(parse(read_text(kept), str(kept)))
        if theirs != own:
            raise LabError(
                f"{directory}: its records are of another design"
                f" ({theirs[:12]}; this design is {own[:12]})",
                f"the design as it was is {kept}; restore it, or name another directory with"
                " --records",
            )
    elif (directory / "records.jsonl").exists():
        raise LabError(
            f"{directory}: it has records, but not their design", "name another directory"
        )
    csv = directory / "rows.csv"
    if csv.exists() and _rows(csv) != rows:
        raise LabError(
            f"{csv}: these are other rows than the design expands to",
            "rows are written once and never change; name another directory with --records",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{directory}: {error.strerror}", "name a place with --records") from error
    for number, path in enumerate(environments, start=1):
        _write_once(directory / f"environments-{number}.toml", read_text(path))
    _write_once(csv, to_csv(design, rows))
    _write_once(kept, text)
    return Store(directory, design, own, rows)
