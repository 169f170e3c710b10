"""Makes the template of an OCI bundle's `config.json` of what `runc spec --rootless` has written.

    python3 -I bundle.py CONFIG --root TREE [--volume V]... [--workdir DIR]

The template stands beside CONFIG, in `template.json`; `bundle.bash` puts the program's words and
variables into it at each start. The container shares all of the host but its file system, as
Coracle's do unless they are told otherwise: that is what ranks of MPI need, and without a pid
namespace the container shows the host's processes in `/proc`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SHARED = ("/proc", "/sys", "/dev", "/tmp")


def main() -> None:
    """Writes the template."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--root", required=True)
    parser.add_argument("--volume", action="append", default=[])
    parser.add_argument("--workdir", default="/")
    words = parser.parse_args()
    config = json.loads(words.config.read_text())
    change(config, words.root, words.volume, words.workdir)
    text = json.dumps(config).replace('"@ARGS@"', "@ARGS@").replace('"@ENV@"', "@ENV@")
    words.config.with_name("template.json").write_text(text)


def change(config: dict[str, Any], root: str, volumes: list[str], workdir: str) -> None:
    """Changes the specification of a rootless container to what the lab measures."""
    # bundle.bash wants the words before the variables. The caller's limits stay as they are.
    process = {"args": ["@ARGS@"], "env": ["@ENV@"], **config["process"]}
    process.update(terminal=False, args=["@ARGS@"], env=["@ENV@"], cwd=workdir)
    process.pop("rlimits", None)
    config["process"] = process
    config["root"] = {"path": root, "readonly": False}
    config["mounts"] = [_bind(path, path, False) for path in SHARED]
    for volume in volumes:
        source, target, *options = volume.split(":")
        config["mounts"].append(_bind(source, target, options == ["ro"]))
    linux = config["linux"]
    linux["namespaces"] = [{"type": "mount"}, {"type": "user"}]
    for key in ("maskedPaths", "readonlyPaths", "resources", "cgroupsPath", "seccomp"):
        linux.pop(key, None)
    config.pop("hostname", None)


def _bind(source: str, target: str, readonly: bool) -> dict[str, Any]:
    options = ["rbind", "ro"] if readonly else ["rbind"]
    return {"destination": target, "type": "bind", "source": source, "options": options}


if __name__ == "__main__":
    main()
