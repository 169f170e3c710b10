"""The scratch directory is empty at the beginning of each row, whoever owns what was left in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lab_host as hosts
import pytest

from coracle_lab.run import scratch

pytestmark = pytest.mark.real

RANGE = 1002
"""A user of the tests with subordinate ids."""
CODE = "import sys; from pathlib import Path; from coracle_lab.run.scratch import empty; "


def test_a_directory_without_rights_is_emptied(tmp_path: Path) -> None:
    inner = tmp_path / "scratch/inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0o500)
    scratch.empty(tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_files_of_subordinate_ids_are_removed(place: Path) -> None:
    if os.geteuid() != 0:
        hosts.skip("only root can act for the user with subordinate ids")
    home = place / "range"
    home.mkdir()
    os.chown(home, RANGE, RANGE)
    be = ["setpriv", f"--reuid={RANGE}", f"--regid={RANGE}", "--clear-groups"]
    # nginx has directories that only the user of its workers can read.
    make = "mkdir -pm 700 s/given s/own && touch s/given/file s/own/file && chown -R 5:5 s/given"
    make += " && chmod 0 s/own"
    given = ["unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c", make]
    done = subprocess.run([*be, *given], cwd=home, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no subordinate ids: {done.stderr.strip()}")
    assert (home / "s/given").stat().st_uid not in (0, RANGE)
    program = [hosts.Host(place, forbidden=False).python(), "-c", f"{CODE}empty(Path('s'))"]
    variables = {"PYTHONPATH": f"{place / 'lab'}", "PATH": os.environ["PATH"]}
    subprocess.run([*be, *program], cwd=home, env=variables, check=True)
    assert list((home / "s").iterdir()) == []
