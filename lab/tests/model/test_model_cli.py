"""`coracle-lab model` from records on disk: what is printed, written and refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from model_inputs import SIZES, Machine, recorded, seeded

from coracle_lab import cli
from coracle_lab.design import Row
from coracle_lab.model import form

pytestmark = pytest.mark.long

MACHINES = {
    "native": Machine(),
    "native-again": Machine(),
    "x": Machine(start=0.09, latency=90e-6, bandwidth=4e7),
}
PROFILE = "steps = 200\n[[message]]\ncount = 2\nbytes = 30000\n"
MESSAGES = [(400.0, 30000.0)]


def design(replicates: int, more: str = "", environments: str = '"native", "x"') -> str:
    command = ["true", "{ranks}"] if "ranks" in more else ["true"]
    return (
        f"seed = 3\nreplicates = {replicates}\n[factors]\nenvironment = [{environments}]\n{more}\n"
        f"[application]\ncommand = {json.dumps(command)}\n"
    )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of starts, of a ping-pong and of a program with 1, 2, 4 and 8 ranks."""
    rng = seeded(4)
    tmp_path = tmp_path_factory.mktemp("inputs")

    def start(row: Row) -> Mapping[str, float]:
        return {"wall_s": float(MACHINES[row.levels["environment"]].starts(rng, 1)[0])}

    def exchange(row: Row) -> Mapping[str, float]:
        times = MACHINES[row.levels["environment"]].ping_pong(rng, 1)[0]
        return {f"one_way_s@{size}": float(t) for size, t in zip(SIZES, times, strict=True)}

    def work(row: Row) -> Mapping[str, float]:
        one, ranks = MACHINES[row.levels["environment"]], int(row.levels["ranks"])
        wall = one.expected(ranks, MESSAGES if ranks > 1 else [])
        return {
            "wall_s": wall * rng.normal(1, 0.003),
            "work_s": one.work / ranks * rng.normal(1, 0.003),
        }

    everywhere = '"native", "native-again", "x"'
    recorded(tmp_path / "starts", design(60, environments=everywhere), start)
    kinds = 'kind = ["cold", "warm"]'
    recorded(tmp_path / "messages", design(10, kinds), exchange)
    ranks = "ranks = [1, 2, 4, 8]"
    recorded(tmp_path / "work", design(10, ranks, everywhere), work, cpus=4)
    (tmp_path / "profile.toml").write_text(PROFILE)
    return tmp_path


def law(inputs: Path, *more: str) -> list[str]:
    words = ["model", "law"]
    for name in ("starts", "messages", "work"):
        words += [f"--{name}", str(inputs / name)]
    return [*words, "--profile", str(inputs / "profile.toml"), "--ranks", "2,16,64", *more]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = cli.main(words)
    out = capsys.readouterr()
    assert status == 0, out.err
    return out.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert cli.main(words) == 2
    lines = capsys.readouterr().err.split("\n")
    return lines[0], lines[1] if len(lines) > 1 else ""


