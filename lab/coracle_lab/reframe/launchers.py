"""Launchers of ReFrame that start programs in an environment.

For each environment and each of ReFrame's launchers there is one, `BASE-ENVIRONMENT`: `mpirun` and
`coracle:I1` make `mpirun-coracle-I1`. What it emits is the base's own command, with the test's
options for it, and after that the command of the environment:

    mpirun -np 2 --map-by core coracle run --execmode=I1 ... IMAGE ./program

So each rank has a container. Without a base (`coracle-I1`) it is `local`, which starts one process.
The base `auto` is none for tests with one task, and `mpirun` for others.

The container has the directory of ReFrame's stage directories at the same path, because tests use
files of their fixtures; what symbolic links in the test's stage directory point to (such as
the test's `readonly_files`); and the variables that the job script exports: those of partition,
programming environment and test, and what modules set. Their names are known when the job runs
only, so the launch line gets them from `exported.bash`, before the program starts.

A test that names a container platform gets that container alone, by the base's command.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from reframe.core import backends, runtime
from reframe.core.backends import getlauncher, register_launcher
from reframe.core.exceptions import ConfigError
from reframe.core.launchers import JobLauncher

from coracle_lab import environments
from coracle_lab.environments import Environment, Setting
from coracle_lab.errors import LabError
from coracle_lab.reframe import options, platforms

PASSED = "CORACLE_LAB_PASSED"
"""Stands for the names of the variables that are passed, in the words of a command."""

EXPORTED = Path(__file__).with_name("exported.bash")

# The others start programs on hosts by their names, and have no ranks.
_NO_BASE = ("clush", "pdsh", "ssh", "rsh")
MPI = "mpirun"

_registered: set[str] = set()


def label(name: str) -> str:
    """Returns the name of an environment as ReFrame's names of partitions can be."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")


@register_launcher("auto")
class AutoLauncher(JobLauncher):  # type: ignore[misc]
    """Starts one task by itself, and several by `mpirun`."""

    def command(self, job: Any) -> list[str]:
        """Returns the words before the program."""
        if (job.num_tasks or 1) > 1:
            return [MPI, "-np", str(job.num_tasks)]
        # Options are mpirun's. `local` drops them likewise.
        self.options: list[str] = []
        return []


def register() -> None:
    """Registers the launchers of all environments, those of the user's tables too."""
    getlauncher("local")
    # ReFrame imports the package a second time, under another name, when it loads the site file.
    bases = [name for name in backends._launchers if name not in {*_NO_BASE, *_registered}]
    more = options.tables()
    for name in dict.fromkeys([*environments.names(more), *options.wanted()]):
        find = _finder(name, more)
        for base in bases:
            full = label(name) if base == "local" else f"{base}-{label(name)}"
            if full not in backends._launchers:
                _register(full, getlauncher(base), find)
                _registered.add(full)


def _finder(name: str, more: list[Path]) -> Callable[[], Environment]:
    return lambda: environments.find(name, more)


def _register(full: str, base: Any, find: Callable[[], Environment]) -> None:
    @register_launcher(full, local=base.registered_name == "local")
    class EnvironmentLauncher(base):  # type: ignore[misc]
        """The base's command, and after it the environment's."""

        def run_command(self, job: Any) -> str:
            """Returns the text before the program in the job script."""
            before = [super().run_command(job)]
            if not platforms.has_own_container(job.workdir):
                try:
                    before.append(container_command(find(), job))
                except LabError as error:
                    raise ConfigError(error.text()) from None
            return " ".join(part for part in before if part)


_prepared: set[tuple[str, str]] = set()


def container_command(environment: Environment, job: Any) -> str:
    """Returns the text of the environment's command, and prepares what it needs."""
    if environment.one_rank and (job.num_tasks or 1) > 1:
        raise LabError(f"{environment.name} has no ranks of MPI: {environment.one_rank}")
    if environment.launches:
        raise LabError(f"{environment.name} starts ranks itself: no launcher can stand before it")
    setting = _setting(environment, job)
    key = (environment.name, repr(setting))
    if key not in _prepared:
        environment.prepare(setting)
        _prepared.add(key)
    return text(environment.command([], setting))


def _setting(environment: Environment, job: Any) -> Setting:
    said = options.of(_extras(job))
    directory = str(Path(job.workdir).absolute())
    if environment.takes == "host":
        return Setting(variables=said.variables, gpus="all" if said.gpus else None)
    return said.setting(directory, _shared(directory), PASSED)


def _extras(job: Any) -> dict[str, Any]:
    """The extras of the job's partition, which the scheduler knows by its place in the site."""
    found = re.search(r"/@([^/]+)/", job.scheduler._config_prefix)
    for partition in runtime.runtime().system.partitions:
        if found and partition.name == found[1]:
            return dict(partition.extras)
    return {}


def _shared(directory: str) -> list[str]:
    """The directory of all stage directories, and what links in the test's own lead to."""
    stages = str(Path(runtime.runtime().stage_prefix).absolute())
    inside = directory == stages or directory.startswith(stages + os.sep)
    shared = [stages if inside else directory]
    for target in sorted(set(_link_targets(directory))):
        if not any(target == path or target.startswith(path + os.sep) for path in shared):
            shared.append(target)
    return shared


def _link_targets(directory: str) -> Iterable[str]:
    for path, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            link = Path(path, name)
            if link.is_symlink() and link.exists():
                yield os.path.realpath(link)


def text(words: list[str]) -> str:
    """Returns words as the shell reads them, with the look-up of variables in its place.

    The words from the first that holds the mark to the last one are repeated for each variable; an
    option that stands before it alone (`-e NAME`) belongs to it.
    """
    at = [place for place, word in enumerate(words) if PASSED in word]
    if not at:
        return shlex.join(words)
    first, end = at[0], at[-1] + 1
    if words[first] == PASSED:
        first -= 1
    form = " ".join(words[first:end]).replace(PASSED, "%s")
    look_up = f"$(bash {shlex.quote(str(EXPORTED))} $$ {shlex.quote(form)})"
    return f"{shlex.join(words[:first])} {look_up} {shlex.join(words[end:])}"
