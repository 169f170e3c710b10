"""Makes partitions of one partition of a site: one for each environment."""

from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from coracle_lab import environments
from coracle_lab.reframe import options
from coracle_lab.reframe.launchers import label

# By default these are not made: they cost more time than they tell something.
_SELDOM = ("native-again", "planted:")


def partitions(
    of: Mapping[str, Any], only: Sequence[str] | None = None, probe: bool = True
) -> list[dict[str, Any]]:
    """Returns a copy of a partition for each environment, with its launcher in the environment.

    `only` names the environments; without it they are those of CORACLE_LAB_ENVIRONMENTS, else all
    but planted ones. Those that are not usable here are left out, with a line on standard error,
    unless `probe` is false: on a login node it can be.
    """
    more = options.tables()
    named = list(only or options.wanted())
    chosen = named or [name for name in environments.names(more) if not name.startswith(_SELDOM)]
    result = []
    for name in chosen:
        environment = environments.find(name, more)
        if environment.launches:
            if named:
                print(f"no partition for {name}: it starts ranks by itself", file=sys.stderr)
            continue
        found = environment.probe() if probe else None
        if found is not None and not found.usable:
            print(f"no partition for {name}: {found.why}", file=sys.stderr)
            continue
        result.append(_partition(of, name, environment.text))
    return result


def _partition(of: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    made = copy.deepcopy(dict(of))
    base = made["launcher"]
    made["launcher"] = label(name) if base == "local" else f"{base}-{label(name)}"
    prefix = made.pop("name", "")
    made["name"] = f"{prefix}-{label(name)}" if prefix else label(name)
    made["descr"] = text
    if name.startswith("coracle"):
        made["container_platforms"] = [*made.get("container_platforms", []), _platform(name)]
    return made


def _platform(name: str) -> dict[str, Any]:
    """The platform of tests that name none but an image: Coracle, in the mode of the partition."""
    mode = name.partition(":")[2]
    variables = [["CORACLE_EXECMODE", mode]] if mode else []
    return {"type": "Coracle", "env_vars": variables, "default": True}


def launcher() -> str:
    """Returns the launcher of this host: `srunalloc` in an allocation of Slurm, else `auto`."""
    said = options.base()
    if said is not None:
        return said
    in_allocation = "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None
    return "srunalloc" if in_allocation else "auto"
