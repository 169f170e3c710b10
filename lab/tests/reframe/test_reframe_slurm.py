"""Within an allocation of a real Slurm, the plug-in's site file uses `srun`, also for ranks."""

from __future__ import annotations

import json
from pathlib import Path

import lab_host as hosts
import lab_slurm

PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so")
ENVIRONMENTS = ("native", "coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2")


def test_allocation(host: hosts.Host) -> None:
    if not PMIX.exists():
        hosts.skip("libpmix-dev is not installed: srun starts no ranks of Open MPI")
    name = f"slurm-{host.forbidden}"
    report = host.home / name / "report.json"
    with lab_slurm.cluster(host, f"{name}-daemons") as variables:
        main = "import sys; from reframe.frontend.cli import main; sys.exit(main())"
        site = host.lab / "coracle_lab/reframe/site.py"
        suite = host.lab / "suite/suite.py"
        done = host.run(
            [
                *("salloc", "--quiet", "-N1", "-n2", "--"),
                *(host.python(), "-c", main, "--nocolor", "-C", str(site), "-c", str(suite)),
                *("-n", "^(Words|Variables|Ring|Input)$", f"--prefix={report.parent}"),
                *(f"--report-file={report}", "-r", "--exec-policy=serial"),
            ],
            {
                **variables,
                "SLURM_MPI_TYPE": "pmix",
                "CORACLE_LAB_ENVIRONMENTS": ",".join(ENVIRONMENTS),
                "CORACLE_LAB_IMAGE": hosts.IMAGE,
            },
        )
    said = done.stdout + done.stderr
    assert report.exists(), said
    cases = [case for run in json.loads(report.read_text())["runs"] for case in run["testcases"]]
    results = {(case["partition"], case["name"]): case["result"] for case in cases}
    for environment in ENVIRONMENTS:
        if host.forbidden and environment == "coracle:N1":
            continue
        for test in ("Words", "Variables", "Ring", "Input"):
            assert results[environment.replace(":", "-"), test] == "pass", said
    for case in cases:
        script = Path(case["outputdir"]) / "rfm_job.sh"
        assert "\nsrun " in script.read_text(), f"{case['name']} was not started by srun"
