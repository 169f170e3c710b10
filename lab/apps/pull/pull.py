"""Pulls an image from a registry on the loopback, with a store that is empty.

Words: make DIRECTORY LAYERS MIB, or pull DIRECTORY TOOL. `make` writes an image of LAYERS layers
of MIB MiB each into the storage of a registry. `pull` serves it, and pulls it by TOOL: coracle,
podman, or skopeo, which unpacks nothing. `pull_s` is the time of that alone. The layers that have
come have the digests of those that were made.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NAME = "lab/pull:1"
LIMIT_S = 60.0
FILE = 64 << 10
"""Bytes of a file of a layer; half of them can be compressed."""
CONFIG = """version: 0.1
storage:
  filesystem: {{rootdirectory: "{storage}"}}
  delete: {{enabled: false}}
  maintenance: {{readonly: {{enabled: {readonly}}}, uploadpurging: {{enabled: false}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: error}}
"""


def fail(what: str, status: int = 1) -> None:
    """Ends with a message."""
    sys.stderr.write(f"error: {what}\n")
    raise SystemExit(status)


def layer(number: int, mib: int) -> bytes:
    """Returns a layer as an uncompressed archive. It is the same each time."""
    draw = random.Random(number)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for file in range((mib << 20) // FILE):
            content = draw.randbytes(FILE // 2) + bytes(FILE // 2)
            member = tarfile.TarInfo(f"data/layer-{number}/part-{file % 16}/file-{file}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def image(directory: Path, layers: int, mib: int) -> list[str]:
    """Writes an image in the layout of OCI; returns the digests of its uncompressed layers."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    diffs, parts = [], []
    for number in range(layers):
        content = layer(number, mib)
        diffs.append(f"sha256:{hashlib.sha256(content).hexdigest()}")
        parts.append(blob("layer.v1.tar+gzip", gzip.compress(content, 6, mtime=0)))
    settings = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "amd64"),
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": diffs},
    }
    config = blob("config.v1+json", json.dumps(settings).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": parts,
    }
    entry = blob("manifest.v1+json", json.dumps(manifest).encode())
    index = {"schemaVersion": 2, "manifests": [entry]}
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return diffs


def _own() -> dict[str, str]:
    """Returns variables by which a tool finds nothing of the user's: no store, no passwords."""
    here = Path.cwd()
    (here / "auth.json").write_text("{}")
    names = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
    own = {name: str(here / name.lower()) for name in names}
    for path in own.values():
        Path(path).mkdir(mode=0o700, exist_ok=True)
    return {**os.environ, **own, "REGISTRY_AUTH_FILE": str(here / "auth.json")}


def _run(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            list(words),
            env=_own(),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        fail(f"{words[0]}: {error.strerror}")
        raise
    if done.returncode != 0:
        fail(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


@contextmanager
def registry(storage: Path, readonly: bool) -> Iterator[str]:
    """Serves a directory; yields the name of the image there."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    settings = Path("registry.yml")
    fields = {"storage": storage.absolute(), "port": port, "readonly": str(readonly).lower()}
    settings.write_text(CONFIG.format(**fields))
    with Path("registry.log").open("w") as log:
        try:
            server = subprocess.Popen(
                ["docker-registry", "serve", str(settings)], stdout=log, stderr=log
            )
        except OSError as error:
            fail(f"docker-registry: {error.strerror}")
            raise
    try:
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > until:
                    fail(f"the registry does not listen: {Path('registry.log').read_text()[-500:]}")
                time.sleep(0.002)
        yield f"127.0.0.1:{port}/{NAME}"
    finally:
        server.terminate()
        server.wait()


def make(directory: Path, layers: int, mib: int) -> None:
    """Makes the image, and puts it into the storage of a registry."""
    diffs = image(directory / "image", layers, mib)
    (directory / "layers.json").write_text(json.dumps(diffs))
    with registry(directory / "storage", False) as name:
        words = ["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{directory}/image"]
        _run([*words, f"docker://{name}"])


def commands(tool: str, name: str, runroot: str) -> tuple[list[str], list[str]]:
    """Returns the command that pulls, and the one that prints the layers as JSON."""
    podman = ["podman", f"--root={Path.cwd()}/podman", f"--runroot={runroot}"]
    podman += ["--storage-driver=vfs"]
    layers = "--format={{json .RootFS.Layers}}"
    known = {
        "coracle": (
            ["coracle", "pull", "-q", "--tls-verify=false", name],
            ["coracle", "image", "inspect", layers, name],
        ),
        "podman": (
            [*podman, "pull", "-q", "--tls-verify=false", name],
            [*podman, "image", "inspect", layers, name],
        ),
        "skopeo": (
            ["skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{name}", "oci:here:1"],
            ["skopeo", "inspect", "--config", "oci:here:1"],
        ),
    }
    if tool not in known:
        fail(f'there is no tool "{tool}": coracle, podman, skopeo', 2)
    return known[tool]


def _end_podman() -> None:
    """Ends the process by which a rootless Podman keeps the user namespace of this store."""
    for path in Path("xdg_runtime_dir").rglob("pause.pid"):
        os.kill(int(path.read_text()), signal.SIGKILL)


def pull(directory: Path, tool: str) -> None:
    """Pulls the image once."""
    # Podman takes no long path for it.
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as runroot,
        registry(directory / "storage", True) as name,
    ):
        words, look = commands(tool, name, runroot)
        began = time.monotonic()
        _run(words)
        pull_s = time.monotonic() - began
        try:
            told = json.loads(_run(look))
        finally:
            _end_podman()
    layers = told if isinstance(told, list) else told["rootfs"]["diff_ids"]
    right = json.loads((directory / "layers.json").read_text())
    if layers != right:
        fail(f"the layers are {layers}, and not {right}")
    print("lab", json.dumps({"pull_s": pull_s}))


def main() -> None:
    """Runs as the words say."""
    words = sys.argv[1:]
    if len(words) == 4 and words[0] == "make":
        make(Path(words[1]), int(words[2]), int(words[3]))
    elif len(words) == 3 and words[0] == "pull":
        pull(Path(words[1]), words[2])
    else:
        fail("words: make DIRECTORY LAYERS MIB, or pull DIRECTORY TOOL", 2)


if __name__ == "__main__":
    main()
