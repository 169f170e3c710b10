"""Facts: what is read, what is warned of, which files are the same."""

from __future__ import annotations

import copy
import hashlib
import json
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coracle_lab.facts import machine, mapped, plain, same
from coracle_lab.run import timer


@pytest.fixture
def facts(tmp_path: Path) -> dict[str, Any]:
    found = machine.facts(tmp_path)
    found["state"].update(governors=["performance"], on_battery=None, load_1m=0.0)
    found["machine"]["virtual"] = False
    found["process"]["nice"] = 0
    return found


def test_facts_are_json(facts: dict[str, Any]) -> None:
    assert json.loads(json.dumps(facts)) == facts
    assert facts["machine"]["memory_bytes"] > 0
    assert facts["process"]["affinity"]
    assert facts["filesystem"]["type"]


def test_a_quiet_machine_has_no_warnings(facts: dict[str, Any]) -> None:
    assert machine.warnings(facts) == []


@pytest.mark.parametrize(
    ("part", "name", "value", "said"),
    [
        ("state", "governors", ["powersave"], "powersave"),
        ("state", "on_battery", True, "battery"),
        ("state", "load_1m", 99.0, "load"),
        ("machine", "virtual", True, "virtual"),
        ("process", "nice", 5, "nice 5"),
    ],
)
def test_what_makes_times_uncertain_is_said(
    facts: dict[str, Any], part: str, name: str, value: object, said: str
) -> None:
    facts[part][name] = value
    assert [said in text for text in machine.warnings(facts)] == [True]


def test_another_machine_is_named(facts: dict[str, Any]) -> None:
    other = copy.deepcopy(facts)
    assert machine.other_machine(other, facts) is None
    other["machine"]["id"] = "elsewhere"
    assert "elsewhere" in (machine.other_machine(other, facts) or "")


def test_secrets_are_not_kept() -> None:
    told = machine.variables({"API_TOKEN": "secret", "OMP_NUM_THREADS": "2", "X_NUM_THREADS": "1"})
    assert told["kept"] == {"OMP_NUM_THREADS": "2", "X_NUM_THREADS": "1"}
    assert "secret" not in json.dumps(told)


def test_nothing_that_is_recorded_names_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts hold none of the names, and texts have words in their place."""
    monkeypatch.setenv("HOME", "/home/alice-7")
    monkeypatch.setenv("TMPDIR", "/scratch/alice-7")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("CORACLE_LAB_CACHE", raising=False)
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example.org:3128")
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example.org/simple")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/home/alice-7/lib")
    monkeypatch.setenv("CORACLE_DIR", "/pool/store-9")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "cn[07-08,12],gpu3")
    monkeypatch.setattr(socket, "gethostname", lambda: "login7.example.org")
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_name="alice-7"))
    told = json.dumps(machine.facts(tmp_path))
    for name in ("alice-7", "login7", "example.org", str(tmp_path), "cgroup", "secret"):
        assert name not in told, name
    assert '"LD_LIBRARY_PATH": "HOME/lib"' in told
    for given, wanted in (
        ("/home/alice-7/.cache/coracle-lab/apps/ep-1/ep", "CACHE/apps/ep-1/ep"),
        ("/home/alice-7/data: no such file", "HOME/data: no such file"),
        ("/home/alice-70/data", "/home/alice-70/data"),
        ("/scratch/alice-7/x, /data/alice-7/y", "TMP/x, /data/USER/y"),
        ("login7: cannot reach proxy.example.org:3128", "HOST: cannot reach PROXY:3128"),
        ("https://packages.example.org/simple", "https://PROXY/simple"),
        ("connect 10.1.2.3, 127.0.0.1 and fe80::1", "connect ADDRESS, 127.0.0.1 and ADDRESS"),
        (
            "no route to 10.1.2.3. Peer 10.1.2.3: fe80::1:5",
            "no route to ADDRESS. Peer ADDRESS: ADDRESS",
        ),
        ("fe80::1: refused; at:10.1.2.3", "ADDRESS: refused; at:ADDRESS"),
        ("/pool/store-9/layers, on cn08, cn12 and gpu3", "STORE/layers, on NODE, NODE and NODE"),
        ("cn09 and gpu3d", "cn09 and gpu3d"),
        ("libc.so.6, Open MPI 4.1.4, at 12:30:05", "libc.so.6, Open MPI 4.1.4, at 12:30:05"),
    ):
        assert plain.text(given) == wanted
    assert plain.tree({"HOME": ["/home/alice-7", 3, None]}) == {"HOME": ["HOME", 3, None]}


def look(directory: Path, *words: str) -> list[dict[str, Any]]:
    (directory / "request.json").write_text(json.dumps({"look": mapped.__file__}))
    command = [sys.executable, "-S", "-E", timer.__file__, "--request", "request.json", "--"]
    subprocess.run([*command, *words], cwd=directory, check=True)
    lines = (directory / "measured.json").read_text().splitlines()
    found: list[dict[str, Any]] = json.loads(lines[-1])["mapped"]
    return found


def test_program_and_libraries_are_hashed(tmp_path: Path) -> None:
    sleep = shutil.which("sleep") or ""
    found = look(tmp_path, "sh", "-c", "sleep 0.2; true")
    by_name = {Path(file["path"]).name: file for file in found}
    digest = hashlib.sha256(Path(sleep).read_bytes()).hexdigest()
    assert by_name["sleep"] == {
        "path": str(Path(sleep).resolve()),
        "sha256": digest,
        "program": True,
    }
    assert any(name.startswith("libc.so") for name in by_name)
    assert not any("python" in name for name in by_name)


def test_a_copy_of_the_program_is_the_same_and_a_changed_one_is_not(tmp_path: Path) -> None:
    sleep = shutil.which("sleep") or ""
    base = look(tmp_path, sleep, "0.1")
    (tmp_path / "bin").mkdir()
    copied = tmp_path / "bin" / "sleep"
    shutil.copy(sleep, copied)
    assert same.compare(base, look(tmp_path, str(copied), "0.1")) == same.Likeness("same")
    with copied.open("ab") as file:
        file.write(b"another build")
    assert same.compare(base, look(tmp_path, str(copied), "0.1")) == same.Likeness("other")


def file(path: str, digest: str | None, program: bool = False) -> dict[str, Any]:
    return {"path": path, "sha256": digest, "program": program}


def test_words_beside_a_verdict() -> None:
    base = [file("/bin/x", "1", True), file("/lib/libm.so.6", "2"), file("/lib/libz.so.1", "3")]
    assert same.compare(base, base) == same.Likeness("same")
    other = [file("/bin/x", "1"), file("/lib/libm-2.31.so", "9"), file("/lib/libz.so.1", "3")]
    likeness = same.compare(base, other)
    assert likeness is not None
    assert likeness.text() == "other libm"
    unseen = same.compare(base, [file("/lib/libz.so.1", "3")])
    assert unseen is not None
    assert unseen.text() == "the program's file was not seen"
    assert same.compare([file("/bin/x", None, True)], base) is None
