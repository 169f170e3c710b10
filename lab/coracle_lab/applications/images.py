"""Makes images of Debian releases where Coracle's store lacks them, as the user.

`mmdebstrap` makes the tree, in the mode that it chooses: as root, or in a user namespace, which
needs a range of ids in /etc/subuid. Where that cannot be, fakechroot is used if it is installed.
`coracle import` puts the tree into the store; an image of several layers is loaded.

The host's own package sources are taken if they are of that release, so that a local mirror is
used; else mmdebstrap's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from coracle_lab import cache
from coracle_lab.applications import layers
from coracle_lab.design import Image
from coracle_lab.environments.process import Said, run
from coracle_lab.errors import FAILED, LabError

LIMIT_S = 7200.0
_ASK_S = 60.0
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
UNREAD = ("doc", "man", "locale", "javascript")
"""Directories of files that no program of an image reads; they are a fifth of its size."""
SPLIT_USR = ("stretch", "buster", "bullseye")
"""Releases whose base system does not ask for a merged /usr."""
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")


def _coracle() -> str:
    found = shutil.which("coracle")
    if found is None:
        raise LabError(
            "coracle is not in PATH: the application's image can neither be found nor made",
            'put coracle into PATH, or write build_in = "host" and environments of the host only',
        )
    return found


@lru_cache(maxsize=64)
def _identity(coracle: str, image: str) -> str:
    said = run([coracle, "image", "inspect", "--format", "{{.Id}}", image], _ASK_S)
    if said.why:
        raise LookupError(said.why)
    return said.out.strip()


def identity(image: str) -> str | None:
    """Returns the id of an image in Coracle's store; None if it is not there."""
    try:
        return _identity(_coracle(), image)
    except LookupError:
        return None


def ensure(image: str, recipes: Sequence[Image]) -> None:
    """Puts an image into Coracle's store that is not there: by its recipe, else by a pull."""
    if identity(image) is not None:
        return
    recipe = next((one for one in recipes if one.name == image), None)
    if recipe is not None:
        make(recipe)
        return
    said = run([_coracle(), "pull", "-q", image], LIMIT_S)
    if said.why:
        raise LabError(
            f"image {image} is not in Coracle's store, and there is no recipe of it: {said.why}",
            "import or pull it, or write [[image]] with its name and a release",
        )


def make(recipe: Image) -> None:
    """Makes an image and imports it into Coracle's store."""
    program = shutil.which("mmdebstrap")
    if program is None:
        raise LabError(
            f"image {recipe.name} is not in Coracle's store, and mmdebstrap is not in PATH",
            f"install mmdebstrap, or import a tree of Debian {recipe.release} that has"
            f" {', '.join(recipe.packages) or 'no other packages'}: coracle import FILE"
            f" {recipe.name}",
        )
    cache.directory().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="image.", dir=cache.directory()) as name:
        archive = Path(name) / "image.tar"
        said = run(command(program, recipe, archive), LIMIT_S)
        if said.why:
            raise _not_made(recipe, said)
        words = ["import", "-q", str(archive), recipe.name]
        if recipe.layers > 1:
            words = ["load", "-q", "-i", str(archive.with_name("layers.tar"))]
            layers.write(archive, recipe.layers, recipe.name, archive.with_name("layers.tar"))
        said = run([_coracle(), *words], LIMIT_S)
        if said.why:
            raise LabError(f"image {recipe.name} cannot be imported: {said.why}", status=FAILED)


def command(program: str, recipe: Image, archive: Path) -> list[str]:
    """Returns the command that makes the tree of an image."""
    words = [program, "--variant=minbase"]  # With --quiet apt does not say what it lacks.
    words += [f"--dpkgopt=path-exclude=/usr/share/{unread}/*" for unread in UNREAD]
    packages = list(recipe.packages)
    if _needs_fakechroot():
        words.append("--mode=fakechroot")
        if recipe.release not in SPLIT_USR and Path(MERGED_USR).is_dir():
            # The package that merges /usr in an old tree cannot be configured by fakechroot.
            words.append(f"--hook-dir={MERGED_USR}")
            packages.append("usr-is-merged")
    if packages:
        words.append(f"--include={','.join(packages)}")
    return [*words, recipe.release, str(archive), *_sources(recipe.release)]


def _needs_fakechroot() -> bool:
    """Tells whether fakechroot is installed, and mmdebstrap's other modes cannot work."""
    if os.geteuid() == 0 or not (shutil.which("fakechroot") and shutil.which("fakeroot")):
        return False
    return not _has_range() or bool(run(["unshare", "--user", "true"], _ASK_S).why)


def _has_range() -> bool:
    """Tells whether the user has a range of ids for user namespaces."""
    owners = {str(os.getuid())}
    with contextlib.suppress(KeyError):
        owners.add(pwd.getpwuid(os.getuid()).pw_name)
    try:
        lines = Path("/etc/subuid").read_text().splitlines()
    except OSError:
        return False
    return any(line.partition(":")[0] in owners for line in lines)


def _sources(release: str) -> list[str]:
    """Returns the host's file of package sources, if it is of this release."""
    for name in SOURCES:
        try:
            text = Path(name).read_text()
        except OSError:
            continue
        if release in text.replace("/", " ").replace("-", " ").split():
            return [name]
    return []


def _not_made(recipe: Image, said: Said) -> LabError:
    """Returns the error about mmdebstrap, with what can be done."""
    hint = "mmdebstrap needs the network, or a mirror in /etc/apt/sources.list"
    if "mode" in said.why or "newuidmap" in said.why or "subuid" in said.why:
        hint = (
            "install fakechroot and fakeroot, or have a range of ids in /etc/subuid and uidmap;"
            f" or import a tree that another machine made: coracle import FILE {recipe.name}"
        )
    elif "Unable to locate package" in said.why or "Release file" in said.why:
        hint = "correct its [[image]]: a release of Debian, and packages of that release"
    return LabError(f"image {recipe.name} cannot be made: {said.why}", hint, FAILED)
