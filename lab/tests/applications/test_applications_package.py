"""The package as pip installs it: it has all of its parts, and finds its data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lab_host as hosts
import pytest

pytestmark = pytest.mark.real

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LAB = Path(__file__).parents[2]
DATA = ("apps", "papers")


def listed() -> list[str]:
    tree = tomllib.loads((LAB / "pyproject.toml").read_text())
    packages: list[str] = tree["tool"]["setuptools"]["packages"]
    return packages


def test_the_list_of_packages_is_the_tree() -> None:
    found = {path.parent for path in (LAB / "coracle_lab").rglob("*.py")}
    names = {".".join(path.relative_to(LAB).parts) for path in found}
    assert sorted(names | {f"coracle_lab.{name}" for name in DATA}) == listed()


@pytest.fixture(scope="module")
def builder() -> str:
    """A Python that has setuptools: not the one that runs the tests, as a rule."""
    for program in (sys.executable, "python3", "/usr/bin/python3"):
        words = [program, "-c", "import setuptools; assert int(setuptools.__version__[:2]) >= 65"]
        path = shutil.which(program)
        if path and subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return path
    hosts.skip("no Python has setuptools")
    raise AssertionError


def test_an_installation_has_applications_and_papers(tmp_path: Path, builder: str) -> None:
    ignore = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info", "tests")
    shutil.copytree(LAB, tmp_path / "lab", ignore=ignore)
    # What pip puts into a wheel; making one takes a package more.
    words = [builder, "-c", "import setuptools; setuptools.setup()", "build_py"]
    done = subprocess.run(
        [*words, "--build-lib", str(tmp_path / "site")],
        cwd=tmp_path / "lab",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package = tmp_path / "site" / "coracle_lab"
    for name in DATA:
        wanted = {path.relative_to(LAB / name) for path in (LAB / name).rglob("*.*")}
        has = {path.relative_to(package / name) for path in (package / name).rglob("*.*")}
        assert {path for path in wanted if "__pycache__" not in path.parts} == has
    for path in ("design/schema.json", "run/schema/record.json", "environments/builtin.toml"):
        assert (package / path).is_file()
    code = "from coracle_lab import applications as a, data; print(data.PACKAGE, *a.table().images)"
    site = next(path for path in sys.path if (Path(path) / "jsonschema").is_dir())
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path / 'site'}:{site}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(package) in told.stdout
    assert "lab/bookworm" in told.stdout
