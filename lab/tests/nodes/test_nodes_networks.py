"""Coracle's private networks as environments: ranks in two containers, started by Open MPI."""

from __future__ import annotations

import json
from pathlib import Path

import lab_host as hosts
import lab_nodes
import pytest

pytestmark = pytest.mark.real

DESIGN = """
seed = 6
replicates = 1
[sentinel]
above = 9.0
[factors]
environment = ["native", "coracle-network:names", "coracle-network:names-outside",
               "coracle-network:overlay"]
ranks = [2]
[application]
image = "lab/launcher:1"
command = ["ranks-openmpi"]
success = "ring of 2 ranks: right"
variables = { WORD = "of the design" }
responses = { inside = 'in the container: ([01]), of the design' }
"""


@pytest.fixture(scope="module")
def launched(place: Path, host: hosts.Host) -> hosts.Host:
    """A host with an image that has Open MPI's launcher."""
    if not (place / "launcher").exists():
        lab_nodes.with_launcher(host, place)
    return host


def test_networks(launched: hosts.Host) -> None:
    host = launched
    directory = host.home / f"networks-{host.forbidden}"
    write = ["sh", "-c", 'mkdir "$1"; printf %s "$2" > "$1/d.toml"', "sh", str(directory), DESIGN]
    assert host.run(write).returncode == 0
    lab = [host.python(), "-m", "coracle_lab.cli", "run", str(directory / "d.toml")]
    done = host.run([*lab, "--launcher", "mpirun"])
    lines = (directory / "d-records/records.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    measured = {
        one["levels"]["environment"]: one["responses"]["inside"]
        for one in rows
        if one["row"] and one["outcome"] == "ok"
    }
    expected = {"native": 0.0, "coracle-network:names": 1.0, "coracle-network:names-outside": 1.0}
    if not host.forbidden:
        expected["coracle-network:overlay"] = 1.0
    assert measured == expected, done.stdout + done.stderr
    left = host.run(["coracle", "ps", "-a", "-q"])
    assert left.stdout == "", "containers are left"
