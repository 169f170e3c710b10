"""Directory trees of images, and scratch directories.

Environments that take no image get its tree: `coracle export` writes it once into a cache
directory, under the digest of the image, and it is kept. Programs that run in a tree can change
it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from coracle_lab import cache
from coracle_lab.environments.process import run
from coracle_lab.environments.setting import Setting
from coracle_lab.errors import LabError

_INSPECT_LIMIT_S = 60
_PULL_LIMIT_S = 3600


def scratch(name: str, setting: Setting) -> Path:
    """Returns the directory that an environment has for itself with this setting."""
    facts = [
        setting.image,
        str(setting.rootfs),
        setting.volumes,
        setting.workdir,
        sorted(setting.variables.items()),
        setting.gpus,
    ]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    return cache.directory() / "scratch" / re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-") / digest


def place(image: str) -> Path:
    """Returns where the tree of an image is, or will be when it was made."""
    return cache.directory() / "trees" / _digest(image).replace("sha256:", "")[:16]


def make(image: str) -> Path:
    """Returns the tree of an image, which is made if it is not there."""
    if _id(image) is None:
        said = run([_coracle(), "pull", "-q", image], _PULL_LIMIT_S)
        if said.why:
            raise LabError(f"image {image}: {said.why}")
    tree = place(image)
    if tree.is_dir():
        return tree
    tree.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f"{tree.name}.", dir=tree.parent))
    try:
        _export(image, new)
        new.chmod(0o755)
        try:
            new.rename(tree)
        except OSError:
            # Another process has made it meanwhile.
            if not tree.is_dir():
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return tree


def probe_tree() -> Path:
    """Returns a tree that holds the host's `true` and `sh`, with the libraries that they need."""
    tree = cache.directory() / "probe-tree"
    if tree.is_dir():
        return tree
    tree.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix="probe-tree.", dir=tree.parent))
    for name in ("true", "sh"):
        program = shutil.which(name)
        if program is None:
            raise LabError(f"{name} is not in PATH")
        _copy(program, new / "bin" / name)
        for library in re.findall(r"/\S+", run(["ldd", program], _INSPECT_LIMIT_S).out):
            _copy(library, new / library.lstrip("/"))
    for name in ("tmp", "dev", "proc", "sys", "etc"):
        (new / name).mkdir(exist_ok=True)
    # Some programs mount files over these.
    (new / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (new / "etc/group").write_text("root:x:0:\n")
    new.chmod(0o755)
    try:
        new.rename(tree)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not tree.is_dir():
            raise
    return tree


def _copy(source: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


# Owners and devices cannot be kept without privilege. `tar` gets what the pipe's first program
# writes before that one ends, so both statuses count.
_EXPORT = """
id=$("$1" create "$2" true) || exit 1
{ "$1" export "$id" || echo failed > "$3.failed"; } |
    tar -x --no-same-owner --exclude='dev/*' --exclude='./dev/*' -C "$3"
status=$?
"$1" rm "$id" > /dev/null
[ ! -e "$3.failed" ] || { rm "$3.failed"; exit 1; }
exit "$status"
"""


def _export(image: str, directory: Path) -> None:
    said = run(["sh", "-c", _EXPORT, "sh", _coracle(), image, str(directory)], _PULL_LIMIT_S)
    if said.why:
        raise LabError(f"no tree can be made of image {image}: {said.why}")


def _coracle() -> str:
    found = shutil.which("coracle")
    if found is None:
        raise LabError(
            "coracle is not in PATH: no tree can be made of an image",
            "put coracle into PATH, or name a directory tree in place of the image",
        )
    return found


def _digest(image: str) -> str:
    found = _id(image)
    if found is None:
        raise LabError(f"image {image} is not in Coracle's store", f"coracle pull {image}")
    return found


@lru_cache(maxsize=64)
def _known(coracle: str, store: str, image: str) -> str:
    said = run([coracle, "image", "inspect", "--format", "{{.Id}}", image], _INSPECT_LIMIT_S)
    if said.why:
        raise LookupError(said.why)
    return said.out.strip()


def _id(image: str) -> str | None:
    """The digest of an image, asked once: commands are made for each row."""
    store = f"{os.environ.get('CORACLE_DIR')} {Path.home()}"
    try:
        return _known(_coracle(), store, image)
    except LookupError:
        return None
