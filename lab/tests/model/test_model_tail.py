"""The slowest of p starts: exact on small tables, covered on planted ones, errors told."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from model_inputs import recorded, seeded
from numpy.random import Generator
from numpy.typing import NDArray

from coracle_lab.errors import LabError
from coracle_lab.model import read, slowest, tail
from coracle_lab.model.sample import intervals, resampled, sample

pytestmark = pytest.mark.long

Draw = Callable[[Generator, int | tuple[int, int]], NDArray[np.float64]]
TIMES = some.lists(
    some.floats(1e-3, 1e3, allow_nan=False, allow_infinity=False), min_size=2, max_size=40
)


@given(TIMES, some.data())
def test_the_expected_slowest_is_the_mean_over_all_choices(
    values: list[float], data: some.DataObject
) -> None:
    values = values[:9]
    of = data.draw(some.integers(1, len(values)))
    tops = [max(choice) for choice in itertools.combinations(values, of)]
    assert tail.slowest_measured(np.array(values), of) == pytest.approx(statistics.fmean(tops))


@given(TIMES, some.floats(1e-3, 1e3))
def test_the_slowest_grows_with_the_ranks_and_scales_with_the_unit(
    values: list[float], unit: float
) -> None:
    array = np.array(values)
    found = [tail.slowest_measured(array, of) for of in range(1, len(values) + 1)]
    assert found[0] == pytest.approx(array.mean())
    assert found[-1] == pytest.approx(array.max())
    assert all(after >= before * (1 - 1e-9) for before, after in itertools.pairwise(found)), found
    scaled = [tail.slowest_measured(array * unit, of) for of in range(1, len(values) + 1)]
    assert scaled == pytest.approx([value * unit for value in found])


@given(some.integers(0, 2**32), some.floats(1e-3, 1e3))
def test_the_fitted_tail_grows_and_scales_too(seed: int, unit: float) -> None:
    ordered = np.sort(seeded(seed).exponential(1, 100) + 1)
    found = [float(tail.extrapolated(ordered, of)) for of in (25, 50, 100, 400, 1600)]
    assert found == sorted(found)
    scaled = [float(tail.extrapolated(ordered * unit, of)) for of in (25, 50, 100, 400, 1600)]
    assert scaled == pytest.approx([value * unit for value in found])


def test_weights_of_many_draws_are_finite() -> None:
    for count, of in ((10_000, 256), (10_000, 10_000), (2000, 1)):
        weights = tail.weights(count, of)
        assert weights.sum() == pytest.approx(1, rel=1e-6)
        assert (weights >= 0).all()


def exponential(rng: Generator, shape: int | tuple[int, int]) -> NDArray[np.float64]:
    return 1 + rng.exponential(0.1, shape)


def normal(rng: Generator, shape: int | tuple[int, int]) -> NDArray[np.float64]:
    return rng.normal(1, 0.05, shape)


def power_law(rng: Generator, shape: int | tuple[int, int]) -> NDArray[np.float64]:
    return 1 + 0.05 * rng.pareto(3, shape)


@pytest.mark.parametrize(
    ("draw", "count", "of", "least", "most"),
    [
        (normal, 100, 4, 179, 200),
        (exponential, 100, 4, 179, 200),
        (exponential, 200, 16, 168, 198),
        (power_law, 200, 16, 158, 190),
        # The tail is exponential: right for one that is, and it may not be for a power law.
        (exponential, 100, 256, 174, 200),
        (normal, 100, 64, 180, 200),
        (power_law, 100, 256, 40, 130),
    ],
)
def test_coverage_of_the_bootstrap_is_what_the_docs_say(
    draw: Draw, count: int, of: int, least: int, most: int
) -> None:
    """200 experiments with a fixed seed; 95 % stated."""
    rng = seeded(7)
    truth = float(draw(rng, (20_000, of)).max(axis=1).mean())
    held = 0
    for _ in range(200):
        values = draw(rng, count)
        drawn = np.sort(values[rng.integers(0, count, (2000, count))], axis=1)
        found = intervals(tail.slowest(drawn, of), tail.groups_in(count, of))[0.95]
        held += found.holds(truth)
    assert least <= held <= most


def test_the_median_slowest_is_covered_whatever_the_distribution() -> None:
    for draw in (normal, exponential, power_law):
        rng = seeded(3)
        truth = float(np.median(draw(rng, (40_000, 8)).max(axis=1)))
        found = [tail.median_slowest(draw(rng, 100), 8) for _ in range(300)]
        held = sum(one.intervals[0.95].holds(truth) for one in found)
        assert 275 <= held <= 300, draw
        assert all(set(one.intervals) == {0.95, 0.997} for one in found)


def test_too_few_draws_give_the_median_no_upper_end() -> None:
    """The slowest of 256 is below x with probability F(x)^256: at 95 %, 1361 draws are needed."""
    rng = seeded()
    few, enough = (tail.median_slowest(exponential(rng, n), 256) for n in (1300, 1400))
    assert 0.95 not in few.intervals
    assert few.lower[0.95] > 1
    assert 0.95 in enough.intervals
    assert tail.median_slowest(exponential(rng, 30), 256).value is None


def test_the_error_of_the_tail_shows_where_it_does_not_fit() -> None:
    """An exponential tail fits itself; starts of two kinds, with an upper end, it does not."""
    rng = seeded(5)
    fits = tail.tail_error(exponential(rng, 400), 1600)
    bounded = np.where(rng.random(400) < 0.08, 1.4, 1.0) * rng.uniform(0.99, 1.01, 400)
    does_not = tail.tail_error(bounded, 1600)
    assert fits is not None
    assert does_not is not None
    assert does_not.relative > 2 * fits.relative
    assert "of the slowest of 320 from 80 draws" in fits.words(4.0)
    assert tail.tail_error(exponential(rng, 22), 256) is None


def test_the_error_is_that_on_draws_outside_the_piece() -> None:
    """A session that became slow half way: each half predicts the other badly."""
    rng = seeded(1)
    values = np.concatenate([rng.uniform(1, 1.1, 20), rng.uniform(2, 2.1, 20)])
    found = tail.tail_error(values, 40)
    assert found is not None
    assert (found.folds, found.count, found.of) == (2, 20, 20)
    assert 0.7 < found.relative < 0.85


def test_the_error_says_when_it_was_checked_at_a_smaller_distance() -> None:
    found = tail.tail_error(exponential(seeded(), 100), 10_000)
    assert found is not None
    assert found.words(100.0).endswith("checked 4.0 times beyond the draws, used 100.0 times")


def test_the_groups_are_the_maxima_of_draws_that_follow_each_other() -> None:
    assert tail.groups(np.array([1.0, 5.0, 2.0, 3.0, 9.0]), 2) == (5.0, 3.0)


def test_starts_of_one_launch_are_drawn_together_and_count_once() -> None:
    one = sample([float(at) for at in range(1, 13)], "x", [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3, 3)
    assert (one.count, one.units) == (12, 4)
    (drawn,) = resampled(seeded(), {"x": one}, 200)
    launches = drawn["x"].reshape(200, 4, 3)
    assert (launches[..., 0] % 3 == 0).all()
    assert (np.diff(launches, axis=-1) == 1).all()
    assert len(np.unique(launches[..., 0])) == 4


def test_launches_that_differ_widen_the_interval(tmp_path: Path) -> None:
    """40 launches of 25 starts that have all of their spread between launches tell what 40 do."""
    rng = seeded()
    design = """
