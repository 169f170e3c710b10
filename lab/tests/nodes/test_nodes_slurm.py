"""A design within an allocation of a real Slurm with two nodes, and with a job for each row."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import lab_host as hosts
import lab_nodes
import lab_slurm
import pytest

pytestmark = pytest.mark.real

DESIGN = """
seed = 8
replicates = 1
[sentinel]
above = 9.0
[factors]
environment = ["native", "coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2"]
program = ["ep S 1", "pingpong warm 1024,1048576 10"]
ranks = [2]
[application]
image = "lab/mpi:1"
command = ["sh", "-c", "exec PROGRAMS/{program}"]
volumes = ["PROGRAMS:PROGRAMS"]
success = '(?s)lab-rank .*lab-rank '
"""

SITE = """
jobs = {"name": "jobs", "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"],
        "access": ["--nodes=2"], "env_vars": [["SLURM_MPI_TYPE", "pmix"]]}
site_configuration = {
    "systems": [{"name": "cluster", "hostnames": [".*"], "partitions": [jobs]}],
}
"""


@pytest.fixture(scope="module")
def programs(host: hosts.Host) -> Path:
    """The lab's kernels, compiled on the host: the image has the libraries."""
    place = host.bin.parent / "kernels"
    if not place.exists():
        place.mkdir()
        for name in ("ep", "pingpong"):
            source = host.lab / f"apps/{name}/{name}.c"
            words = ["mpicc.openmpi", "-O2", "-DLAB_MPI", str(source), "-o", str(place / name)]
            subprocess.run([*words, "-lm"], check=True, capture_output=True)
    return place


def test_allocation_and_jobs(host: hosts.Host, programs: Path) -> None:
    if host.forbidden:
        hosts.skip("with user namespaces forbidden, test_reframe_slurm.py runs steps of Slurm")
    slurm = lab_slurm.command(host)
    design = host.home / "slurm.toml"
    site = host.home / "slurm_site.py"
    for path, text in ((design, DESIGN.replace("PROGRAMS", str(programs))), (site, SITE)):
        done = host.run(["sh", "-c", 'printf %s "$2" > "$1"', "sh", str(path), text])
        assert done.returncode == 0, done.stderr
    run = [host.python(), "-m", "coracle_lab.cli", "run", str(design)]
    done = host.run(
        [*slurm, "salloc", "--quiet", "-N2", *run, "--launcher", "srun"],
        {"SLURM_MPI_TYPE": "pmix"},
    )
    said = done.stdout + done.stderr
    if "libpmix-dev is not installed" in said:
        hosts.skip("libpmix-dev is not installed: srun starts no ranks of Open MPI")
    records = host.home / "slurm-records/records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    measured = {one["row"]: one["outcome"] for one in rows if one["row"]}
    assert measured == dict.fromkeys(range(1, 11), "ok"), said
    facts = [
        json.loads(line)["facts"]
        for line in records.with_name("facts.jsonl").read_text().splitlines()
    ]
    assert facts[0]["nodes"]["kind"] == "slurm" and facts[0]["nodes"]["count"] == 2

    # A row that has no record is run again: now as a job, for the same records.
    last = max(at for at, one in enumerate(rows) if one["row"])
    lab_nodes.without_line(host, records, last)
    done = host.run([*slurm, *run, "--site", str(site), "--system", "cluster:jobs"])
    said = done.stdout + done.stderr
    again = [json.loads(line) for line in records.read_text().splitlines()]
    made = [one for one in again if one["session"] != rows[0]["session"]]
    row = rows[last]["row"]
    assert [one["row"] for one in made if one["row"]] == [row], said
    assert all(one["outcome"] == "ok" for one in made), said
    log = records.with_name("reframe.log").read_text()
    assert "@cluster:jobs" in log, log
