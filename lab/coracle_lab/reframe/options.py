"""What a partition says about its containers: image, tree, volumes, variables, GPUs.

It stands in the partition's `extras`, under `coracle_lab`, or in variables CORACLE_LAB_*. What
`extras` say comes first; volumes and variables of both are added.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coracle_lab.environments import Setting
from coracle_lab.errors import LabError

KEY = "coracle_lab"
"""The key of a partition's `extras`."""

_KEYS = ("image", "rootfs", "volumes", "variables", "gpus", "stage")
STAGES = ("same", "none")


@dataclass(frozen=True)
class Options:
    """The options of one partition."""

    image: str | None = None
    rootfs: str | None = None
    volumes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    gpus: str | None = None
    stage: str = "same"
    """`same`: ReFrame's stage directories are in the container at the same path."""

    def setting(self, directory: str, shared: Sequence[str], passed: str) -> Setting:
        """Returns the setting of a test that runs in a directory.

        The directories that the test shares with others are mounted at the same path. `passed`
        stands for the names of variables, which are known when the job runs.
        """
        own = [f"{path}:{path}" for path in shared] if self.stage == "same" else []
        return Setting(
            image=self.image,
            rootfs=Path(self.rootfs) if self.rootfs else None,
            volumes=(*own, *self.volumes),
            workdir=directory if self.stage == "same" else None,
            variables=self.variables,
            gpus=self.gpus,
            passed=(passed,),
        )


def of(extras: Mapping[str, Any]) -> Options:
    """Returns the options of a partition with these `extras`, and of the variables."""
    said = extras.get(KEY, {})
    if not isinstance(said, Mapping):
        raise LabError(f"extras of the partition: {KEY!r} is not a table")
    unknown = set(said) - set(_KEYS)
    if unknown:
        raise LabError(
            f"extras of the partition: {KEY!r} has unknown key {min(unknown)!r}",
            f"there are: {', '.join(_KEYS)}",
        )
    stage = said.get("stage", "same")
    if stage not in STAGES:
        raise LabError(f"extras of the partition: stage is {stage!r}", "one of: same, none")
    image, rootfs = said.get("image"), said.get("rootfs")
    if image is None and rootfs is None:
        image, rootfs = _variable("IMAGE"), _variable("ROOTFS")
    return Options(
        image=image,
        rootfs=rootfs,
        volumes=(*said.get("volumes", ()), *_list("VOLUMES")),
        variables={**_assignments(_list("VARIABLES")), **said.get("variables", {})},
        gpus=said.get("gpus") or _variable("GPUS"),
        stage=stage,
    )


def tables() -> list[Path]:
    """Returns the user's tables of environments, of CORACLE_LAB_TABLES."""
    return [Path(path) for path in _list("TABLES")]


def wanted() -> list[str]:
    """Returns the environments that CORACLE_LAB_ENVIRONMENTS names."""
    return _list("ENVIRONMENTS")


def base() -> str | None:
    """Returns the launcher beneath, of CORACLE_LAB_LAUNCHER."""
    return _variable("LAUNCHER")


def _variable(name: str) -> str | None:
    return os.environ.get(f"CORACLE_LAB_{name}") or None


def _list(name: str) -> list[str]:
    """The members of a list, which are separated by commas."""
    return [one.strip() for one in (_variable(name) or "").split(",") if one.strip()]


def _assignments(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, or NAME alone for the caller's value."""
    result = {}
    for text in texts:
        name, equals, value = text.partition("=")
        result[name] = value if equals else os.environ.get(name, "")
    return result
