"""The entries of the kernels in the table: their commands run, and print what the entries say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lab_kernels import APPS, OPENMPI, Kernels, ended, ranks

from coracle_lab.applications.table import table
from coracle_lab.run import lab_lines

SMALL: Mapping[str, Mapping[str, Any]] = {
    "alltoall": {"sizes": "8,64", "rounds": 10},
    "wave": {"points": 16, "steps": 5},
    "hopping": {"lattice": 4, "sweeps": 20, "checkpoint": 10},
    "mpiio": {"mib": 1},
    "start": {},
    "exec-storm": {"count": 5},
    "rss": {"count": 3},
    "import-storm": {"count": 1},
}
RESPONSES = {
    "alltoall": {"exchange_s@8", "exchange_s@64"},
    "wave": {"run_s", "points_per_s", "velocity_norm", "stress_norm"},
    "hopping": {"run_s", "sweep_s", "gflops", "checkpoint_s"},
    "mpiio": {"write_bytes_per_s", "read_bytes_per_s"},
    "start": set(),
    "exec-storm": {"storm_start_s"},
    "rss": {"rss_bytes", "pss_bytes", "private_bytes"},
    "import-storm": {"storm_start_s"},
}


def test_the_table_has_the_kernels() -> None:
    names = re.findall(r'^name = "(.+)"$', (APPS / "kernels.toml").read_text(), re.MULTILINE)
    assert set(names) == set(SMALL)
    # The parameters that papers write designs with.
    parameters = {name: set(table().applications[name].get("parameters", {})) for name in names}
    assert parameters["alltoall"] >= {"sizes"}
    assert parameters["wave"] >= {"points", "steps"}
    assert parameters["hopping"] >= {"lattice", "sweeps", "checkpoint"}
    assert parameters["mpiio"] >= {"mib", "shift"}
    assert parameters["exec-storm"] == parameters["import-storm"] == {"count"}


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(SMALL))
def test_an_entry_prints_what_it_says(kernels: Kernels, tmp_path: Path, name: str) -> None:
    entry = table().applications[name]
    source = APPS / Path(entry.get("source", "")).name
    has_ranks = entry.get("launcher") == "mpirun"
    for line in entry.get("build", []):
        (file,) = [word for word in line if word.endswith(".c")]
        program = kernels.get(file.replace("{source}", source.name), OPENMPI if has_ranks else None)
        (tmp_path / line[line.index("-o") + 1].removeprefix("{build}/")).symlink_to(program)
    values = {"build": tmp_path, "scratch": tmp_path, "source": source}
    values |= {**entry.get("parameters", {}), **SMALL[name]}
    words = [word.format(**values) for word in entry["command"]]
    done = ranks(OPENMPI, *words) if has_ranks else ended(*words)
    assert done.returncode == 0, done.stderr
    timer = lab_lines.Timer("", 0, 0)
    lines = done.stdout.splitlines()
    found = lab_lines.read(lines, entry.get("series"), timer, 2 if has_ranks else 1).responses
    assert set(found) >= RESPONSES[name] | set(entry.get("rates", []))
    assert all(re.search(pattern, done.stdout) for pattern in entry.get("texts", {}).values())
