"""Finds the source of an application, and says by a digest which source it is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from coracle_lab import data
from coracle_lab.applications.table import APPS
from coracle_lab.errors import LabError

FILES_AT_MOST = 20_000
IGNORED = {"__pycache__", ".git"}
"""What changes although the source does not."""


def place(source: str) -> Path:
    """Returns the directory that `source` of a resolved design names."""
    if source.startswith(f"{APPS}/"):
        return data.directory("apps") / source[len(APPS) + 1 :]
    return Path(source)


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yields the files of a source, and the headers beside it."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not IGNORED & set(path.relative_to(directory).parts):
            yield path.relative_to(directory).as_posix(), path
    for path in headers(directory):
        yield f"../{path.name}", path


def headers(directory: Path) -> list[Path]:
    """Returns the headers beside a source, which its files may include as `../NAME.h`."""
    return sorted(directory.parent.glob("*.h"))


def digest(source: str) -> str:
    """Returns the SHA-256 of all names and contents of a source."""
    directory = place(source)
    if directory.is_file():
        raise LabError(
            f"{directory}: the application's source is a file, and has to be a directory",
            "unpack an archive (tar xf FILE), and name the directory that it makes",
        )
    if not directory.is_dir():
        raise LabError(
            f"{directory}: the application's source is not there",
            "put it there, or name another directory as source",
        )
    result = hashlib.sha256()
    for number, (name, path) in enumerate(_files(directory)):
        if number >= FILES_AT_MOST:
            raise LabError(f"{directory}: it has more than {FILES_AT_MOST} files")
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise LabError(f"{path}: {error.strerror}") from error
        result.update(f"{content} {name}\n".encode(errors="surrogateescape"))
    return result.hexdigest()
