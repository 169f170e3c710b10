"""What a command is to find in its environment, and the values that templates get from it."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coracle_lab.environments.template import Values
from coracle_lab.errors import LabError


@dataclass(frozen=True)
class Setting:
    """What a command is to find in its environment."""

    image: str | None = None
    """For environments that take images."""
    rootfs: Path | None = None
    """A directory tree, for those that take trees; also for those that take both, if no image."""
    volumes: tuple[str, ...] = ()
    """`HOST:CONTAINER` or `HOST:CONTAINER:ro`, both absolute paths."""
    workdir: str | None = None
    """The working directory in the container; for `native` the host's."""
    variables: Mapping[str, str] = field(default_factory=dict)
    gpus: str | None = None
    """`all`, or what the environment's own option for GPUs takes."""
    passed: tuple[str, ...] = ()
    """Names of variables that get the value that they have where the command is started.

    Environments that give the caller's variables to the program anyway do not need these names.
    """
    options: tuple[str, ...] = ()
    """Words of a design's options, put into the environment's command."""
    ranks: int = 1
    """For environments that start the ranks themselves."""


@dataclass(frozen=True)
class Volume:
    """A directory of the host, and its place in the container."""

    source: str
    target: str
    readonly: bool


def volumes(setting: Setting) -> list[Volume]:
    """Returns the volumes of a setting, parsed."""
    return [_volume(text) for text in setting.volumes]


def _volume(text: str) -> Volume:
    parts = text.split(":")
    readonly = len(parts) == 3 and parts[2] == "ro"
    if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise LabError(f"volume {text!r} is not HOST:CONTAINER or HOST:CONTAINER:ro")
    if not all(part.startswith("/") for part in parts[:2]):
        raise LabError(f"volume {text!r}: both paths must be absolute")
    return Volume(parts[0], parts[1], readonly)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def values(setting: Setting, single: Mapping[str, str | None]) -> Values:
    """Returns what the placeholders stand for: those of the setting, and those given."""
    mounted = volumes(setting)
    families: dict[str, Sequence[Mapping[str, str]]] = {
        "volumes": [
            {"volume": f"{one.source}:{one.target}" + (":ro" if one.readonly else "")}
            for one in mounted
        ],
        "writable": [
            {"source": one.source, "target": one.target} for one in mounted if not one.readonly
        ],
        "readonly": [
            {"ro_source": one.source, "ro_target": one.target} for one in mounted if one.readonly
        ],
        "variables": [{"variable": f"{name}={value}"} for name, value in setting.variables.items()],
        "passed": [{"passed": name} for name in setting.passed],
        "options": [{"option": word} for word in setting.options],
    }
    common = {
        "python": sys.executable,
        "here": str(Path(__file__).parent),
        "uid": str(os.getuid()),
        "gid": str(os.getgid()),
        "user": _user(),
        "workdir": setting.workdir,
        "gpus": setting.gpus,
        "ranks": str(setting.ranks),
    }
    return Values({**common, **single}, families)
