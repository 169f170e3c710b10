"""The papers' own numbers: an oracle that no noise of a machine can disturb."""

from __future__ import annotations

import math

import pytest
from conftest import Study

from coracle_lab.stats import Comparison, as_in_paper, compare


def overhead(study: Study, name: str, ranks: int, environment: str) -> str:
    view = as_in_paper(study[name][str(ranks)], "native")[environment]
    assert view.overhead is not None
    return f"{view.overhead:.2f}"


@pytest.mark.parametrize(
    ("name", "environment", "printed"),
    [
        ("nas", "docker", {1: "0.05", 16: "7.93"}),
        ("nas", "singularity", {1: "0.20", 16: "9.35"}),
        ("ondes3d", "docker", {8: "33.55", 16: "53.42"}),
        ("ondes3d", "singularity", {8: "3.75", 16: "6.52"}),
        ("ondes3d-ligurian", "singularity", {64: "0.07", 128: "0.37", 192: "0.62", 256: "0.41"}),
        ("nas-alpine", "docker", {1: "-9.50"}),
        ("nas-alpine", "singularity", {1: "-9.48", 16: "-4.65"}),
    ],
)
def test_overheads_are_the_printed_ones(
    study: Study, name: str, environment: str, printed: dict[int, str]
) -> None:
    assert {ranks: overhead(study, name, ranks, environment) for ranks in printed} == printed


def test_bars_are_three_standard_errors(study: Study) -> None:
    """Native EP at 16 ranks: sd 40.64 ms of 30 runs."""
    view = as_in_paper(study["nas"]["16"], "native")["native"]
    assert (view.count, f"{view.mean:.2f}", f"{view.sd:.3f}") == (30, "5629.93", "40.641")
    assert view.bar == pytest.approx(3 * 40.641353 / math.sqrt(30), rel=1e-6)
    for cells in study.values():
        for cell in cells.values():
            for own in as_in_paper(cell, "native").values():
                assert own.sd is not None
                assert own.bar == pytest.approx(3 * own.sd / own.count**0.5)


def test_the_ping_pong_is_the_published_one(study: Study) -> None:
    cells = {int(size): cell for size, cell in study["ping-pong"].items()}
    assert sorted(cells) == [2**power for power in range(21)]
    views = {size: as_in_paper(cell, "native") for size, cell in cells.items()}
    docker = {size: view["docker"].overhead or 0 for size, view in views.items()}
    small = [docker[size] for size in docker if size <= 8192]
    assert (round(min(small)), round(max(small)), round(docker[2**20])) == (56, 78, 171)
    singularity = sorted(view["singularity"].overhead or 0 for view in views.values())
    assert (round(singularity[0]), round(singularity[-2])) == (-4, 9)
    assert f"{singularity[-1]:.1f}" == "22.5"


def test_two_sessions_of_the_same_baseline_differ_by_four_to_six_percent(study: Study) -> None:
    """The same program, natively, in the campaigns of figures 1 and 4."""
    means = {
        name: [
            as_in_paper(study[name][p], "native")["native"].mean or 0 for p in ["1", "4", "8", "16"]
        ]
        for name in ("nas", "nas-alpine")
    }
    assert [f"{m / 1000:.2f}" for m in means["nas"]] == ["85.61", "21.65", "10.98", "5.63"]
    assert [f"{m / 1000:.2f}" for m in means["nas-alpine"]] == ["90.11", "22.86", "11.48", "5.87"]


def judged(study: Study, name: str, ranks: int) -> dict[str, Comparison]:
    found = compare(study[name][str(ranks)], "native", paired=False)
    return {comparison.environment: comparison for comparison in found}


def test_ligurian_is_equal_at_64_128_192_and_undecided_at_256(study: Study) -> None:
    found = {n: judged(study, "ondes3d-ligurian", n)["singularity"] for n in (64, 128, 192, 256)}
    for ranks in (64, 128, 192):
        assert found[ranks].verdict == "equal within ±1 % (TOST)"
    assert found[256].verdict.startswith("undecided: about ")
    assert f"{found[256].tost_p:.2f}" == "0.09"


