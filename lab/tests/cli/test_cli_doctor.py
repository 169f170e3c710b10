"""`coracle-lab doctor` on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from coracle_lab import cli
from coracle_lab.cli import doctor

pytestmark = pytest.mark.real

OWN = """
[[environment]]
name = "ours"
text = "takes an image by its name"
takes = "image"
program = "env"
command = ["{program}", "{image}"]

[[environment]]
name = "theirs"
text = "is not here"
takes = "host"
program = "no-such-program"
command = ["{program}"]
"""


def test_it_tells_what_can_be_measured_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(OWN)
    monkeypatch.setattr(doctor, "SENTINELS", 3)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    assert cli.main(["doctor", "--environments", str(own)]) == 0
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    said = capsys.readouterr().out
    assert re.search(r"^  native +usable$", said, re.M)
    assert re.search(
        r"^  ours +\(not tried: its entry takes an image, and has no probe\)$", said, re.M
    )
    assert re.search(r"^  theirs +no: no-such-program is not in PATH$", said, re.M)
    assert re.search(r"^  hpcc ", said, re.M)
    assert "noise: 3 runs of the same computation" in said
