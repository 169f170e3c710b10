"""What a campaign keeps in its directory, and how it finds it again.

records/ID/               records of one figure, as `coracle-lab run` keeps them
records/campaign.json     the size, and of each figure whether it is made, else why not
records/.gitignore        leaves all but this file out of a repository
index.html, ID/           the page; a figure's directory has its records compressed
summary.html              the verdicts of the page, without any file beside

`campaign.json` is written anew after each figure, and is whole at any moment.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coracle_lab.campaign.model import Size
from coracle_lab.errors import FAILED, LabError
from coracle_lab.facts import plain
from coracle_lab.run import packed

SCHEMA = 1
COPIED = ("design.toml", "facts.jsonl")
"""What the page has of a figure besides its records; the rows follow from the design."""
IGNORE = "*\n!.gitignore\n!campaign.json\n"


@dataclass(frozen=True)
class Outcome:
    """What became of a figure.

    `made` is true if its session ended: all rows were run but those of environments that do not
    work. `status` is the session's exit status. `why` says what is missing. `left_out` are members
    of groups that the design was made without. `design` is a digest of what the campaign's file
    said of the design when it was made.
    """

    made: bool = False
    status: int = 0
    why: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    design: str = ""


@dataclass
class Kept:
    """The directory of a campaign."""

    into: Path
    size: Size
    outcomes: dict[str, Outcome]

    @property
    def records(self) -> Path:
        """The directory that has one of each figure."""
        return self.into / "records"

    def directory(self, figure: str) -> Path:
        """Returns the directory of one figure's records."""
        return self.records / figure

    def set(self, figure: str, outcome: Outcome) -> None:
        """Keeps what became of a figure."""
        self.outcomes[figure] = Outcome(**plain.tree(asdict(outcome)))
        self.write()

    def write(self) -> None:
        """Writes `campaign.json`, in one step."""
        told = {
            "schema": SCHEMA,
            "size": self.size,
            "figures": {name: asdict(one) for name, one in sorted(self.outcomes.items())},
        }
        _replace(self.records / "campaign.json", json.dumps(told, indent=1) + "\n")

    def unpack(self, figure: str, environments: str | None) -> bool:
        """Makes a figure's directory of the page's copy, if it is not there; tells whether it did.

        `environments` is the text of the campaign's table of environments.
        """
        directory, page = self.directory(figure), self.into / figure
        if directory.exists() or not (page / packed.NAME).exists():
            return False
        part = directory.with_name(f".{figure}.part")
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            for name in COPIED:
                (part / name).write_bytes((page / name).read_bytes())
            data = packed.unpacked((page / packed.NAME).read_bytes())
            (part / "records.jsonl").write_bytes(data)
            if environments is not None:
                (part / "environments-1.toml").write_text(environments, encoding="utf-8")
            part.rename(directory)
        except (OSError, ValueError) as error:
            raise LabError(f"{page}: it cannot be unpacked: {error}", status=FAILED) from error
        return True


def _replace(path: Path, text: str) -> None:
    """Writes a file that is at any moment the old one or the new one, whole."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", status=FAILED) from error


def opened(into: Path, size: Size) -> Kept:
    """Returns the directory of a campaign; makes it, or goes on with the one that is there.

    Raises `LabError` if its records are of another size.
    """
    records = into / "records"
    try:
        records.mkdir(parents=True, exist_ok=True)
        ignore = records / ".gitignore"
        if not ignore.exists():
            ignore.write_text(IGNORE)
    except OSError as error:
        raise LabError(f"{records}: {error.strerror}", "name a place with --into") from error
    found = read(into)
    if found is None:
        made = Kept(into, size, {})
        made.write()
        return made
    if found.size != size and any(found.directory(one).exists() for one in found.outcomes):
        raise LabError(
            f"{records}: its records are of size {found.size}",
            f"go on with --size {found.size}, or name another directory with --into",
        )
    return Kept(into, size, found.outcomes if found.size == size else {})


def read(into: Path) -> Kept | None:
    """Returns what is kept in a directory; None if nothing is."""
    path = into / "records" / "campaign.json"
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LabError(f"{path}: it cannot be read: {error}", "restore it, or remove it") from error
    if told.get("schema") != SCHEMA:
        raise LabError(
            f"{path}: its schema is {told.get('schema')}, and this coracle-lab knows {SCHEMA}",
            "take the coracle-lab that has written it",
        )
    outcomes = {name: Outcome(**one) for name, one in told["figures"].items()}
    return Kept(into, told["size"], outcomes)
