"""Programs that are installed run natively at their smallest size, and give right results."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from lab_programs import APPS, Native, needs, told

pytestmark = pytest.mark.real


def test_hpcc_passes_its_residual_with_one_rank_and_two(tmp_path: Path) -> None:
    needs("hpcc")
    for ranks in (1, 2):
        native = Native("hpcc", tmp_path, {"n": 120, "ranks": ranks})
        done = native.run()
        assert done.returncode == 0, done.stderr
        assert re.search(native.entry["success"], done.stdout, re.MULTILINE), done.stdout
        for pattern in native.entry["responses"].values():
            assert float(re.findall(pattern, done.stdout)[0]) > 0
        assert re.findall(r"(?m)^CommWorldProcs=(\d+)$", done.stdout) == [str(ranks)]


@pytest.mark.parametrize("library", ["openmpi", "tcp"])
def test_netpipe_gives_a_time_for_each_size(tmp_path: Path, library: str) -> None:
    needs("NPopenmpi", "NPtcp")
    native = Native("netpipe", tmp_path, {"library": library, "largest": 1024, "rounds": 20})
    done = native.run()
    assert done.returncode == 0, done.stderr
    lines = told(done.stdout)
    assert [line["bytes"] for line in lines][-1] == 1024
    assert all(line["one_way_s"] > 0 for line in lines)


def test_netpipe_runs_by_mpichs_launcher(tmp_path: Path) -> None:
    needs("NPmpich2", "mpiexec.mpich")
    native = Native("netpipe", tmp_path, {"library": "mpich", "largest": 1024, "rounds": 20})
    done = native.run(["mpiexec.mpich", "-n", "2"])
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[-1]["bytes"] == 1024


def test_netpipe_says_that_it_needs_two_ranks(tmp_path: Path) -> None:
    done = Native("netpipe", tmp_path, {"ranks": 1}).run()
    assert done.returncode == 2
    assert "error: NPopenmpi is two ranks" in done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_iperf3_measures_both_directions(tmp_path: Path, direction: str, ranks: int) -> None:
    needs("iperf3")
    done = Native("iperf3", tmp_path, {"direction": direction, "ranks": ranks}).run()
    assert done.returncode == 0, done.stderr
    (line,) = told(done.stdout)
    assert line["bits_per_s"] > 0


def test_a_server_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/iperf3"
    program.write_text("#!/bin/sh\necho 'no sockets here' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    done = Native("iperf3", tmp_path, {}).run()
    assert done.returncode == 1
    assert "error: the server of iperf3 does not listen: no sockets here" in done.stderr


def test_qperf_tells_tcp_and_what_is_absent(tmp_path: Path) -> None:
    needs("qperf")
    done = Native("qperf", tmp_path, {}).run()
    assert done.returncode == 0, done.stderr
    (line,) = told(done.stdout)
    assert line["bandwidth_bytes_per_s"] > 0
    assert 0 < line["latency_s"] < 1
    if not Path("/sys/class/infiniband").is_dir():
        assert "no device of RDMA here: rc_rdma_* is not measured" in done.stdout
        assert "rdma_write_bytes_per_s" not in line


def test_fio_measures_six_phases_and_leaves_nothing(tmp_path: Path) -> None:
    needs("fio")
    native = Native("fio", tmp_path, {"mib": 16})
    done = native.run()
    assert done.returncode == 0, done.stderr
    (line,) = told(done.stdout)
    assert sorted(line) == sorted(native.entry["rates"])
    assert list(native.scratch.iterdir()) == []
    done = Native("fio", tmp_path, {"place": tmp_path / "absent", "mib": 16}).run()
    assert done.returncode == 1
    assert "absent is not a directory" in done.stderr


def test_nginx_answers_with_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("nginx", "gcc")
    native = Native("nginx-start", tmp_path, {}).made()
    # As a user has it, without the directories of daemons.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = native.run()
    assert done.returncode == 0, done.stderr
    (line,) = told(done.stdout)
    assert line["answer_s"] > 0
    assert "lab-rank " in done.stdout


def test_nginx_that_ends_or_answers_wrongly_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("gcc")
    native = Native("nginx-start", tmp_path, {}).made()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/nginx"
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    done = native.run()
    assert done.returncode == 1
    assert "error: nginx ended before it answered" in done.stderr
    server = """#!/usr/bin/python3