kind = "nested"
seed = 1
responses = ["wall_s"]
[nested]
sessions = 1
launches = 40
starts = 25
[factors]
environment = ["native", "native-again"]
[application]
command = ["true"]
"""
    shift = {at: float(rng.normal(0, 0.1)) for at in range(1, 1000)}
    made = recorded(tmp_path / "r", design, lambda row: {"wall_s": math.exp(shift[row.block])})
    taken = read.starts(read.opened(made), {})
    one = taken.samples["native"]
    assert (one.count, one.together, one.units) == (1000, 25, 40)
    (line, *_) = slowest.tell({"native": one}, 1).lines
    launches = np.log(one.values.reshape(40, 25)[:, 0])
    width = line.intervals[0.95].high - line.intervals[0.95].low
    assert width == pytest.approx(2 * 2.02 * launches.std(ddof=1) / math.sqrt(40), rel=0.2)


def test_measured_is_told_from_modelled() -> None:
    rng = seeded()
    starts = {
        "native": sample(exponential(rng, 600), "native"),
        "x": sample(1.5 * exponential(rng, 600), "x"),
    }
    enough = slowest.tell(starts, 64)
    assert {line.kind for line in enough.lines} == {"measured"}
    assert [line.what for line in enough.lines][:3] == ["expected", "median", "groups"]
    assert (enough.error, enough.error_of_ratios) == (0.0, 0.0)
    (ratio,) = enough.effects
    assert ratio.words.startswith("slower by ")
    assert ratio.intervals[0.95].holds(1.5)
    some_model = slowest.tell(starts, 256)
    by_kind = {(line.environment, line.kind, line.what) for line in some_model.lines}
    assert ("x", "model", "expected") in by_kind
    assert ("x", "measured", "expected") in by_kind
    measured = next(line for line in some_model.lines if line.kind == "measured")
    assert measured.intervals == {}
    assert "no interval from fewer than 2048 draws" in measured.words
    assert some_model.error is not None
    assert some_model.error > 0
    assert some_model.effects[0].words.startswith("model")
    only_model = slowest.tell(starts, 4096)
    assert {line.kind for line in only_model.lines} == {"model"}


def test_a_difference_that_is_smaller_than_the_error_is_not_claimed() -> None:
    rng = seeded(2)
    starts = {
        "native": sample(power_law(rng, 200), "native"),
        "x": sample(1.01 * power_law(rng, 200), "x"),
    }
    (ratio,) = slowest.tell(starts, 1000).effects
    assert ratio.words.startswith("model cannot tell: ")


def test_equal_inputs_and_seeds_give_equal_results() -> None:
    starts = {"native": sample(exponential(seeded(), 60), "native")}
    assert slowest.tell(starts, 256) == slowest.tell(starts, 256)
    other = slowest.tell(starts, 256, seed=19)
    assert other != slowest.tell(starts, 256)
    assert other.lines[-1].value == slowest.tell(starts, 256).lines[-1].value


def test_bad_tables() -> None:
    one = sample([1.0, 2.0], "x")
    with pytest.raises(LabError, match="starts of native: one value") as found:
        sample([1.0], "starts of native")
    assert found.value.hint == "measure more blocks"
    for bad in (math.nan, 0.0, -1.0, math.inf):
        with pytest.raises(LabError, match="value 2 is"):
            sample([1.0, bad], "starts")
    with pytest.raises(LabError, match="2 draws say nothing about the slowest of 256"):
        slowest.tell({"native": one}, 256)
    with pytest.raises(LabError, match="slowest of 0"):
        slowest.tell({"native": one}, 0)
    with pytest.raises(LabError, match='"native" has no starts'):
        slowest.tell({"x": one}, 2)
