"""Makes the design of a figure for this host: groups of environments, then the application.

What is made once is kept: a directory that has a design goes on with that, so a figure's rows are
the same however often it is stopped, and whatever is installed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coracle_lab import data, environments
from coracle_lab.applications import Table, resolve, toml
from coracle_lab.campaign import groups, parse
from coracle_lab.campaign.groups import GROUPS, Expanded, Host
from coracle_lab.campaign.model import Campaign, Figure, Size
from coracle_lab.design.check import Source, near
from coracle_lab.design.parse import read
from coracle_lab.errors import LabError
from coracle_lab.run import store
from coracle_lab.run.store import Store

FOLDER = "papers"
ORDER = ("overhead", "udocker", "purdue", "cygnus", "bee", "costs")
"""The built-in campaigns, in the order of the page."""


def builtin() -> list[Path]:
    """Returns the files of the built-in campaigns."""
    place = data.directory(FOLDER)
    return [place / f"{name}.toml" for name in ORDER]


def found(path: Path) -> Path:
    """Returns the file that a word means: itself, or else a built-in campaign.

    `papers/overhead.toml`, `overhead.toml` and `overhead` mean that one.
    """
    if path.exists() or len(path.parts) > 2 or path.parts[0] not in (FOLDER, path.name):
        return path
    for one in builtin():
        if path.name in (one.name, one.stem):
            return one
    return path


def load(path: Path, size: Size) -> Campaign:
    """Returns the campaign of a file, at a size."""
    return parse.parse(store.read_text(path), str(path), size)


def chosen(campaigns: Iterable[Campaign], only: Iterable[str]) -> list[tuple[Campaign, Figure]]:
    """Returns the figures of some ids, in their order; all of them without ids.

    `OV4` is that figure alone, `OV4*` are all that begin so, and `OV` all of that paper.
    """
    every = [(campaign, figure) for campaign in campaigns for figure in campaign.figures]
    ids = [figure.id for _, figure in every]
    words = list(only)
    wanted: set[str] = set()
    for word in words:
        meant = _meant(word, ids)
        if not meant:
            raise LabError(f'there is no figure "{word}"', near(word.upper(), ids))
        wanted.update(meant)
    return [(c, f) for c, f in every if not words or f.id in wanted]


def _meant(word: str, ids: Sequence[str]) -> list[str]:
    """Returns the ids that a word means: itself, else those that it begins or is the paper of."""
    start = word.lower()
    if start.endswith("*"):
        return [one for one in ids if one.lower().startswith(start[:-1])]
    same = [one for one in ids if one.lower() == start]
    return same or [
        one
        for one in ids
        if one.lower().startswith(start)
        and (one[len(word)] == "-" or (word.isalpha() and one[len(word)].isdigit()))
    ]


@dataclass(frozen=True)
class Setup:
    """What designs are made with: the host, the tables of applications and the user's own ones.

    Without `simulates`, [nodes] of a design are left out: the rows run on nodes of a cluster.
    """

    host: Host
    known: Table
    tables: Sequence[Path] = ()
    simulates: bool = True


@dataclass(frozen=True)
class Prepared:
    """A figure's records, and the members of groups that its design was made without."""

    store: Store
    left_out: Mapping[str, str]


def prepared(campaign: Campaign, figure: Figure, directory: Path, setup: Setup) -> Prepared:
    """Returns the store of a figure, with the design that is there, or with a new one."""
    kept = directory / "design.toml"
    if kept.exists():
        return Prepared(store.create(directory, store.read_text(kept), str(kept)), {})
    assert figure.design is not None
    name = f"{campaign.name}, figure {figure.id}"
    tree = read(Source(figure.design, name))
    for level in tree["factors"].get(parse.FACTOR, ()):
        if level not in GROUPS:
            environments.find(str(level), setup.host.files)
    changed = expanded(tree, setup.host, setup.known)
    if changed is not None:
        tree["factors"][parse.FACTOR] = list(changed.levels)
        rules = groups.without_levels(tree.get("where", []), parse.FACTOR, changed.levels)
        tree.pop("where", None)
        if rules:
            tree["where"] = rules
    if not setup.simulates:
        tree.pop("nodes", None)
    text = resolve(toml.document(tree), name, setup.tables, Path(campaign.name).parent)
    made = store.create(directory, text, name, setup.host.files)
    return Prepared(made, changed.left_out if changed is not None else {})


def expanded(tree: Mapping[str, Any], host: Host, known: Table) -> Expanded | None:
    """Returns the environments of a design on this host; None if there is no such factor."""
    levels = tree["factors"].get(parse.FACTOR)
    if levels is None:
        return None
    without: dict[str, str] = {}
    if ranks(tree, known) > 1:
        for name in GROUPS["@peers"]:
            why = host.one_rank(name)
            if why is not None:
                without[name] = f"it has no ranks of MPI: {why}"
    return groups.expanded(levels, host.probe, without)


def application(tree: Mapping[str, Any], known: Table) -> Mapping[str, Any]:
    """Returns the application of a design that is not resolved yet."""
    own = tree.get("application", {})
    return parse.merged(known.applications.get(own.get("use"), {}), own)


def ranks(tree: Mapping[str, Any], known: Table) -> int:
    """Returns the largest number of ranks that a row of a design has."""
    parameters = application(tree, known).get("parameters", {})
    levels = tree["factors"].get("ranks", [parameters.get("ranks", 1)])
    return max(int(level) for level in levels if str(level).isdigit())