def test_the_law_from_records(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = inputs / "law.json"
    out = said(capsys, *law(inputs, "--where", "kind=warm", "--into", str(kept)))
    lines = out.split("\n")
    assert lines[0].startswith("model law: starts wall_s (native 60, x 60); work work_s")
    body = [
        line for line in lines if line.startswith(("model ", "measured ")) and "seed" not in line
    ]
    assert sum(line.startswith("model ") for line in body) == 6
    assert sum(line.startswith("measured ") for line in body) == 4
    assert "not fitted to: of times: at most" in out
    assert "measured with 8 ranks on fewer processors (oversubscribed): not compared" in out
    assert "nothing beyond 4 ranks was compared" in out
    read = form.read(kept.read_text(), "law.json")
    points = {
        (one["environment"], one["x"]): one for one in read["points"] if one["kind"] == "model"
    }
    for (name, ranks), point in points.items():
        assert point["y"] == pytest.approx(MACHINES[name].expected(ranks, MESSAGES), rel=0.15)
        assert point["low95"] < point["y"] < point["high95"]
        assert point["low997"] is None, "10 blocks"
    assert {one["x"] for one in read["error"]["points"]} == {2, 4}
    assert read["error"]["largest"] < 0.03
    effects = {one["x"]: one for one in read["effects"]}
    assert effects[64]["words"].startswith("model: slower by ")


def test_the_launcher_that_the_one_rank_run_tells_is_in_the_law(
    inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mpirun and MPI_Init take 0.5 s for any number of ranks; the table of starts lacks them."""
    rng = seeded(8)

    def work(row: Row) -> Mapping[str, float]:
        one, ranks = MACHINES[row.levels["environment"]], int(row.levels["ranks"])
        start = float(one.starts(rng, ranks).max())
        parts = {"launch_s": start + 0.2, "start_s": 0.25, "end_s": 0.05}
        parts["work_s"] = one.work / ranks * rng.normal(1, 0.003)
        return {"wall_s": sum(parts.values()), **parts}

    directory = inputs / "launched"
    recorded(directory, design(30, "ranks = [1, 4]"), work)
    kept = inputs / "launched.json"
    words = ["model", "law", "--work", str(directory), "--starts", str(inputs / "starts")]
    said(capsys, *words, "--ranks", "4", "--profile", "none", "--into", str(kept))
    read = form.read(kept.read_text(), "law")
    assert "outside" in [one["name"] for one in read["inputs"]]
    assert {one["x"] for one in read["error"]["points"]} == {4}
    assert read["error"]["largest"] < 0.02
    own = inputs / "own.json"
    words[-1] = str(directory)
    said(capsys, *words, "--ranks", "2,4", "--profile", "none", "--into", str(own))
    again = form.read(own.read_text(), "law")
    assert again["error"]["largest"] < 0.02
    assert again["inputs"][0]["counts"] == {"native": 30, "x": 30}, "starts of one rank alone"


def test_cores_say_which_points_are_compared(
    inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = inputs / "law.json"
    words = law(inputs, "--where", "messages:kind=warm", "--cores", "8", "--into", str(kept))
    assert "oversubscribed" not in said(capsys, *words)
    assert {one["x"] for one in json.loads(kept.read_text())["error"]["points"]} == {2, 4, 8}
    few = said(capsys, *law(inputs, "--where", "kind=warm", "--cores", "1"))
    assert "error of the model: unknown" in few
    assert "model cannot tell: its error is unknown" in few


def test_equal_records_give_equal_files(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for name in ("a", "b"):
        files = [inputs / f"{name}.json", inputs / f"{name}.csv"]
        words = law(inputs, "--where", "kind=warm")
        said(capsys, *words, "--into", str(files[0]), "--into", str(files[1]))
        texts.append([file.read_text() for file in files])
    assert texts[0] == texts[1]
    rows = list(csv.DictReader(texts[0][1].split("\n")))
    assert {row["kind"] for row in rows} == {"model", "measured", "effect", "error"}
    assert rows[-1]["words"].startswith("error of the model on")


def test_the_tail_from_records(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(
        capsys,
        "model",
        "tail",
        str(inputs / "starts"),
        "--of",
        "256",
        "--env",
        "native",
        "--env",
        "x",
    )
    body = [line for line in out.split("\n")[2:] if " 60 " in line or "ratio to" in line]
    assert all(line.startswith("model ") for line in body)
    assert len(body) == 3
    assert "error of the model on draws that it was not fitted to: native" in out
    small = said(capsys, "model", "tail", str(inputs / "starts"), "--of", "4")
    assert "nothing is modelled" in small
    assert not any(line.startswith("model ") for line in small.split("\n")[1:])
    assert "groups" in small


def test_two_terms_from_records(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = inputs / "two.json"
    words = ["model", "two-term", "--times", str(inputs / "work"), "--bytes", "1024,65536"]
    words += ["--messages", str(inputs / "messages"), "--where", "kind=warm", "--into", str(kept)]
    out = said(capsys, *words)
    assert out.startswith("model two-term: makespans wall_s")
    read = form.read(kept.read_text(), "two")
    assert {one["x"] for one in read["points"]} == {2, 4, 8}
    assert {one.get("bytes") for one in read["points"]} == {None, 1024, 65536}


def test_a_failed_row_is_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wall(row: Row) -> Mapping[str, float]:
        return {"wall_s": 100.0 if row.block == 3 else 1.0 + row.number / 1000}

    def outcome(row: Row) -> str:
        return "failed" if row.block == 3 else "ok"

    recorded(tmp_path / "starts", design(12), wall, outcome)
    kept = tmp_path / "t.json"
    said(capsys, "model", "tail", str(tmp_path / "starts"), "--of", "2", "--into", str(kept))
    read = json.loads(kept.read_text())
    assert all(one["y"] < 2 for one in read["points"])
    assert read["inputs"][0]["counts"] == {"native": 11, "x": 11}


def test_inputs_of_two_machines_are_told(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wall(row: Row) -> Mapping[str, float]:
        return {"wall_s": 0.1 + row.number / 1000}

    recorded(inputs / "other", design(30), wall, machine="another")
    words = law(inputs, "--where", "kind=warm", "--starts", str(inputs / "other"))
    assert "measured on different machines" in said(capsys, *words)


def test_bad_words_and_inputs(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, hint = refused(capsys, *law(inputs))
    assert "kind has the levels cold, warm, and the model takes one" in error
    assert hint == "  hint: --where kind=cold"
    error, hint = refused(capsys, *law(inputs, "--where", "kind=hot"))
    assert 'kind has no level "hot"' in error
    error, _ = refused(capsys, *law(inputs, "--where", "colour=red"))
    assert 'no input has a factor "colour"' in error
    error, _ = refused(capsys, *law(inputs, "--where", "tails:kind=warm"))
    assert "names no input" in error
    error, _ = refused(capsys, *law(inputs, "--where", "kind"))
    assert "is not [INPUT:]FACTOR=LEVEL" in error
    warm = ("--where", "kind=warm")
    error, _ = refused(capsys, *law(inputs, *warm, "--ranks", "0"))
    assert '"0" is not a list of numbers' in error
    error, hint = refused(capsys, *law(inputs, *warm, "--env", "native", "--env", "bwrap"))
    assert 'were not measured in "bwrap"' in error
    assert "native" in hint
    error, hint = refused(capsys, *law(inputs, *warm, "--profile", "lammps"))
    assert 'the messages of "lammps" are not known' in error
    error, _ = refused(capsys, *law(inputs, *warm, "--profile", str(inputs / "none.toml")))
    assert "there is no such file" in error
    error, hint = refused(capsys, *law(inputs, *warm, "--start-response", "launch_s"))
    assert 'no response "launch_s"' in error
    assert "wall_s" in hint
    error, _ = refused(capsys, *law(inputs, *warm, "--into", "law.txt"))
    assert "neither .json nor .csv" in error
    error, _ = refused(capsys, "model", "tail", str(inputs / "profile.toml"))
    assert "holds no design.toml" in error
    error, hint = refused(capsys, *law(inputs, "--messages", str(inputs / "starts")))
    assert "no row has a response one_way_s@BYTES" in error
    assert "pingpong" in hint
    error, _ = refused(capsys, "model", "tail", str(inputs / "starts"), "--env", "docker")
    assert 'were not measured in "docker"' in error


def test_unmatched_environments(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wall(row: Row) -> Mapping[str, float]:
        return {"wall_s": 0.1 + row.number / 1000}

    recorded(inputs / "others", design(12, environments='"native", "bwrap"'), wall)
    words = law(inputs, "--where", "kind=warm", "--starts", str(inputs / "others"))
    error, hint = refused(capsys, *words)
    assert "starts and work were measured in different environments" in error
    assert "starts: bwrap, native; work: native, x" in error
    assert hint == "  hint: choose those that all have: --env native --env NAME"
    assert said(capsys, *words, "--env", "native", "--ranks", "2,4").count("\nmodel ") == 2


def test_records_without_a_right_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "r", design(3), lambda row: {}, lambda row: "failed")
    error, hint = refused(capsys, "model", "tail", str(tmp_path / "r"))
    assert "it has no row that is right" in error
    assert hint.startswith("  hint: coracle-lab run ")


def test_a_size_that_only_some_rows_have_is_not_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def exchange(row: Row) -> Mapping[str, float]:
        sizes = [8] if row.block == 2 else [16]
        return {f"one_way_s@{size}": 1e-6 * row.number for size in sizes}

    for name in ("starts", "work"):
        recorded(tmp_path / name, design(10), lambda row: {"wall_s": 1 + row.number / 1000})
    recorded(tmp_path / "messages", design(10), exchange)
    (tmp_path / "profile.toml").write_text(PROFILE)
    error, hint = refused(capsys, *law(tmp_path))
    assert "no size of a message was measured in every block" in error
    assert "measure all sizes in each row" in hint
