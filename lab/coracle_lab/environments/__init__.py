"""Environments: the ways in which a program is started, natively or in a container.

An environment is an entry of a table. The built-in table is `builtin.toml` beside this file; users
add their own with `--environments FILE`, in the same form:

    [[environment]]
    name = "bwrap"
    text = "bubblewrap, with the image's tree as its root"
    takes = "tree"
    program = "bwrap"
    version = ["{program}", "--version"]
    command = ["{program}", "--bind", "{tree}", "/", ["--bind", "{source}", "{target}"], "--"]

Keys of an entry:

- `name`: what users call it. With `{value}` in it the entry is several environments, one for each
  of `values`; with `numbers = true`, for any number from `least` on, and `values` are examples.
- `text`: one line about it.
- `takes`: `host` (no image), `image` (by name) or `tree` (a directory).
- `program`: the program that it needs in PATH; `{program}` is its absolute path.
- `root = true`: only root can use it.
- `version`: a command that prints the program's version.
- `probe`: a command that ends with 0 if the environment is usable. Without it, the lab starts
  `/bin/true` in a small tree by the entry's own commands.
- `prepare`, `clean`: lists of commands, which are run in turn before and after; never timed.
- `command`: what starts a program. Its words take the place of the word `{words}`, else the end.
- `all_gpus = true`: `gpus` can be `all` only, and then all of the host's GPUs are there.
- `one_rank`: why ranks of MPI cannot be in this environment.
- `launches = true`: its command starts the ranks itself, `{ranks}` of them; no launcher stands
  before it.

Placeholders: `{program}`, `{value}`, `{image}`; `{tree}` (the root tree: the one that the user
names, else the image's, exported by Coracle); `{rootfs}` (the tree that the user names in place of
an image); `{workdir}`, `{gpus}`; `{scratch}` (a directory for this environment and setting),
`{id}` (a short text for the same), `{cache}` (the directory for what all share); `{python}`,
`{here}` (this package's directory), `{probe_tree}` (in `probe`); `{uid}`, `{gid}`, `{user}`. For
each volume: `{volume}` (HOST:CONTAINER[:ro]), or `{source}` and `{target}` of those that can be
written to, and `{ro_source}` and `{ro_target}` of the others. `{variable}` is NAME=VALUE, and
`{passed}` the name of a variable that the caller has.
How groups and placeholders work together: `template.py`. A command in `prepare` or `clean` is a
group: it is left out or repeated likewise.

An environment refuses what its templates cannot express; nothing of a setting is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coracle_lab.environments.environment import Environment, Probe
from coracle_lab.environments.setting import Setting
from coracle_lab.environments.table import BUILTIN, Entry, read
from coracle_lab.errors import LabError

__all__ = ["Environment", "Probe", "Setting", "find", "names"]


def find(name: str, more: Sequence[Path] = ()) -> Environment:
    """Returns the environment of that name, from the built-in table or from the user's."""
    for entry in _entries(more):
        if entry.name == name:
            return Environment(name, entry)
        value = entry.value(name) if entry.values else None
        if value is not None:
            return Environment(name, entry, value)
    raise LabError(f"unknown environment {name!r}", f"there are: {', '.join(names(more))}")


def names(more: Sequence[Path] = ()) -> list[str]:
    """Returns the names of all environments; of those with a number, examples."""
    return [name for entry in _entries(more) for name in entry.names()]


def _entries(more: Sequence[Path]) -> list[Entry]:
    """All entries, those of users first. A name that stands twice is an error."""
    entries = [entry for path in [*more, BUILTIN] for entry in read(path)]
    seen: dict[str, Entry] = {}
    for entry in entries:
        for name in entry.names():
            if name in seen:
                raise LabError(
                    f"{seen[name].place}: the name is taken",
                    f"also in: {entry.place}",
                )
            seen[name] = entry
    return entries
