"""Simulated experiments: stated coverage holds, planted costs are found, A/A alarms are rare.

Each experiment has `BLOCKS` blocks of three runs, in random order in each: native, native again
and native with 3 % more work. Four machines: Gaussian noise; 8 % of the runs 1.4 times slower;
a drift of 10 % over the experiment; disturbances of some runs' length. Seeds are fixed, so the
counts below are the same each time. Bounds are three standard errors of 200 experiments.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from coracle_lab.stats import Values, as_in_paper, compare, dunnett, guard
from coracle_lab.stats.data import Interval
from coracle_lab.stats.estimate import Estimate, paired, welch
from coracle_lab.stats.many import holm
from coracle_lab.stats.ranks import paired_shift
from coracle_lab.stats.resample import bca
from coracle_lab.stats.verdict import judge

pytestmark = pytest.mark.long

EXPERIMENTS = 200
BLOCKS = 30
RATIOS = {"native": 1.0, "native-again": 1.0, "planted": 1.03}
Machine = Callable[[Generator, int], NDArray[np.float64]]
"""Slowness of each of the runs, in the order of time."""


def gaussian(rng: Generator, runs: int) -> NDArray[np.float64]:
    return rng.normal(1, 0.01, runs)


def heavy_tail(rng: Generator, runs: int) -> NDArray[np.float64]:
    return gaussian(rng, runs) * np.where(rng.random(runs) < 0.08, 1.4, 1.0)


def drift(rng: Generator, runs: int) -> NDArray[np.float64]:
    return gaussian(rng, runs) * np.linspace(1, 1.1, runs)


def disturbance(rng: Generator, runs: int) -> NDArray[np.float64]:
    slow = np.ones(runs)
    for start in np.flatnonzero(rng.random(runs) < 0.05):
        slow[start : start + rng.integers(1, 5)] = 1.2
    return gaussian(rng, runs) * slow


MACHINES: list[Machine] = [gaussian, heavy_tail, drift, disturbance]
# BCa covers less than it says where tails are long; `resample` tells the reader so. These are the
# rates that it tells, give or take; a change of SciPy that moves them has to be told as well.
BOOTSTRAP = {
    "gaussian": (0.89, 0.96),
    "heavy_tail": (0.80, 0.91),
    "drift": (0.88, 0.96),
    "disturbance": (0.75, 0.88),
}


def experiment(rng: Generator, machine: Machine, blocks: int = BLOCKS) -> Values:
    """Measures every environment once a block, in random order."""
    slow = machine(rng, blocks * len(RATIOS)).reshape(blocks, len(RATIOS))
    order = rng.permuted(np.tile(np.arange(len(RATIOS)), (blocks, 1)), axis=1)
    times = 10 * np.take_along_axis(slow, order, axis=1)
    return {
        name: (times[:, at] * ratio).tolist() for at, (name, ratio) in enumerate(RATIOS.items())
    }


def logs(values: Values, name: str) -> NDArray[np.float64]:
    return np.log(np.asarray(values[name], dtype=np.float64))


def verdict(estimate: Estimate) -> str:
    """Judges a comparison on its own, as the guard's is."""
    interval = estimate.interval(0.95)
    ratio = interval.mapped(float(np.exp(interval.low)), float(np.exp(interval.high)))
    return judge(estimate, ratio, 0.01, estimate.p(), 1)


def alarmed(text: str) -> bool:
    return text.startswith(("slower", "faster"))


