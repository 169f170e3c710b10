"""Simulated nodes: ranks in every environment send over the links, and nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import lab_host as hosts
import lab_nodes
import pytest

pytestmark = pytest.mark.real

SENT = 2 * (4 << 20)
"""What each rank of a ring sends, in bytes."""
ENVIRONMENTS = ("native", "coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2", "bwrap")

DESIGN = """
seed = 5
replicates = 1
[sentinel]
above = 9.0
[nodes]
count = 2
rate = "100mbit"
[factors]
environment = ["native", "coracle:I1", "coracle-network:names"]
ranks = [2]
[application]
image = "lab/mpi:1"
command = ["ranks-openmpi"]
success = "ring of 2 ranks: right"
"""


def simulated(host: hosts.Host, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return host.run([host.python(), "-c", script, *words])


@pytest.fixture
def allowed(host: hosts.Host) -> hosts.Host:
    """A host on which nodes can be simulated."""
    if host.forbidden:
        hosts.skip("nodes are made of user namespaces, which are forbidden here")
    for program in ("ip", "tc"):
        if shutil.which(program, path=os.pathsep.join(hosts.SYSTEM)) is None:
            hosts.skip(f"{program} is not installed (iproute2)")
    return host


def left(host: hosts.Host) -> list[str]:
    """Returns the processes that live in the user's home, but for Podman's: it leaves one behind
    that holds its user's namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "podman" in command.split(" ")[0]:
            continue
        if f"HOME={host.home}".encode() in variables and command:
            found.append(f"{process.name} {command}")
    return found


def is_empty(host: hosts.Host) -> bool:
    """Waits until no process of the user is left."""
    end = time.monotonic() + 20
    while left(host) and time.monotonic() < end:
        time.sleep(0.1)
    return not left(host) and not list(host.home.glob("nodes-*"))


def test_messages_go_over_the_links(allowed: hosts.Host) -> None:
    names = [name for name in ENVIRONMENTS if name != "bwrap" or shutil.which("bwrap")]
    done = simulated(allowed, lab_nodes.RINGS, hosts.IMAGE, *names)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in told] == names, done.stderr
    for name, status, sent, out, errors in told:
        inside = int(name != "native")
        assert status == 0, (name, errors)
        assert f"ring of 2 ranks: right, in the container: {inside}, " in out, name
        assert all(count >= SENT for count in sent), (name, sent)
    assert is_empty(allowed), left(allowed)


def test_a_cut_link_stops_the_ranks(allowed: hosts.Host) -> None:
    done = simulated(allowed, lab_nodes.CUT)
    before, _, after = done.stdout.partition("\n")
    assert before.startswith(("hangs", "ended ")) and before != "ended 0", done.stderr
    assert after.count("ring of 2 ranks: right") == 1, done.stdout
    assert is_empty(allowed), left(allowed)


def test_the_rate_is_limited(allowed: hosts.Host) -> None:
    done = simulated(allowed, lab_nodes.RATE, "100mbit")
    if "the kernel cannot limit a rate" in done.stderr:
        hosts.skip(done.stderr.strip().splitlines()[-1])
    assert "'rate': '100mbit'" in done.stdout, done.stderr
    counted = [
        line.split("overlimits ")[1].split()[0]
        for line in done.stdout.splitlines()
        if "overlimits" in line
    ]
    assert len(counted) == 2 and all(int(count) > 0 for count in counted), done.stdout


def test_nothing_outlives_the_owner(allowed: hosts.Host) -> None:
    words = [*allowed.prefix(), allowed.python(), "-c", lab_nodes.KILLED]
    path = os.pathsep.join(hosts.SYSTEM)
    variables = {
        "HOME": str(allowed.home),
        "PATH": path,
        "PYTHONPATH": allowed.run(["printenv", "PYTHONPATH"]).stdout.strip(),
    }
    owner = subprocess.Popen(
        words, env=variables, cwd=allowed.home, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    launcher, *processes = owner.stdout.readline().split()
    assert len(processes) == 2
    end = time.monotonic() + 20
    while sum("sleep 600" in line for line in left(allowed)) < 3 and time.monotonic() < end:
        time.sleep(0.1)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    # The launcher is the owner's affair; it ends because its daemons do.
    gone = time.monotonic() + 20
    while any(Path("/proc", pid).exists() for pid in processes) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not any(Path("/proc", pid).exists() for pid in processes)
    for place in allowed.home.glob("nodes-*"):
        shutil.rmtree(place)
    assert is_empty(allowed), (launcher, left(allowed))


def test_a_design(host: hosts.Host) -> None:
    directory = host.home / f"design-{host.forbidden}"
    write = ["sh", "-c", 'mkdir "$1"; printf %s "$2" > "$1/d.toml"', "sh", str(directory), DESIGN]
    assert host.run(write).returncode == 0
    lab = [host.python(), "-m", "coracle_lab.cli", "run", str(directory / "d.toml")]
    refused = host.run([*lab, "--launcher", "mpirun"])
    assert refused.returncode == 2 and "[nodes]" in refused.stderr
    done = host.run(lab)
    if host.forbidden:
        assert done.returncode == 2, done.stdout
        assert "user namespaces are forbidden here" in done.stderr
        return
    if "the kernel cannot limit a rate" in done.stderr:
        hosts.skip(done.stderr.strip())
    records = directory / "d-records"
    lines = [json.loads(line) for line in (records / "records.jsonl").read_text().splitlines()]
    measured = {one["levels"]["environment"]: one["outcome"] for one in lines if one["row"]}
    assert measured == {"native": "ok", "coracle:I1": "ok"}, done.stdout + done.stderr
    assert "coracle-network:names" in done.stdout + done.stderr
    facts = json.loads((records / "facts.jsonl").read_text().splitlines()[0])["facts"]
    assert facts["nodes"]["count"] == 2 and facts["nodes"]["rate"] == "100mbit"
    assert is_empty(host), left(host)