import re, socket
text = open("nginx.conf").read()
port = int(re.search(r"listen 127.0.0.1:(\\d+)", text)[1])
one = socket.create_server(("127.0.0.1", port))
peer, _ = one.accept()
peer.recv(999)
peer.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nanother page")
peer.close()
"""
    program.write_text(server)
    done = native.run()
    assert done.returncode == 1
    assert "error: " in done.stderr


def test_merged_files_have_the_expected_histogram(tmp_path: Path) -> None:
    native = Native("merge", tmp_path, {"files": 3, "rows": 500}).made()
    first, second = native.run(), native.run()
    assert first.returncode == 0, first.stderr
    assert re.search(native.entry["texts"]["histogram"], first.stdout)
    assert first.stdout == second.stdout
    base = sqlite3.connect(native.build / "samples-0.sqlite")
    base.execute("UPDATE samples SET a = 0 WHERE key = 7")
    base.commit()
    base.close()
    done = native.run()
    assert done.returncode == 1
    assert "error: the histogram is not that of the samples" in done.stderr


def test_gromacs_keeps_its_energies(tmp_path: Path) -> None:
    needs("gmx")
    native = Native("gromacs", tmp_path, {"steps": 200, "box": 2}).made()
    done = native.run()
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[0]["ns_per_day"] > 0


@pytest.mark.parametrize("potential", ["lj", "eam"])
def test_lammps_conserves_its_energy(tmp_path: Path, potential: str) -> None:
    needs("lmp")
    for ranks in (1, 2):
        given = {"potential": potential, "cells": 6, "steps": 50, "ranks": ranks}
        native = Native("lammps", tmp_path, given)
        done = native.run()
        assert done.returncode == 0, done.stdout
        assert re.search(native.entry["success"], done.stdout, re.MULTILINE)
        for pattern in native.entry["responses"].values():
            assert float(re.findall(pattern, done.stdout)[0]) > 0


def test_lammps_with_another_lattice_is_told(tmp_path: Path) -> None:
    needs("lmp")
    native = Native("lammps", tmp_path, {"cells": 6, "steps": 50})
    changed = tmp_path / "source"
    shutil.copytree(APPS / "lammps", changed)
    path = changed / "in.melt"
    path.write_text(path.read_text().replace("lattice fcc 0.8442", "lattice fcc 0.8443"))
    native.values["source"] = str(changed)
    done = native.run()
    assert not re.search(native.entry["success"], done.stdout, re.MULTILINE)
    assert "wrong: the lattice has another energy" in done.stdout


@pytest.mark.parametrize("tool", ["coracle", "podman", "skopeo"])
def test_a_pulled_image_has_the_layers_that_were_made(tmp_path: Path, tool: str) -> None:
    needs("docker-registry", "skopeo", tool)
    native = Native("pull", tmp_path, {"tool": tool, "layers": 2, "mib": 1}).made()
    done = native.run()
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[0]["pull_s"] > 0
    (native.build / "layers.json").write_text('["sha256:0"]')
    done = native.run()
    assert done.returncode == 1
    assert "error: the layers are" in done.stderr


def test_a_slurm_node_becomes_idle_and_nothing_is_left(tmp_path: Path) -> None:
    # They are where only root looks.
    for name in ("munged", "slurmctld", "slurmd"):
        needs(shutil.which(name, path="/usr/sbin:/usr/bin") or name)
    native = Native("slurmd-start", tmp_path, {})
    done = native.run()
    assert done.returncode == 0, done.stderr
    assert told(done.stdout)[0]["idle_s"] > 0
    assert not (native.scratch / "munge.pid").exists()
    # By a command that starts something else no node becomes idle.
    native.entry = {**native.entry, "command": [*native.entry["command"], "echo", "no node:"]}
    done = native.run()
    assert done.returncode == 1
    assert "error: echo ended with 0: no node: slurmd -D" in done.stderr
