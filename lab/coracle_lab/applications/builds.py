"""Builds applications: runs the commands of `build` once, and keeps what they made.

A build is a directory of the cache whose name has a digest of all that decides it: commands,
source, image, and on the host its release. So a changed source or a new image is another build,
and an unchanged one is there at once. It is made in its final place, because programs can have
that place compiled in; a file beside it says that it is whole. Builds are never timed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coracle_lab import cache, environments
from coracle_lab.applications import images, places, sources
from coracle_lab.applications.resolve import substituted
from coracle_lab.design import Application
from coracle_lab.environments import Setting
from coracle_lab.environments.process import run
from coracle_lab.errors import FAILED, LabError

LIMIT_S = 3600.0
"""How long one command of a build may take."""
VERSION = 1
"""Part of every digest: raised when the lab builds in another way."""


@dataclass(frozen=True)
class Build:
    """One build: its directory, and what makes it."""

    name: str
    directory: Path
    source: Path | None
    source_sha256: str | None
    commands: tuple[tuple[str, ...], ...]
    image: str | None
    """The image in which it is built; None: on the host."""

    @property
    def whole(self) -> Path:
        """The file that is there when the build is whole."""
        return self.directory.with_name(f"{self.directory.name}.done")

    @property
    def log(self) -> Path:
        """The file with what the command wrote that failed."""
        return self.directory.with_name(f"{self.directory.name}.log")


@lru_cache
def _host() -> str:
    """Returns what the programs of a host's build can depend on."""
    try:
        release = Path("/etc/os-release").read_text()
    except OSError:
        release = ""
    return f"{platform.machine()} {release}"


def of(application: Application, levels: Mapping[str, str]) -> Build | None:
    """Returns the build that a row needs, or None.

    An image that Coracle's store does not have yet must be made before.
    """
    if not application.build:
        return None
    image = places.image(application, levels) if application.build_in == "image" else None
    source = sources.place(application.source) if application.source is not None else None
    values = places.values(application, levels)
    commands = tuple(
        tuple(substituted(word, values) for word in command) for command in application.build
    )
    decides = [
        VERSION,
        application.name,
        commands,
        application.source_sha256,
        str(source),
        images.identity(image) if image is not None else _host(),
    ]
    digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", application.name)
    directory = cache.directory() / "apps" / f"{name}-{digest}"
    found = {"build": str(directory), **({"source": str(source)} if source else {})}
    filled = tuple(tuple(substituted(word, found) for word in command) for command in commands)
    return Build(application.name, directory, source, application.source_sha256, filled, image)


def make(build: Build) -> None:
    """Makes a build that is not there. Raises `LabError` with the command that failed."""
    build.directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(build):
        if build.whole.exists() and build.directory.is_dir():
            return
        _check_source(build)
        _own(build)
        shutil.rmtree(build.directory, ignore_errors=True)
        build.directory.mkdir()
        build.log.unlink(missing_ok=True)
        for command in build.commands:
            _run(build, command)
        _own(build)
        build.whole.write_text(
            json.dumps({"commands": build.commands, "image": build.image}, indent=1) + "\n"
        )


@contextmanager
def _locked(build: Build) -> Iterator[None]:
    """Keeps two processes from making one build at the same time."""
    path = build.directory.with_name(f"{build.directory.name}.lock")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _check_source(build: Build) -> None:
    """Refuses a source that is not the one that the design was made for."""
    if build.source is None or build.source_sha256 is None:
        return
    if sources.digest(str(build.source)) != build.source_sha256:
        raise LabError(
            f"{build.source}: the source of {build.name} has changed since the design was begun",
            "restore it, or name another directory with --records",
        )


def _own(build: Build) -> None:
    """Makes the user the owner of all files of a build, for native rows and for the next build.

    In an image root builds, who may give files away: tar does, to the owners in its archive.
    """
    if build.image is None:
        return
    user = os.geteuid()
    if any(path.lstat().st_uid != user for path in build.directory.rglob("*")):
        _run(build, ("chown", "-hR", "0:0", str(build.directory)))


def _run(build: Build, command: tuple[str, ...]) -> None:
    """Runs one command of a build, in its directory."""
    words = list(command)
    if build.image is not None:
        shown = [] if build.source is None else [build.source, *sources.headers(build.source)]
        setting = Setting(
            image=build.image,
            volumes=(
                *(f"{path}:{path}:ro" for path in shown),
                f"{build.directory}:{build.directory}",
            ),
            workdir=str(build.directory),
        )
        words = environments.find("coracle").command(words, setting)
    else:
        words = ["env", f"--chdir={build.directory}", *words]
    said = run(words, LIMIT_S)
    if said.why:
        where = f"in image {build.image}" if build.image is not None else "on the host"
        build.log.write_text(f"{shlex.join(command)}\n{said.out}", errors="surrogateescape")
        raise LabError(
            f"{build.name} cannot be built {where}: {said.why}",
            f"the command was: {shlex.join(command)}; what it wrote is in {build.log}",
            FAILED,
        )
