"""Container platforms for tests that name one: Coracle, and some that ReFrame lacks.

    self.container_platform = 'Coracle'
    self.container_platform.image = 'sci/tools:1'

ReFrame looks platforms up by name in its module `reframe.core.containers`, with the first letter
large and the others small; it takes no others. Bwrap, Charliecloud and Proot run in
the image's tree, which Coracle exports before. The commands are those of the environments' table.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from reframe.core import containers
from reframe.core.containers import ContainerPlatform
from reframe.core.exceptions import ConfigError

from coracle_lab import environments
from coracle_lab.environments import Setting
from coracle_lab.errors import LabError

PLATFORMS = {
    "Coracle": "coracle",
    "Podman": "podman",
    "Bwrap": "bwrap",
    "Charliecloud": "charliecloud",
    "Proot": "proot",
    "Runc": "runc",
    "Crun": "crun",
    "Udocker": "udocker:P1",
}
"""ReFrame's names of the platforms that are added, and the environments that they are."""

_own_container: set[str] = set()


def has_own_container(directory: str) -> bool:
    """Whether the test in this stage directory has asked for a container itself."""
    return str(Path(directory).absolute()) in _own_container


class EnvironmentPlatform(ContainerPlatform):  # type: ignore[misc]
    """A container platform that starts programs as an environment of the lab does."""

    environment = ""

    def emit_prepare_commands(self, stagedir: str) -> list[str]:
        """Returns no commands: what is needed is made before the job."""
        return []

    def launch_command(self, stagedir: str) -> str:
        """Returns the command that runs the test's command in the container."""
        super().launch_command(stagedir)
        environment = environments.find(self.environment)
        mounts = list(self.mount_points)
        if self.mount_stagedir:
            mounts.append((str(Path(stagedir).absolute()), self.mount_stagedir))
        image = self.image or ""
        tree = Path(image) if environment.takes == "tree" and Path(image).is_dir() else None
        setting = Setting(
            image=None if tree else image,
            rootfs=tree,
            volumes=tuple(f"{source}:{target}" for source, target in mounts),
            workdir=self.workdir,
        )
        try:
            environment.prepare(setting)
            words = environment.command([], setting)
        except LabError as error:
            raise ConfigError(error.text()) from None
        return " ".join([_with_options(words, self.options), self.command or ""]).rstrip()


def _with_options(words: list[str], more: list[str]) -> str:
    """Puts the test's options behind the subcommand, or behind the program if there is none."""
    at = words.index("run") + 1 if "run" in words else 1
    return " ".join([shlex.join(words[:at]), *more, shlex.join(words[at:])])


def register() -> None:
    """Adds the platforms to ReFrame's module, and notes which tests use a platform of any kind."""
    for name, environment in PLATFORMS.items():
        if not hasattr(containers, name):
            setattr(containers, name, _platform(name, environment))
    if getattr(ContainerPlatform, "_coracle_lab", False):
        return
    ContainerPlatform._coracle_lab = True
    for kind in _subclasses(ContainerPlatform):
        _note(kind)


def _platform(name: str, of: str) -> Any:
    # A call of `type` would not do: the metaclass needs the namespace that it has prepared itself.
    class Platform(EnvironmentPlatform):
        environment = of

    Platform.__name__ = Platform.__qualname__ = name
    return Platform


def _subclasses(kind: Any) -> list[Any]:
    below = kind.__subclasses__()
    return [one for child in below for one in (child, *_subclasses(child))]


def _note(kind: Any) -> None:
    original = kind.__dict__.get("launch_command")
    if original is None:
        return

    def launch_command(self: Any, stagedir: str) -> Any:
        result = original(self, stagedir)
        _own_container.add(str(Path(stagedir).absolute()))
        return result

    kind.launch_command = launch_command
