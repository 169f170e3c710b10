"""What the scripts read of real outputs, and that they tell wrong ones."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest
from lab_programs import APPS, TABLE, script

DATA = Path(__file__).parent / "outputs"


def text(name: str) -> str:
    return (DATA / name).read_text()


def test_netpipes_file_is_read() -> None:
    netpipe = script("network/netpipe.py")
    lines = list(netpipe.series(text("netpipe.out"), 65536))
    assert [line["bytes"] for line in lines][:4] == [1, 2, 3, 4]
    assert lines[-1]["bytes"] == 65536
    # NetPIPE's own time of this line, which has two digits: 10.60 microseconds.
    assert lines[-1]["one_way_s"] == pytest.approx(10.60e-6, rel=1e-3)


@pytest.mark.parametrize("wrong", ["1 0.0 0.1\n", "1 75.3 0.1\n", "", "1 x y\n"])
def test_a_netpipe_that_was_cut_off_is_told(wrong: str) -> None:
    netpipe = script("network/netpipe.py")
    with pytest.raises(ValueError, match=r"is 0\.0|it ends at|could not convert"):
        list(netpipe.series(wrong, 65536))


def test_iperf3s_result_is_read() -> None:
    iperf3 = script("network/iperf3.py")
    rate, count = iperf3.received(text("iperf3.json"))
    assert rate == pytest.approx(8 * count, rel=0.05)
    with pytest.raises(ValueError, match="unable to connect"):
        iperf3.received('{"error": "unable to connect to server"}')
    with pytest.raises(ValueError, match="there is no sum"):
        iperf3.received('{"end": {}}')
    with pytest.raises(ValueError, match="nothing was received"):
        iperf3.received('{"end": {"sum_received": {"bits_per_second": 0, "bytes": 0}}}')


def test_qperfs_units_are_read() -> None:
    qperf = script("network/qperf.py")
    found = qperf.results(text("qperf.out"), qperf.TCP)
    assert found == {"bandwidth_bytes_per_s": 3180855296.0, "latency_s": pytest.approx(6.484e-6)}
    other = "tcp_bw:\n    bw  =  2.5 GB/sec\ntcp_lat:\n    latency  =  13.2 us\n"
    found = qperf.results(other, qperf.TCP)
    assert found == {"bandwidth_bytes_per_s": 2.5e9, "latency_s": pytest.approx(13.2e-6)}
    with pytest.raises(ValueError, match="no result of tcp_lat"):
        qperf.results("tcp_bw:\n    bw  =  2.5 GB/sec\n", qperf.TCP)


def test_rdma_is_looked_for(tmp_path: Path) -> None:
    qperf = script("network/qperf.py")
    assert not qperf.has_rdma(tmp_path / "infiniband")
    assert not qperf.has_rdma(tmp_path)
    (tmp_path / "mlx5_0").mkdir()
    assert qperf.has_rdma(tmp_path)


def test_fios_phases_are_read() -> None:
    phases = script("fio/phases.py")
    told = json.loads(text("fio.json"))
    found = phases.rates(told, 64 << 20)
    assert list(found) == [f"{phase}_bytes_per_s" for phase in phases.PHASES]
    assert all(value > 0 for value in found.values())
    with pytest.raises(ValueError, match="write moved"):
        phases.rates(told, 65 << 20)
    told["jobs"][2]["error"] = 5
    with pytest.raises(ValueError, match="read ended with error 5"):
        phases.rates(told, 64 << 20)
    del told["jobs"][2]
    with pytest.raises(ValueError, match="there is no phase read"):
        phases.rates(told, 64 << 20)


def test_a_log_of_gromacs_is_judged() -> None:
    md = script("gromacs/md.py")
    log = text("gromacs.log")
    found = md.judge(log)
    assert found["ns_per_day"] > 0
    assert found["potential_kj_per_mol"] == pytest.approx(-46.8, abs=0.5)
    assert found["temperature_k"] == pytest.approx(300, abs=15)
    with pytest.raises(ValueError, match="the run did not end"):
        md.judge(log[: len(log) // 3])
    averages = log.rindex("Energies (kJ/mol)")
    warm = log[:averages] + re.sub(r"2\.9\d+e\+02", "3.40000e+02", log[averages:], count=1)
    assert warm != log
    with pytest.raises(ValueError, match="temperature"):
        md.judge(warm)


def test_results_of_hpcc_are_found_and_a_failed_residual_is_told() -> None:
    entry = TABLE.applications["hpcc"]
    out = text("hpccoutf.txt")
    found = {name: re.findall(pattern, out) for name, pattern in entry["responses"].items()}
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, 1)
    tera = re.findall(r"^HPL_Tflops=(\S+)$", out, re.MULTILINE)
    assert float(found["hpl_gflops"][0]) == pytest.approx(1e3 * float(tera[0]), rel=1e-3)
    assert sorted(found) == sorted(entry["rates"])
    success = re.compile(entry["success"], re.MULTILINE)
    assert success.search(out)
    residual = re.compile(r"(\|\|Ax-b\|\|.*) PASSED")
    assert not success.search(residual.sub(r"\1 FAILED", out))
    assert not success.search(out.replace("Success=1", "Success=0"))


def test_a_merge_of_damaged_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = script("merge/files.py")
    monkeypatch.chdir(tmp_path)
    files.make(tmp_path, 3, 200)
    right = files.digest(files.expected(3, 200))
    assert files.digest(files.merge(tmp_path, 3, 200)) == right
    base = sqlite3.connect(files.path(tmp_path, 1))
    base.execute("UPDATE samples SET b = b + 1 WHERE key = 250")
    base.commit()
    assert files.digest(files.merge(tmp_path, 3, 200)) != right
    base.execute("DELETE FROM samples WHERE key = 250")
    base.commit()
    base.close()
    with pytest.raises(ValueError, match="599 samples were merged of 600"):
        files.merge(tmp_path, 3, 200)
    # A page in the middle of a file is overwritten.
    path = files.path(tmp_path, 2)
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises((sqlite3.Error, ValueError)):
        files.merge(tmp_path, 3, 200)


def test_files_leave_the_page_cache_and_stay(tmp_path: Path) -> None:
    build = script("packages/build.py")
    (tmp_path / "inner").mkdir()
    for name in ("a", "inner/b"):
        (tmp_path / name).write_text("content")
    (tmp_path / "link").symlink_to("a")
    assert build.drop([tmp_path, tmp_path / "a"]) == 3
    assert (tmp_path / "inner/b").read_text() == "content"


def test_only_known_words_are_taken() -> None:
    assert (APPS / "lammps/in.melt").read_text().count("quit 1") == 2
