"""Holds the namespaces of simulated nodes: COUNT NETWORK [RATE]. `coracle_lab.nodes` starts it.

It runs in a user namespace, with its capabilities, in which it makes a bridge, and for each node a
process with a user, a network and a UTS namespace. A veth pair joins each node to the bridge. It
prints one line of JSON: the processes of the nodes, and what the kernel can do; or the line
`error: WHY`.

Then it reads commands, `cut NODE` and `join NODE`, and answers each with a line. It ends with its
standard input, that is with its owner, however that ends; and the nodes end with it.

Each node has a user namespace of its own, owned by the caller, because a process of the bridge's
user namespace may enter that without capabilities: so a launcher that runs there starts its
daemons in nodes, and neither it nor its ranks have capabilities.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BRIDGE, LINK = "wire", "eth0"
QUEUES = {
    "tbf": ("rate", "1gbit", "burst", "256kb", "latency", "50ms"),
    "netem": ("delay", "1ms"),
}
"""Queueing disciplines and words of tc(8) for them, by which each is tried."""

UNSHARE = ("unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--uts")
NODE = 'hostname "$1" && ip link set lo up && echo ready && read -r end'


class Failed(Exception):
    """A command that makes the nodes has failed."""


def said(words: Sequence[str]) -> str:
    """Runs a command; returns its error, or nothing."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return f"{words[0]}: {lines[-1] if lines else f'status {done.returncode}'}"


def do(*words: str) -> None:
    """Runs a command, which must not fail."""
    why = said(words)
    if why:
        raise Failed(f"{why} ({' '.join(words)})")


def usable(kind: str) -> str:
    """Tries a queueing discipline; returns why the kernel does not have it, or nothing."""
    add = ("tc", "qdisc", "add", "dev", "lo", "root", kind, *QUEUES[kind])
    why = said(add)
    said(("tc", "qdisc", "del", "dev", "lo", "root"))
    return why


def node(number: int, network: str, rate: str | None) -> subprocess.Popen[str]:
    """Starts the process that holds a node, and joins it to the bridge."""
    first = subprocess.Popen(
        [*UNSHARE, "sh", "-c", NODE, "sh", f"node{number}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None and first.stderr is not None
    if first.stdout.readline().strip() != "ready":
        raise Failed(f"a node does not start: {first.stderr.read().strip()}")
    port = f"port{number}"
    there = ("nsenter", f"--net=/proc/{first.pid}/ns/net")
    # `index`: the kernel's numbers of interfaces differ between nodes otherwise.
    link = ("type", "veth", "peer", "name", LINK, "index", "100", "netns", str(first.pid))
    do("ip", "link", "add", port, *link)
    do("ip", "link", "set", port, "master", BRIDGE, "up")
    do(*there, "ip", "addr", "add", f"{network}.{number}/24", "dev", LINK)
    do(*there, "ip", "link", "set", LINK, "up")
    if rate is not None:
        # A bucket of more than the longest packet, which is then not cut.
        bucket = ("tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        do(*there, "tc", "qdisc", "add", "dev", LINK, "root", *bucket)
    return first


def make(count: int, network: str, rate: str | None) -> list[subprocess.Popen[str]]:
    """Makes the bridge and the nodes, and tells the owner."""
    do("hostname", "front")
    do("ip", "link", "set", "lo", "up")
    missing = {kind: usable(kind) for kind in QUEUES}
    if rate is not None and missing["tbf"]:
        raise Failed(f"the kernel cannot limit a rate: {missing['tbf']}")
    do("ip", "link", "add", BRIDGE, "type", "bridge")
    do("ip", "addr", "add", f"{network}.254/24", "dev", BRIDGE)
    do("ip", "link", "set", BRIDGE, "up")
    firsts = [node(number, network, rate) for number in range(1, count + 1)]
    told = {"nodes": [first.pid for first in firsts], "missing": missing}
    print(json.dumps(told), flush=True)
    return firsts


def network_of(process: str) -> int:
    """Returns the number of a process's network namespace; 0 if the process is gone."""
    try:
        return Path("/proc", process, "ns/net").stat().st_ino
    except OSError:
        return 0


def end(firsts: Sequence[subprocess.Popen[str]]) -> None:
    """Ends the nodes and what still runs in them: a daemon whose link is cut hears of no end."""
    own = {str(first.pid): network_of(str(first.pid)) for first in firsts}
    networks = set(own.values()) - {0}
    while True:
        names = (path.name for path in Path("/proc").iterdir())
        found = [name for name in names if name.isdigit() and name not in own]
        left = [name for name in found if network_of(name) in networks]
        if not left:
            break
        for name in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)
    for first in firsts:
        assert first.stdin is not None
        first.stdin.close()
        first.wait()


def main(count: str, network: str, rate: str | None = None) -> int:
    """Makes the nodes, and holds them until standard input ends."""
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        # The list is kept: a process whose input is closed ends.
        firsts = make(int(count), network, rate)
        for line in sys.stdin:
            what, _, number = line.strip().partition(" ")
            state = {"cut": "down", "join": "up"}[what]
            do("ip", "link", "set", f"port{int(number)}", state)
            print("done", flush=True)
    except (Failed, OSError) as error:
        print(f"error: {error}", flush=True)
        return 1
    end(firsts)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
