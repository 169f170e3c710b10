"""Writes an image of many layers as an archive that `coracle load` takes.

The first layer is a whole tree; each further one has a small file of its own, so that images of
one and of sixty layers hold the same but for these. The form is that of `docker save`.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

DIRECTORY = "usr/share/coracle-lab"
"""Where each layer but the first has its file."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MEBIBYTE = 1 << 20


def write(tree: Path, layers: int, name: str, archive: Path) -> None:
    """Writes the archive of an image of so many layers; `tree` is the tar of the first one."""
    more = [_small(number) for number in range(2, layers + 1)]
    digests = [_digest(tree), *(hashlib.sha256(one).hexdigest() for one in more)]
    names = [f"{digest}/layer.tar" for digest in digests]
    config = json.dumps({
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }).encode()  # fmt: skip
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": names}]
    with tarfile.open(archive, "w") as out:
        out.add(tree, names[0])
        for where, data in zip(names[1:], more, strict=True):
            _add(out, where, data)
        _add(out, config_name, config)
        _add(out, "manifest.json", json.dumps(manifest).encode())


def _small(number: int) -> bytes:
    """Returns the tar of a layer with one small file."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as out:
        _add(out, f"{DIRECTORY}/layer-{number}", f"{number}\n".encode())
    return data.getvalue()


def _add(out: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o644
    out.addfile(member, io.BytesIO(data))


def _digest(path: Path) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(MEBIBYTE):
            made.update(part)
    return made.hexdigest()
