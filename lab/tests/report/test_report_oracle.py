"""The overhead study's own numbers stand in the page: no noise of a machine can disturb them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import lab_made as made
import pytest
from test_report_page import read

from coracle_lab.campaign.model import Figure
from coracle_lab.cli import main
from coracle_lab.errors import LabError
from coracle_lab.report import oracle, page

pytestmark = pytest.mark.long


def lines(into: Path) -> list[str]:
    """Returns the page's table rows as text."""
    raw = (into / "index.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr>(.*?)</tr>", raw, flags=re.DOTALL)
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip() for row in rows]


@pytest.mark.parametrize(
    ("case", "environment", "ranks", "printed"),
    [
        ("NAS-EP class B", "docker", 1, "+0.05"),
        ("NAS-EP class B", "singularity", 1, "+0.20"),
        ("NAS-EP class B", "docker", 16, "+7.93"),
        ("NAS-EP class B", "singularity", 16, "+9.35"),
        ("Ondes3D default", "docker", 8, "+33.55"),
        ("Ondes3D default", "docker", 16, "+53.42"),
        ("Ondes3D default", "singularity", 8, "+3.75"),
        ("Ondes3D default", "singularity", 16, "+6.52"),
        ("", "singularity", 64, "+0.07"),
        ("", "singularity", 128, "+0.37"),
        ("", "singularity", 192, "+0.62"),
        ("", "singularity", 256, "+0.41"),
        ("NAS-EP class B, Alpine", "docker", 1, "−9.50"),  # noqa: RUF001
        ("NAS-EP class B, Alpine", "singularity", 1, "−9.48"),  # noqa: RUF001
    ],
)
def test_the_printed_overheads(
    study_page: Path, case: str, environment: str, ranks: int, printed: str
) -> None:
    where = f"{case}, ranks {ranks}" if case else f"ranks {ranks}"
    start = f"{environment} {where} "
    (line,) = (line for line in lines(study_page) if line.startswith(start))
    assert f" {printed} %" in line


def test_bars_are_three_standard_errors(study_page: Path) -> None:
    """Native EP at 16 ranks: mean 5629.93 ms, sd 40.64 ms, n = 30: 3 s/√n is 22.26 ms."""
    (line,) = (
        one for one in lines(study_page) if one.startswith("native NAS-EP class B, ranks 16")
    )
    assert "30 5.63 s 22.26 ms" in line


def test_the_verdicts_on_the_ligurian_earthquake(study_page: Path) -> None:
    found = [one for one in lines(study_page) if re.match(r"singularity ranks \d+ ", one)]
    verdicts = {one.split()[2]: one for one in found}
    for ranks in ("64", "128", "192"):
        assert "equal within ±1 % (TOST)" in verdicts[ranks]
    assert "undecided: about " in verdicts["256"]


def test_figures_one_to_four_are_drawn(study_page: Path) -> None:
    said, reader = read(study_page)
    for name in ("Fig-1", "Fig-2", "Fig-3", "Fig-4"):
        assert name in reader.ids
        assert list((study_page / name).glob("*.png"))
    assert "without A/A" in said
    with (study_page / "Fig-3/statistics.csv").open(newline="") as file:
        keys = {line["response"] for line in csv.DictReader(file)}
    assert keys == {f"latency_s@{2**power}" for power in range(21)}


def test_it_is_drawn_beside_ours(tmp_path: Path) -> None:
    files = made.study()
    store = made.make(tmp_path / "r", made.design(factors="ranks = [1, 2]"))
    figure = Figure(
        "OV1", "NAS EP", "Fig. 1", "times", ("wall_s",), "Nodes.", x="ranks", oracle="nas.csv"
    )
    page.write("t", "", [page.Section(figure, store)], tmp_path / "p", files)
    said, _ = read(tmp_path / "p")
    assert "The paper's own measurements" in said
    assert "+7.93 %" in said and "+9.35 %" in said
    assert (tmp_path / "p/OV1-paper/times.svg").exists()
    assert not list((tmp_path / "p").rglob("nas.csv"))


def test_files_that_are_not_the_study_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabError, match=r"nas\.csv: it cannot be read"):
        oracle.read(tmp_path, oracle.FIGURES[0])
    (tmp_path / "nas.csv").write_text("environment,parallelism,time\nnative,1,fast\n")
    with pytest.raises(LabError, match=r"nas\.csv, line 2"):
        oracle.read(tmp_path, oracle.FIGURES[0])
    (tmp_path / "nas.csv").write_text("environment,parallelism,time\n")
    with pytest.raises(LabError, match="no measurement"):
        oracle.read(tmp_path, oracle.FIGURES[0])
    assert main(["report", "--oracle", str(tmp_path / "none")]) == 2
    assert "no such directory" in capsys.readouterr().err