def test_ep_is_equal_at_1_and_4_ranks_and_slower_at_8(study: Study) -> None:
    for ranks in (1, 4):
        for comparison in judged(study, "nas", ranks).values():
            assert comparison.verdict == "equal within ±1 % (TOST)"
    eight = judged(study, "nas", 8)
    assert eight["docker"].verdict == "slower by 0.7 to 1.5 %"
    assert eight["singularity"].verdict == "slower by 1.7 to 2.6 %"
    assert f"{((eight['docker'].ratio or 0) - 1) * 100:.1f}" == "1.1"
    assert overhead(study, "nas", 8, "docker") == "1.05"
    assert overhead(study, "nas", 8, "singularity") == "2.17"


def test_the_containers_spread_is_five_to_seven_times_that_of_native(study: Study) -> None:
    views = as_in_paper(study["nas"]["16"], "native")
    spread = {name: round(view.sd or 0) for name, view in views.items()}
    assert spread == {"native": 41, "docker": 266, "singularity": 213}


def test_eq1_of_the_udocker_paper_by_a_worked_example() -> None:
    """Means 110 and 100, deviations 2.2 and 1.0, after one outlier of each is masked.

    ΔR = 1.1 √(0.02² + 0.01²) = 0.024597; with the errors of five and five values, / √5.
    """
    one = [107.2178, 108.9, 110.0, 111.1, 112.7822, 400.0]
    host = [98.7353, 99.5, 100.0, 100.5, 101.2647, 10.0]
    one_sd = math.sqrt(sum((v - 110) ** 2 for v in one[:5]) / 4)
    host_sd = math.sqrt(sum((v - 100) ** 2 for v in host[:5]) / 4)
    assert one_sd == pytest.approx(2.1155, abs=1e-3)
    assert host_sd == pytest.approx(0.9613, abs=1e-3)
    masked = as_in_paper({"udocker": one, "host": host}, "host")["udocker"].masked
    assert masked is not None
    by_hand = 1.1 * math.sqrt((one_sd / 110) ** 2 + (host_sd / 100) ** 2)
    assert (masked.masked, masked.masked_base) == (1, 1)
    assert masked.ratio == pytest.approx(1.1)
    assert masked.spread == pytest.approx(by_hand)
    assert masked.error == pytest.approx(by_hand / math.sqrt(5))
    assert f"{masked.spread:.4f}" == "0.0237"


def test_eq1_of_the_base_with_itself_is_one_with_a_spread() -> None:
    """The papers' first column: 1, with √2 times its own relative deviation."""
    host = [10.0, 10.1, 9.9, 10.05, 9.95]
    masked = as_in_paper({"host": host}, "host")["host"].masked
    assert masked is not None
    sd = math.sqrt(sum((v - 10) ** 2 for v in host) / 4)
    assert (masked.ratio, masked.masked) == (1.0, 0)
    assert masked.spread == pytest.approx(math.sqrt(2) * sd / 10)


def test_cygnus_best_of_three_is_102_and_97_percent() -> None:
    """TFLOPS; the best of three is the largest, and a fourth run does not count."""
    for container, host, printed in ((2.2985, 2.2608, 102), (4.3635, 4.4883, 97)):
        values = {"container": [container - 0.1, container, 0.5, 9.0], "host": [host, 1.0, 0.5]}
        view = as_in_paper(values, "host", larger_is_better=True)["container"]
        assert round(100 * (view.best_ratio or 0)) == printed


def test_purdue_hpl_is_four_tenths_of_a_percent_slower() -> None:
    """GFLOPS of the means that the paper prints."""
    view = as_in_paper({"docker": [7.811], "native": [7.839]}, "native")["docker"]
    assert f"{view.overhead:.1f}" == "-0.4"
    assert view.bar is None


def test_the_first_iteration_stands_apart() -> None:
    """MasterCode's first compilation is slower, because caches are cold."""
    view = as_in_paper({"host": [990.0, 920.0, 926.0]}, "host")["host"]
    assert (view.first, view.mean_without_first, view.best) == (990.0, 923.0, 920.0)