@pytest.mark.parametrize("machine", MACHINES)
def test_the_stated_coverage_holds_and_alarms_stay_at_their_rate(machine: Machine) -> None:
    rng = np.random.Generator(np.random.PCG64(18))
    held = dict.fromkeys(["t 95", "t 99.7", "ranks 95", "ranks 99.7", "bootstrap 95"], 0)
    alarms = wrong = found = 0
    truth = float(np.log(1.03))

    def count(name: str, interval: Interval | None) -> None:
        assert interval is not None
        held[name] += interval.holds(truth)

    for at in range(EXPERIMENTS):
        values = experiment(rng, machine)
        native = logs(values, "native")
        planted = paired(logs(values, "planted"), native)
        difference = logs(values, "planted") - native
        for level in (0.95, 0.997):
            count(f"t {level * 100:g}", planted.interval(level))
            count(f"ranks {level * 100:g}", paired_shift(difference, level)[1])
        count("bootstrap 95", bca((difference,), at)[0][0.95])
        alarms += alarmed(verdict(paired(logs(values, "native-again"), native)))
        text = verdict(planted)
        wrong += text.startswith(("equal", "faster"))
        found += text.startswith("slower")
    for name in ("t 95", "ranks 95"):
        assert held[name] >= 0.904 * EXPERIMENTS, held
    for name in ("t 99.7", "ranks 99.7"):
        assert held[name] >= 0.985 * EXPERIMENTS, held
    low, high = BOOTSTRAP[machine.__name__]
    assert low * EXPERIMENTS <= held["bootstrap 95"] <= high * EXPERIMENTS, held
    if machine in (gaussian, drift):
        assert held["t 95"] < EXPERIMENTS, "an interval that always holds the truth is too wide"
        assert found >= 0.98 * EXPERIMENTS
    assert alarms <= 0.096 * EXPERIMENTS
    assert wrong <= 0.05 * EXPERIMENTS


def test_one_after_the_other_under_drift_is_what_blocks_protect_from() -> None:
    """The toy version: all native runs first. Its A/A differs in most experiments."""
    rng = np.random.Generator(np.random.PCG64(19))
    alarms = 0
    for _ in range(EXPERIMENTS):
        times = drift(rng, 2 * BLOCKS)
        alarms += alarmed(verdict(welch(np.log(times[BLOCKS:]), np.log(times[:BLOCKS]))))
    assert alarms > 0.9 * EXPERIMENTS


def test_the_papers_bars_cover_less_than_they_say() -> None:
    """3 s/√n at n = 10: 98.5 % of Gaussian means instead of 99.7; with a tail, 58 %."""
    rng = np.random.Generator(np.random.PCG64(20))
    covered = {"gaussian": 0, "heavy": 0}
    truth = {"gaussian": 1.0, "heavy": 1 + 0.08 * 0.4}
    experiments = 2000
    for _ in range(experiments):
        for name, machine in (("gaussian", gaussian), ("heavy", heavy_tail)):
            view = as_in_paper({"native": machine(rng, 10).tolist()}, "native")["native"]
            assert view.mean is not None
            assert view.bar is not None
            covered[name] += abs(view.mean - truth[name]) <= view.bar
    assert 0.977 < covered["gaussian"] / experiments < 0.992
    assert 0.54 < covered["heavy"] / experiments < 0.62


def test_holm_keeps_the_rate_over_many_comparisons() -> None:
    """Ten environments that are all native: at most 5 % of experiments call one different."""
    rng = np.random.Generator(np.random.PCG64(21))
    single = family = 0
    for _ in range(EXPERIMENTS):
        times = np.log(rng.normal(1, 0.01, (11, 15)))
        p = [paired(row, times[0]).p() for row in times[1:]]
        single += min(p) < 0.05
        family += min(holm(p)) < 0.05
    assert single > 0.15 * EXPERIMENTS, "without a correction the rate is far above 5 %"
    assert family <= 0.096 * EXPERIMENTS


def test_compare_finds_what_was_planted_and_trusts_its_a_a() -> None:
    """The public function, end to end, on one experiment of each machine."""
    for seed, machine in enumerate(MACHINES, start=3):
        values = experiment(np.random.Generator(np.random.PCG64(seed)), machine)
        again, planted = compare(values, "native")
        assert guard(again).trusted
        interval = planted.interval(0.997)
        assert interval is not None
        assert interval.holds(1.03)
        direct = paired(logs(values, "planted"), logs(values, "native"))
        assert planted.t_p == direct.p()


def test_dunnett_finds_what_was_planted() -> None:
    values = experiment(np.random.Generator(np.random.PCG64(1)), gaussian)
    found = {result.environment: result for result in dunnett(values, "native")}
    planted, again = found["planted"], found["native-again"]
    assert planted.p is not None
    assert planted.p < 1e-6
    assert planted.ratio[0].holds(1.03)
    assert again.p is not None
    assert again.p > 0.05
