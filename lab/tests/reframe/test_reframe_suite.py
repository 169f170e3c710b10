"""ReFrame runs an unedited suite natively and in Coracle's modes, as an unprivileged user."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import lab_host as hosts
import lab_tutorial
import pytest

pytestmark = pytest.mark.real

ENVIRONMENTS = ("native", "coracle:N1", "coracle:I1", "coracle:P1", "coracle:F2")
INSIDE = ("Compiled", "OfFixture", "Ring", "RingWithOptions")
"""Tests that print whether they were in the container."""
TESTS = ("Words", "Variables", "Directory", "Linked", "Input", "Status", *INSIDE)


def reframe(
    host: hosts.Host, name: str, variables: dict[str, str], *words: str
) -> tuple[str, dict[str, Any]]:
    """Runs ReFrame. Returns its output and its report."""
    prefix = host.home / name
    report = prefix / "report.json"
    done = host.run(
        [
            host.python(),
            "-c",
            "import sys; from reframe.frontend.cli import main; sys.exit(main())",
            "--nocolor",
            f"--prefix={prefix}",
            f"--report-file={report}",
            *words,
        ],
        # By itself it sleeps up to ten seconds before it sees that a test has ended.
        {"RFM_POLL_RATE_MIN": "5", **variables},
    )
    said = done.stdout + done.stderr
    assert report.exists(), said
    return said, json.loads(report.read_text())


def cases(report: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the test cases of a report by partition and test."""
    every = [case for run in report["runs"] for case in run["testcases"]]
    return {(case["partition"], case["display_name"].split()[0]): case for case in every}


def site(host: hosts.Host) -> list[str]:
    """Returns the words for the plug-in's site file, by the command that users are told."""
    done = host.run([host.python(), "-m", "coracle_lab.reframe"])
    assert done.returncode == 0, done.stderr
    return ["-C", done.stdout.strip()]


@pytest.fixture(scope="module")
def results(host: hosts.Host) -> dict[tuple[str, str], dict[str, Any]]:
    """All cases of one run of the suite, in all environments."""
    variables = {
        "CORACLE_LAB_ENVIRONMENTS": ",".join(ENVIRONMENTS),
        "CORACLE_LAB_IMAGE": hosts.IMAGE,
    }
    words = [*site(host), "-c", str(host.lab / "suite/suite.py"), "-r"]
    return cases(reframe(host, f"suite-{host.forbidden}", variables, *words)[1])


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("test", TESTS)
def test_suite(
    results: dict[tuple[str, str], dict[str, Any]], host: hosts.Host, name: str, test: str
) -> None:
    partition = name.replace(":", "-")
    if host.forbidden and name == "coracle:N1":
        assert (partition, test) not in results
        hosts.skip("N1 is made of user namespaces, which are forbidden here; it has no partition")
    case = results[partition, test]
    assert case["result"] == "pass", case
    if test in INSIDE:
        out = (Path(case["stagedir"]) / case["job_stdout"]) if case["stagedir"] else None
        kept = Path(case["outputdir"]) / case["job_stdout"]
        text = (out if out and out.exists() else kept).read_text()
        assert f"in the container: {int(name != 'native')}" in text


def test_tutorial(host: hosts.Host) -> None:
    """Tests of others' making, unedited: ReFrame's own tutorial."""
    # Without user namespaces the modes but N1 are the same; one of them is enough.
    usable = ["native", "coracle:P1"] if host.forbidden else list(ENVIRONMENTS)
    variables = {
        "CORACLE_LAB_ENVIRONMENTS": ",".join(usable),
        "CORACLE_LAB_IMAGE": hosts.IMAGE,
    }
    words = [*lab_tutorial.words(host), "-r"]
    said, report = reframe(host, f"tutorial-{host.forbidden}", variables, *words)
    results = {key: case["result"] for key, case in cases(report).items()}
    lab_tutorial.check(results, usable, said)


@pytest.mark.parametrize("base", ["mpiexec", "mpirun-openmpi"])
def test_bases(host: hosts.Host, base: str) -> None:
    """Any launcher of ReFrame can be beneath."""
    variables = {
        "CORACLE_LAB_ENVIRONMENTS": "coracle:I1",
        "CORACLE_LAB_IMAGE": hosts.IMAGE,
        "CORACLE_LAB_LAUNCHER": base,
    }
    suite = str(host.lab / "suite/suite.py")
    words = [*site(host), "-c", suite, "-n", "RingWithOptions", "-r"]
    said, report = reframe(host, f"base-{base}-{host.forbidden}", variables, *words)
    assert cases(report)["coracle-I1", "RingWithOptions"]["result"] == "pass", said


