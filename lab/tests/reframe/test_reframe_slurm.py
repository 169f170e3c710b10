"""Within an allocation of a real Slurm, suites run unedited, each test as a step: `srun`."""

from __future__ import annotations

import json
from pathlib import Path

import lab_host as hosts
import lab_slurm
import lab_tutorial
import pytest

pytestmark = pytest.mark.real

ENVIRONMENTS = ("native", "coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2")
OWN = ("Words", "Variables", "Ring", "Input")


def test_allocation(host: hosts.Host) -> None:
    report = host.home / f"slurm-{host.forbidden}" / "report.json"
    main = "import sys; from reframe.frontend.cli import main; sys.exit(main())"
    # Without user namespaces it is the same but for the modes: the own suite is enough.
    others = [] if host.forbidden else [*lab_tutorial.PASSING, *lab_tutorial.FAILING]
    done = host.run(
        [
            *lab_slurm.command(host),
            *("salloc", "--quiet", "-N2", "-n8", "--"),
            *(host.python(), "-c", main, "--nocolor", *lab_tutorial.words(host)),
            *("-c", str(host.lab / "suite/suite.py"), "-n", f"^({'|'.join([*OWN, *others])})$"),
            *(f"--prefix={report.parent}", f"--report-file={report}", "-r"),
        ],
        {
            "SLURM_MPI_TYPE": "pmix",
            "RFM_POLL_RATE_MIN": "5",
            "CORACLE_LAB_ENVIRONMENTS": ",".join(ENVIRONMENTS),
            "CORACLE_LAB_IMAGE": hosts.IMAGE,
        },
    )
    said = done.stdout + done.stderr
    if "libpmix-dev is not installed" in said:
        hosts.skip("libpmix-dev is not installed: srun starts no ranks of Open MPI")
    assert report.exists(), said
    cases = [case for run in json.loads(report.read_text())["runs"] for case in run["testcases"]]
    results = {(case["partition"], case["name"]): case["result"] for case in cases}
    usable = [name for name in ENVIRONMENTS if not (host.forbidden and name == "coracle:N1")]
    if others:
        lab_tutorial.check(results, usable, said)
    for environment in usable:
        for test in OWN:
            assert results[environment.replace(":", "-"), test] == "pass", said
    for case in cases:
        scripts = [Path(case[key] or "", "rfm_job.sh") for key in ("outputdir", "stagedir")]
        kept = [script for script in scripts if script.exists()]
        if case["name"] in (*OWN, "HelloFoo", "stream_test"):
            assert "\nsrun " in kept[0].read_text(), f"{case['name']} was not started by srun"
