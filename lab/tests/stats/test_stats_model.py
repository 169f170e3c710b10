"""The mixed model, and distributions in run order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coracle_lab.stats import Observation, compare, distribution, mixed


def observations(sessions: int, blocks: int, seed: int = 2) -> list[Observation]:
    rng = np.random.Generator(np.random.PCG64(seed))
    found = []
    for session in range(sessions):
        of_session = rng.normal(0, 0.04)
        for block in range(blocks):
            of_block = rng.normal(0, 0.02)
            for count in ("1", "2"):
                for name, effect in (
                    ("native", 0.0),
                    ("slow", 0.03),
                    ("split", 0.04 * (count == "2")),
                ):
                    log = of_session + of_block + effect + rng.normal(0, 0.005)
                    time = 10 / int(count) * math.exp(log)
                    found.append(Observation(time, name, count, str(session), str(block)))
    return found


@pytest.mark.parametrize(("sessions", "blocks"), [(1, 20), (4, 10)])
def test_the_mixed_model_finds_effects_and_interaction(sessions: int, blocks: int) -> None:
    fit = mixed(observations(sessions, blocks), "native")
    truth = {("slow", "1"): 0.03, ("slow", "2"): 0.03, ("split", "1"): 0.0, ("split", "2"): 0.04}
    assert {(e.environment, e.ranks) for e in fit.effects} == set(truth)
    for effect in fit.effects:
        assert effect.intervals[1].holds(math.exp(truth[effect.environment, effect.ranks]))
        assert (effect.p < 1e-6) is (truth[effect.environment, effect.ranks] > 0)
    assert fit.interaction_p is not None
    assert fit.interaction_p < 1e-6
    assert (fit.sessions, fit.blocks) == (sessions, sessions * blocks)
    assert fit.sd_residual == pytest.approx(0.005, rel=0.2)
    assert fit.sd_block == pytest.approx(0.02, rel=0.4)
    assert (fit.sd_session is None) is (sessions == 1)


def test_the_mixed_model_of_one_cell_is_the_paired_t_test() -> None:
    """Balanced blocks, two environments: equal estimate, and equal error when blocks vary."""
    rows = [row for row in observations(1, 15) if row.ranks == "1" and row.environment != "split"]
    (effect,) = mixed(rows, "native").effects
    series: dict[str, list[float]] = {"native": [], "slow": []}
    for row in rows:
        series[row.environment].append(row.time)
    (direct,) = compare(series, "native")
    interval = direct.interval(0.95)
    assert interval is not None
    assert effect.ratio == pytest.approx(direct.ratio)
    assert effect.intervals[0].low == pytest.approx(interval.low, rel=1e-4)


def test_the_mixed_model_says_what_it_cannot_fit() -> None:
    rows = observations(1, 6)
    one_block = [row for row in rows if row.block == "0"]
    assert mixed(one_block, "native").why == "no environment was measured beside native twice"
    no_base = [r for r in rows if not (r.ranks == "2" and r.environment == "native")]
    fit = mixed(no_base, "native")
    assert {effect.ranks for effect in fit.effects} == {"1"}
    assert "slow at 2 ranks is left out: native is missing there" in fit.notes
    bad = [*rows, Observation(0.0, "slow", "1", "0", "7")]
    assert mixed(bad, "native").why == "slow has the value 0 in block 7"
    flat = [Observation(1.0, row.environment, row.ranks, "0", row.block) for row in rows]
    assert mixed(flat, "native").why == "all values of each cell are equal"
    missing = [*rows, Observation(math.nan, "slow", "1", "0", "7")]
    assert mixed(missing, "native").effects == mixed(rows, "native").effects


def test_distributions_show_drift_and_neighbours() -> None:
    rng = np.random.Generator(np.random.PCG64(8))
    steady = rng.normal(10, 0.1, 200)
    walk = 10 + np.convolve(rng.normal(0, 0.1, 204), np.ones(5) / 2, "valid")
    drifting = steady * np.linspace(1, 1.05, 200)
    found = distribution(
        {"steady": steady.tolist(), "walk": walk.tolist(), "drifting": drifting.tolist()}
    )
    assert found["steady"].lag1_p is not None
    assert found["steady"].lag1_p > 0.05
    assert found["walk"].lag1 == pytest.approx(0.8, abs=0.1)
    assert found["walk"].lag1_p is not None
    assert found["walk"].lag1_p < 1e-6
    drift = found["drifting"].drift_interval
    assert drift is not None
    assert drift.holds(0.05)
    assert not drift.holds(0.0)
    assert found["steady"].quantiles[0.5] == pytest.approx(np.median(steady))
    assert found["steady"].quantiles[0.99] == pytest.approx(np.quantile(steady, 0.99))
    assert len(found["steady"].qq) == 200
    assert found["steady"].order[4] == (5, steady[4])


def test_distributions_skip_missing_values_and_quantiles_beyond_the_sample() -> None:
    found = distribution({"x": [1.0, math.nan, 1.1, 1.2, 1.1]})["x"]
    assert (found.count, found.missing, found.order[1]) == (4, 1, (3, 1.1))
    known = {q: value for q, value in found.quantiles.items() if value is not None}
    assert known == pytest.approx({0.25: 1.075, 0.5: 1.1, 0.75: 1.125})
    assert found.notes == ("no quantile of 5, 95, 99 % from 4 values",)
    # Alternating values: each neighbour is opposite, except across the missing one.
    gap = distribution({"x": [1.0, 2.0] * 10 + [math.nan] + [2.0, 1.0] * 10})["x"]
    assert gap.lag1 == pytest.approx(-38 / 40)
    flat = distribution({"x": [2.0] * 9})["x"]
    assert (flat.lag1, flat.drift, flat.qq) == (None, None, ())
    assert flat.notes[-1] == "all 9 values of x are equal"
    assert distribution({"x": []})["x"].notes[-1] == "x has fewer than three values"
    assert distribution({"x": [1, 2, 0.0, 3]})["x"].notes[-1] == "x has the value 0 in block 3"
