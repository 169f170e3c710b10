"""Makes two containers on a private network of Coracle, in which ranks of MPI are to be started.

    python3 -I network.py prepare PROGRAM NETWORK SCRATCH IMAGE NAME [VOLUME...]
    python3 -I network.py probe PROGRAM NETWORK TREE

NETWORK is `names` or `overlay`. They are the nodes of a cluster of Coracle's, which `prepare`
starts; `coracle cluster down NAME` ends it. In SCRATCH it writes the cluster's file, and for a
launcher on the host the list of nodes and the agent that starts the launcher's daemons in them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

NODES = 2
MODES = {"names": "I1", "overlay": "N1"}

# Open MPI tells its daemons to use the same agent, and in a container it has another path.
AGENT = """#!/bin/sh
own=$0 node=$1
shift
exec '{program}' cluster exec -i '{name}' "$node" \\
    sh -c "$(printf '%s' "$*" | sed "s|$own|/run/coracle/rsh|g")"
"""


def prepare(program: str, network: str, scratch: str, image: str, name: str, *volumes: str) -> int:
    """Starts the containers."""
    place = Path(scratch)
    if not re.fullmatch(r"[A-Za-z0-9_./@%+=,-]+", f"{program}{scratch}"):
        print(f"error: Open MPI cannot use paths with such signs: {scratch}", file=sys.stderr)
        return 1
    # Texts of JSON are texts of TOML.
    lines = {"name": name, "image": image, "network": network, "volume": list(volumes)}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
    file = place / "cluster.toml"
    file.write_text(f'{text}nodes = {NODES}\n[run]\ncommand = ["true"]\n')
    names = (f"node{number} slots=1\n" for number in range(1, NODES + 1))
    (place / "hosts").write_text("".join(names))
    agent = place / "agent"
    agent.write_text(AGENT.format(program=program, name=name))
    agent.chmod(0o755)
    return subprocess.call([program, "cluster", "up", "-d", "-f", str(file)])


def probe(program: str, network: str, tree: str) -> int:
    """Starts a container alone, in the mode that the network has, with a network of its own."""
    mode = f"--execmode={MODES[network]}"
    words = ["run", "--rm", "-q", mode, "--network=private", f"--rootfs={tree}", "/bin/true"]
    return subprocess.call([program, *words])


if __name__ == "__main__":
    sys.exit(probe(*sys.argv[2:]) if sys.argv[1] == "probe" else prepare(*sys.argv[2:]))
