"""Makes the tasks of rows: launch line and request to the timer, from design and environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coracle_lab.design import Application, Row
from coracle_lab.environments import Environment, Setting
from coracle_lab.run.piece import Task

LOOK = Path(__file__).parent.parent / "facts" / "mapped.py"
FACTOR = "environment"
"""The factor whose level is the row's environment."""


@dataclass(frozen=True)
class Limits:
    """What holds for every row."""

    timeout_s: float = 3600.0
    output_bytes: int = 64 << 20
    cpus: tuple[int, ...] = ()


def substituted(word: str, levels: Mapping[str, str]) -> str:
    """Returns a word with each `{factor}` replaced by the row's level."""
    return re.sub(
        r"\{([A-Za-z][A-Za-z0-9_]*)\}", lambda found: levels.get(found[1], found[0]), word
    )


def setting_of(application: Application, environment: Environment) -> Setting:
    """Returns what the application needs to find in an environment.

    On the host the timer sets directory and variables before the timed part, so that native
    costs nothing but the program.
    """
    on_host = environment.takes == "host"
    return Setting(
        image=application.image,
        rootfs=Path(application.rootfs) if application.rootfs else None,
        volumes=application.volumes,
        workdir=None if on_host else application.workdir,
        variables={} if on_host else application.variables,
        gpus=application.gpus,
    )


def cpus_of(pinning: str | None) -> tuple[int, ...]:
    """Returns the processors of a list as `taskset -c` takes it."""
    found: list[int] = []
    for part in (pinning or "").split(","):
        first, _, last = part.partition("-")
        if first:
            found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


def task(
    row: Row,
    attempt: int,
    application: Application,
    environment: Environment,
    limits: Limits,
    directory: Path,
) -> Task:
    """Returns one attempt of a row; row 0 is a first run, at which the timer looks at maps."""
    words = [substituted(word, row.levels) for word in application.command]
    request: dict[str, Any] = {
        "cwd": _host_directory(application),
        "timeout_s": application.timeout_s or limits.timeout_s,
        "output_limit_bytes": limits.output_bytes,
        "cpus": list(limits.cpus) or None,
        "sentinel": True,
        "alive": str(directory / "alive"),
        "busy": str(directory / "busy"),
        "look": str(LOOK) if row.number == 0 else None,
    }
    if environment.takes == "host":
        request["variables"] = dict(application.variables)
    ranks = row.levels.get("ranks", "1")
    return Task(
        row=row.number,
        block=row.block,
        attempt=attempt,
        levels=dict(row.levels),
        words=tuple(environment.command(words, setting_of(application, environment))),
        request=request,
        ranks=int(ranks) if ranks.isdigit() else 1,
    )


def _host_directory(application: Application) -> str:
    """Returns the directory in which the launch line is started: the application's if the host
    has it, else that of the lab."""
    if application.workdir and Path(application.workdir).is_dir():
        return application.workdir
    return str(Path.cwd())
