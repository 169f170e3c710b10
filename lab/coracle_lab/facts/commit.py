"""Finds the commit of a source tree by reading git's own files; no program is started."""

from __future__ import annotations

from pathlib import Path


def commit(start: Path) -> str | None:
    """Returns the commit that is checked out around a path; None outside a repository.

    Changes that are not committed are not seen.
    """
    for directory in (start, *start.parents):
        git = directory / ".git"
        if git.is_file():
            # A work tree: the file says where its directory is.
            _, _, place = _read(git).partition("gitdir: ")
            git = directory / place
        head = _read(git / "HEAD")
        if head:
            return _resolved(git, head)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _resolved(git: Path, head: str) -> str | None:
    """Returns the digest that HEAD names, by a loose reference or a packed one."""
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    common = git / (_read(git / "commondir") or ".")
    for place in (git, common):
        if loose := _read(place / name):
            return loose
    for line in _read(common / "packed-refs").split("\n"):
        digest, _, reference = line.partition(" ")
        if reference == name:
            return digest
    return None
