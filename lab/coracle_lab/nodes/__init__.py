"""Simulated nodes on one machine: namespaces joined by veth links, without privileges.

    with nodes.made(2, "1gbit", directory) as some:
        words = [*some.launcher(ranks=2), "./program"]

Each node has an address, a name and a network of its own; a bridge joins them, on which Open MPI's
`mpirun` runs as on a front end. It starts its daemons in the nodes by `agent.sh`, in the place of
`ssh`. Ranks reach each other by TCP over the links alone. Processors, memory and file systems are
those of the one machine: it says nothing about nodes that compute beside each other.

`holder.py` makes the nodes and holds them, as long as its owner lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coracle_lab import design
from coracle_lab.errors import LabError
from coracle_lab.nodes import holder

HERE = Path(__file__).parent
NETWORK = "10.77.0"
"""The first three numbers of the nodes' addresses. No other network is in their namespaces."""
PROGRAMS = ("unshare", "nsenter", "ip", "hostname")
MOST = 64
END_S = 10.0
PLAIN = re.compile(r"[A-Za-z0-9_./@%+=,-]+")


class Nodes:
    """Nodes that a holder keeps."""

    def __init__(self, owner: subprocess.Popen[str], directory: Path, rate: str | None) -> None:
        """Takes a holder that has made the nodes' namespaces, and a directory of its own."""
        self._holder = owner
        self._rate = rate
        told = json.loads(_answer(owner))
        self.processes: list[int] = told["nodes"]
        """The process that holds each node's namespaces."""
        self._missing: dict[str, str] = told["missing"]
        self._agent = directory / "agent"
        self._hosts = directory / "hosts"
        shutil.copyfile(HERE / "agent.sh", self._agent)
        self._agent.chmod(0o755)
        addresses = [f"{NETWORK}.{number}" for number in range(1, self.count + 1)]
        lines = [
            f"{one} {process}\n" for one, process in zip(addresses, self.processes, strict=True)
        ]
        (directory / "nodes").write_text("".join(lines))
        # More ranks than processors give way to each other while they wait.
        slots = max(1, len(os.sched_getaffinity(0)) // self.count)
        self._hosts.write_text("".join(f"{one} slots={slots}\n" for one in addresses))

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.processes)

    def launcher(self, ranks: int) -> list[str]:
        """Returns the words before a command that is to run once for each rank.

        Ranks are placed in turn. They are not bound to processors: each node would take the same.
        """
        at = f"/proc/{self._holder.pid}/ns"
        subnet = f"{NETWORK}.0/24"
        parameters = {
            # Hosts of an allocation are left alone.
            "ras": "^slurm,tm,lsf,gridengine,alps",
            "plm": "rsh",
            "plm_rsh_agent": str(self._agent),
            # The daemons stay children of the launcher: their usage is measured, and they end.
            "orte_leave_session_attached": "1",
            "oob_tcp_if_include": subnet,
            # Others would find out that all nodes have one memory.
            "pml": "ob1",
            "btl": "self,tcp",
            "btl_tcp_if_include": subnet,
        }
        if ranks > len(os.sched_getaffinity(0)):
            parameters["mpi_yield_when_idle"] = "1"
        return [
            *("nsenter", "--preserve-credentials"),
            *(f"--user={at}/user", f"--net={at}/net", f"--uts={at}/uts"),
            *("mpirun", "-np", str(ranks), "--hostfile", str(self._hosts)),
            *("--map-by", "node", "--bind-to", "none", "--oversubscribe"),
            *(word for name, value in parameters.items() for word in ("--mca", name, value)),
        ]

    def facts(self) -> dict[str, Any]:
        """Returns what records say of the nodes; `missing` is what the kernel lacks, and why."""
        missing = {kind: why for kind, why in self._missing.items() if why}
        return {
            "count": self.count,
            "kind": "namespaces",
            "transport": "TCP over veth",
            "rate": self._rate,
            "missing": missing,
        }

    def sent(self, node: int) -> int:
        """Returns the bytes that a node has sent over its link. Nodes count from 1."""
        counters = Path(f"/proc/{self.processes[node - 1]}/net/dev").read_text()
        for line in counters.splitlines():
            name, _, values = line.partition(":")
            if name.strip() == holder.LINK:
                return int(values.split()[8])
        raise LabError(f"node {node} has no link {holder.LINK}")

    def cut(self, node: int, cut: bool = True) -> None:
        """Cuts a node's link, or joins it again."""
        assert self._holder.stdin is not None
        self._holder.stdin.write(f"{'cut' if cut else 'join'} {node}\n")
        self._holder.stdin.flush()
        _answer(self._holder)


def allocated() -> dict[str, Any] | None:
    """Returns what records say of the nodes of an allocation of Slurm; None without one."""
    count = os.environ.get("SLURM_JOB_NUM_NODES")
    if count is None or not count.isdigit():
        return None
    return {"count": int(count), "kind": "slurm"}


@contextlib.contextmanager
def wanted(of_design: design.Nodes | None, directory: Path) -> Iterator[Nodes | None]:
    """Makes the nodes of a design, if it has some."""
    if of_design is None:
        yield None
        return
    with made(of_design.count, of_design.rate, directory) as some:
        yield some


@contextlib.contextmanager
def made(count: int, rate: str | None, directory: Path) -> Iterator[Nodes]:
    """Makes nodes that live as long as the context. `rate` is of each link, as tc(8) takes it.

    Raises `LabError` where user namespaces are forbidden, or the kernel cannot limit the rate.
    """
    if not 1 <= count <= MOST:
        raise LabError(f"{count} nodes cannot be simulated", f"from 1 to {MOST} can")
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    for program in (*PROGRAMS, *(["tc"] if rate else [])):
        if shutil.which(program, path=path) is None:
            raise LabError(
                f"nodes cannot be simulated: {program} is not installed",
                "Debian has it in hostname, iproute2 or util-linux",
            )
    # Launchers split the agent's path at spaces and colons.
    beneath = directory if PLAIN.fullmatch(str(directory)) else None
    with tempfile.TemporaryDirectory(prefix="nodes-", dir=beneath) as place:
        words = [sys.executable, "-I", holder.__file__, str(count), NETWORK]
        owner = subprocess.Popen(
            [*holder.UNSHARE, *words, *filter(None, [rate])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A signal from the terminal is for the lab, which ends the nodes last.
            start_new_session=True,
        )
        try:
            yield Nodes(owner, Path(place), rate)
        finally:
            _end(owner)


def _answer(owner: subprocess.Popen[str]) -> str:
    """Returns the holder's next line; raises `LabError` for what it could not do."""
    assert owner.stdout is not None and owner.stderr is not None
    line = owner.stdout.readline().strip()
    if line and not line.startswith("error: "):
        return line
    why = line.removeprefix("error: ") or owner.stderr.read().strip()
    if "unshare failed" in why or "uid_map" in why:
        raise LabError(
            f"nodes cannot be simulated: user namespaces are forbidden here ({why})",
            "an allocation of Slurm needs none: salloc -N2 coracle-lab run DESIGN --launcher srun",
        )
    raise LabError(f"nodes cannot be simulated: {why}")


def _end(owner: subprocess.Popen[str]) -> None:
    """Closes the holder's input, at which it ends what is left in the nodes, and itself."""
    assert owner.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        owner.stdin.close()
    try:
        owner.wait(END_S)
    except subprocess.TimeoutExpired:
        owner.kill()
        owner.wait()
    for stream in (owner.stdout, owner.stderr):
        assert stream is not None
        stream.close()
