"""Makes the tasks of rows: launch line and request to the timer, from design and environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coracle_lab.applications import places
from coracle_lab.applications.places import Places
from coracle_lab.applications.resolve import substituted
from coracle_lab.design import Application, Design, Row
from coracle_lab.design.application import RANKS
from coracle_lab.environments import Environment, Setting
from coracle_lab.errors import LabError
from coracle_lab.nodes import Nodes
from coracle_lab.run.piece import START, Task
from coracle_lab.run.records import FACTOR

BOOT = Path("/proc/sys/kernel/random/boot_id")
LOOK = Path(__file__).parent.parent / "facts" / "mapped.py"


__all__ = [
    "FACTOR",
    "Limits",
    "cpus_of",
    "is_in",
    "launches",
    "place_of",
    "setting_of",
    "substituted",
    "task",
    "with_ranks",
]


@dataclass(frozen=True)
class Limits:
    """What holds for every row."""

    timeout_s: float = 3600.0
    output_bytes: int = 64 << 20
    cpus: tuple[int, ...] = ()


def place_of(design: Design, levels: Mapping[str, str]) -> str:
    """Returns where a row runs: its environment, with the image if that is not always the same."""
    name = levels.get(FACTOR, "native")
    application = design.application
    if application is None or application.image is None or "{" not in application.image:
        return name
    return f"{name} with {places.image(application, levels)}"


def with_ranks(environment: str, ranks: str) -> str:
    """Returns the name of the rows of an environment that have so many ranks."""
    return f"{environment} with {ranks} ranks"


def is_in(design: Design, levels: Mapping[str, str], place: str) -> bool:
    """Tells whether a row is in a place: an environment, or one with a certain image, or with so
    many ranks."""
    name = levels.get(FACTOR, "native")
    return place in (name, place_of(design, levels), with_ranks(name, levels.get(RANKS, "")))


def setting_of(
    application: Application, environment: Environment, row: Mapping[str, str], found: Places
) -> Setting:
    """Returns what the application needs to find in an environment, in a row with these levels.

    On the host the timer sets directory and variables before the timed part, so that native
    costs nothing but the program.
    """
    on_host = environment.takes == "host"
    fill = _filled(application, row, found)
    volumes = [fill(volume) for volume in application.volumes]
    if not on_host:
        volumes += found.volumes(environment.has_readonly_volumes)
    return Setting(
        image=places.image(application, row),
        rootfs=Path(fill(application.rootfs)) if application.rootfs else None,
        volumes=tuple(volumes),
        workdir=None if on_host or application.workdir is None else fill(application.workdir),
        variables={} if on_host else _variables(application, row, found),
        gpus=application.gpus,
    )


def _filled(
    application: Application, row: Mapping[str, str], found: Places
) -> Callable[[str], str]:
    """Returns the function that fills a row's placeholders into a word."""
    given = {**places.values(application, row), **found.values()}
    return lambda word: substituted(word, given)


def _variables(application: Application, row: Mapping[str, str], found: Places) -> dict[str, str]:
    fill = _filled(application, row, found)
    return {name: fill(value) for name, value in application.variables.items()}


def cpus_of(pinning: str | None) -> tuple[int, ...]:
    """Returns the processors of a list as `taskset -c` takes it."""
    found: list[int] = []
    for part in (pinning or "").split(","):
        first, _, last = part.partition("-")
        if first:
            some = range(int(first), int(last or first) + 1)
            if not some:
                raise LabError(f'"{part}" names no processor', "write the smaller number first")
            found.extend(some)
    return tuple(found)


def launches(design: Design, rows: Sequence[Row]) -> list[list[Row]]:
    """Returns rows in their order, those of one launch together; each alone if not nested.

    An application with a scratch directory, which is emptied before each row, has each row alone.
    """
    application = design.application
    emptied = application is not None and places.uses(application, "scratch")
    together = design.nested is not None and not emptied
    found: list[list[Row]] = []
    for row in rows:
        last = found[-1][-1] if found else None
        if (
            together
            and last is not None
            and row.number == last.number + 1
            and _launch(row) == _launch(last)
        ):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _launch(row: Row) -> dict[str, str]:
    """Returns the levels that all starts of a launch have."""
    return {name: level for name, level in row.levels.items() if name != START}


def task(
    row: Row,
    attempt: int,
    application: Application,
    environment: Environment,
    limits: Limits,
    directory: Path,
    found: Places = Places(),  # noqa: B008 (it is frozen)
    nodes: Nodes | None = None,
    starts: int = 1,
    options: tuple[str, ...] = (),
) -> Task:
    """Returns one attempt of a row, or of a launch of so many rows, of which `row` is the first.

    Row 0 is a first run, at which the timer looks at maps. `options` are words that the row's
    levels put into the environment's command.
    """
    fill = _filled(application, row.levels, found)
    words = [fill(word) for word in application.command]
    ranks = places.ranks(application, row.levels)
    setting = setting_of(application, environment, row.levels, found)
    setting = replace(setting, ranks=ranks or 1, options=options)
    before = nodes.launcher(ranks or 1) if nodes is not None else []
    variables = _for_launcher(ranks or 1, limits)
    if environment.takes == "host":
        variables |= _variables(application, row.levels, found)
    request: dict[str, Any] = {
        "cwd": _host_directory(
            fill(application.workdir) if application.workdir else None, found.scratch
        ),
        "timeout_s": application.timeout_s or limits.timeout_s,
        "output_limit_bytes": limits.output_bytes,
        "cpus": list(limits.cpus) or None,
        "starts": starts,
        "sentinel": True,
        "alive": str(directory / "alive"),
        "boot": BOOT.read_text()[:8],
        "busy": str(directory / "busy"),
        "look": str(LOOK) if row.number == 0 else None,
        "variables": variables,
    }
    return Task(
        row=row.number,
        block=row.block,
        attempt=attempt,
        levels=dict(row.levels),
        words=(*before, *environment.command(words, setting)),
        request=request,
        ranks=ranks or 1,
        scratch=str(found.scratch) if found.scratch is not None else None,
        launches=environment.launches or nodes is not None,
        starts=starts,
    )


def _for_launcher(ranks: int, limits: Limits) -> dict[str, str]:
    """Returns the variables by which Open MPI starts more ranks than there are processors.

    They are set for such rows alone: with them Open MPI binds no rank to a processor.
    """
    cpus = limits.cpus or tuple(os.sched_getaffinity(0))
    if ranks <= len(cpus):
        return {}
    return {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


def _host_directory(workdir: str | None, scratch: Path | None) -> str:
    """Returns the directory in which the launch line is started: the application's if the host
    has it, else that of the lab. The scratch directory is made only when the row starts."""
    if workdir and (Path(workdir) == scratch or Path(workdir).is_dir()):
        return workdir
    return str(Path.cwd())