def test_tree_volumes_and_variables(host: hosts.Host) -> None:
    """A partition's own options: a tree in place of an image, a volume, a variable."""
    text = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Options(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "sh"
    executable_opts = ["-c", "'ls /in-the-container; cat /elsewhere/word; echo $OF_SITE'"]

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^/in-the-container\\nof the volume\\nof the site$", self.stdout)
"""
    shared = host.home / f"shared-{host.forbidden}"
    done = host.run(["sh", "-c", 'mkdir "$1"; echo of the volume > "$1/word"', "sh", str(shared)])
    assert done.returncode == 0, done.stderr
    suite = write(host, "options", text)
    variables = {
        "CORACLE_LAB_ENVIRONMENTS": "coracle:P1,bwrap",
        "CORACLE_LAB_ROOTFS": str(host.tree),
        "CORACLE_LAB_VOLUMES": f"{shared}:/elsewhere",
        "CORACLE_LAB_VARIABLES": "OF_SITE=of the site",
    }
    words = [*site(host), "-c", str(suite), "-r"]
    said, report = reframe(host, f"options-{host.forbidden}", variables, *words)
    found = {partition: case["result"] for (partition, _), case in cases(report).items()}
    bwrap = {} if host.forbidden or shutil.which("bwrap") is None else {"bwrap": "pass"}
    assert found == {"coracle-P1": "pass", **bwrap}, said


def test_container_platform(host: hosts.Host) -> None:
    """Tests that name a container, or an image only, get one container, in the partition's mode."""
    text = platform_test("Docker") + platform_test("Coracle") + platform_test("")
    suite = write(host, "platform", text)
    variables = {
        "CORACLE_LAB_ENVIRONMENTS": "coracle:I1,coracle:P1",
        "CORACLE_LAB_IMAGE": "no/such:1",
    }
    said, report = reframe(host, suite.stem, variables, *site(host), "-c", str(suite), "-r")
    results = {key: case["result"] for key, case in cases(report).items()}
    tests = ("PlatformDocker", "PlatformCoracle", "Platform")
    expected = {(f"coracle-{mode}", test): "pass" for mode in ("I1", "P1") for test in tests}
    assert results == expected, said


def platform_test(platform: str) -> str:
    """Returns a test that names a platform, or an image only."""
    text = PLATFORM.replace("IMAGE", hosts.IMAGE).replace(
        "class Platform", f"class Platform{platform}"
    )
    if not platform:
        return text.replace("        self.container_platform = 'NAME'\n", "")
    return text.replace("'NAME'", f"'{platform}'")


def write(host: hosts.Host, name: str, text: str) -> Path:
    """Writes a suite, as the user."""
    suite = host.home / f"{name}-{host.forbidden}.py"
    done = host.run(["sh", "-c", 'printf %s "$2" > "$1"', "sh", str(suite), text])
    assert done.returncode == 0, done.stderr
    return suite


PLATFORM = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Platform(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]

    @run_after("init")
    def container(self):
        self.container_platform = 'NAME'
        self.container_platform.image = "IMAGE"
        self.container_platform.pull_image = False
        self.container_platform.command = "sh -c 'pwd; ls /in-the-container; touch made'"

    @sanity_function
    def exact(self):
        return sn.all([
            sn.assert_found(r"^/rfm_workdir\\n/in-the-container$", self.stdout),
            sn.assert_true(sn.path_exists("made")),
        ])
"""


def test_docker_without_the_plug_in(host: hosts.Host) -> None:
    """ReFrame's own platform and its built-in site file, with Coracle under Docker's name."""
    suite = write(host, "plain", platform_test("Docker"))
    said, report = reframe(host, suite.stem, {}, "-c", str(suite), "-r")
    assert cases(report)["default", "PlatformDocker"]["result"] == "pass", said


def test_wrong_options_are_said(host: hosts.Host) -> None:
    """Without an image the test fails, with the reason; it does not run natively."""
    variables = {"CORACLE_LAB_ENVIRONMENTS": "coracle:I1"}
    words = [*site(host), "-c", str(host.lab / "suite/suite.py"), "-n", "Input", "-r"]
    said, report = reframe(host, f"wrong-{host.forbidden}", variables, *words)
    assert cases(report)["coracle-I1", "Input"]["result"] == "fail", said
    assert "coracle:I1 needs an image" in said
