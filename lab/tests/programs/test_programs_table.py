"""The entries of packaged programs: complete, consistent, and without hosts in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab_programs import APPS, TABLE

from coracle_lab.applications import resolve
from coracle_lab.design import parse
from coracle_lab.environments import process

TEXT = (APPS / "programs.toml").read_text()
NAMES = re.findall(r'^\[\[application\]\]\nname = "([^"]+)"', TEXT, re.MULTILINE)
REQUIREMENTS = sorted(
    path for name in ("requirements", "wheel", "cpp") for path in APPS.glob(f"*/{name}.txt")
)


def test_all_programs_are_there() -> None:
    wanted = "hpcc netpipe gromacs lammps fio iperf3 qperf nginx-start devito-wave fbpic sampling"
    wanted += " merge powerfit wheel-build cpp-build pull slurmd-start"
    assert set(wanted.split()) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_becomes_a_design(name: str) -> None:
    environments = '["native", "native-again", "coracle"]'
    text = f'name = "a"\nseed = 1\nreplicates = 1\n[factors]\nenvironment = {environments}\n'
    whole = resolve(f'{text}[application]\nuse = "{name}"\n', "design.toml")
    design = parse(whole, "design.toml")
    application = design.application
    assert application is not None
    assert application.name == name
    # Results are checked: by the program's own status with its lines, by a pattern, or by texts.
    assert application.reads or application.success or application.texts
    responses = {*application.responses}
    for rate in application.rates:
        assert application.reads or rate in responses


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_braces_is_filled(name: str) -> None:
    entry = TABLE.applications[name]
    known = {"ranks", "source", "build", "scratch", *entry.get("parameters", {})}
    words = [*entry["command"], *(word for line in entry.get("build", ()) for word in line)]
    assert {one for word in words for one in re.findall(r"\{(\w+)\}", word)} <= known


def test_scripts_name_no_hosts() -> None:
    for path in sorted(APPS.rglob("*")):
        if path.suffix in (".py", ".sh", ".toml", ".txt", ".in", ".melt"):
            assert not re.search(r"https?://|index-url", path.read_text()), path


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    text = re.sub(r"\s*\\\n\s*", " ", path.read_text())
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9-]+(\[[a-z,]+\])?==\S+ --hash=sha256:[0-9a-f]{64}", line), line


@pytest.mark.real
def test_the_image_is_of_packages_that_the_host_can_have() -> None:
    packages = TABLE.images["lab/science"]["packages"]
    assert len(set(packages)) == len(packages)
    said = process.run(["apt-cache", "policy", *packages], 60.0)
    if said.why:
        pytest.skip(f"apt-cache: {said.why}")
    for package in packages:
        assert f"{package}:" in said.out, package
