"""Each part against a published number, another implementation, or counting all cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

from coracle_lab.errors import LabError
from coracle_lab.stats import (
    blocks_needed,
    compare,
    dunnett,
    guard,
    holm,
    precise,
    ranks,
    resample,
)
from coracle_lab.stats import estimate as est
from coracle_lab.stats.data import Interval
from coracle_lab.stats.estimate import Estimate
from coracle_lab.stats.verdict import blocks_to_decide, judge


def sample(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.PCG64(seed)).normal(0, 1, shape)


@pytest.mark.parametrize(
    ("variation", "blocks"), [(0.005, 9), (0.01, 23), (0.03, 164), (0.1, 1767)]
)
def test_blocks_for_one_percent_at_99_7_are_the_briefs(variation: float, blocks: int) -> None:
    assert blocks_needed(variation * math.sqrt(2), 0.01, 0.997) == blocks


def test_blocks_needed_is_the_smallest_number() -> None:
    for sd, margin, level in ((0.02, 0.01, 0.95), (0.3, 0.02, 0.997), (1e-5, 0.01, 0.95)):
        n = blocks_needed(sd, margin, level)
        halves = [stats.t.ppf((1 + level) / 2, k - 1) * sd / k**0.5 for k in (n, n - 1) if k > 1]
        assert halves[0] <= margin
        assert n == 2 or halves[1] > margin


@pytest.mark.parametrize(
    "numbers", [(0, 0.01, 0.95), (math.nan, 0.01, 0.95), (1, -1, 0.95), (1, 1, 1)]
)
def test_blocks_needed_refuses_what_is_no_number(numbers: tuple[float, float, float]) -> None:
    with pytest.raises(LabError, match="blocks_needed"):
        blocks_needed(*numbers)


@pytest.mark.parametrize("mean", [0.0, 0.004, 0.03, -0.05])
def test_more_blocks_decide_with_the_power_that_is_promised(mean: float) -> None:
    """Simulates experiments of the size that "about N more blocks" asks for."""
    rng = np.random.Generator(np.random.PCG64(5))
    n = blocks_to_decide(Estimate(mean, 0.02 / math.sqrt(10), 9, 10), 0.01)
    decided = 0
    for _ in range(400):
        one = est.paired(rng.normal(mean, 0.02, n), np.zeros(n))
        equal = one.tost_p(math.log1p(0.01)) < 0.05
        decided += equal if abs(mean) < 0.01 else one.p() < 0.05
    assert 0.72 < decided / 400 < 0.95


def test_precision_is_reached_when_every_interval_is_narrow_enough() -> None:
    native = np.exp(0.001 * sample(1, 20))
    values = {
        "native": native.tolist(),
        "a": np.exp(0.001 * sample(2, 20)).tolist(),
        "b": np.exp(0.02 * sample(3, 20)).tolist(),
        "zero": [0.0] * 20,
    }
    a, b, zero = compare(values, "native")
    assert precise([a], 0.0005, 0.95)
    assert not precise([a], 0.0005, 0.997)
    assert not precise([a, b], 0.001, 0.95)
    assert precise([a, b], 0.02, 0.997)
    assert not precise([a, zero], 0.02, 0.95)


def test_tost_is_that_of_statsmodels() -> None:
    one, other = sample(1, 20) * 0.01, sample(2, 20) * 0.02
    bound = 0.01
    paired = est.paired(one, other).tost_p(bound)
    assert paired == pytest.approx(ttost_paired(one, other, -bound, bound)[0])
    welch = est.welch(one, other).tost_p(bound)
    assert welch == pytest.approx(ttost_ind(one, other, -bound, bound, usevar="unequal")[0])


def test_t_intervals_and_p_are_those_of_scipy() -> None:
    one, other = sample(3, 12), sample(4, 12) + 0.3
    for ours, theirs in (
        (est.paired(one, other), stats.ttest_rel(one, other)),
        (est.welch(one, other), stats.ttest_ind(one, other, equal_var=False)),
    ):
        assert ours.p() == pytest.approx(theirs.pvalue)
        low, high = theirs.confidence_interval(0.997)
        assert (ours.interval(0.997).low, ours.interval(0.997).high) == pytest.approx((low, high))


def test_holm_is_that_of_statsmodels() -> None:
    rng = np.random.Generator(np.random.PCG64(6))
    for size in (1, 2, 7, 30):
        p = rng.random(size) ** 3
        assert holm(p.tolist()) == pytest.approx(multipletests(p, method="holm")[1].tolist())
    assert holm([]) == []


def test_rank_distributions_count_all_cases() -> None:
    for n in (1, 4, 7):
        sums = [
            sum(rank for rank, sign in enumerate(signs, start=1) if sign)
            for signs in itertools.product((0, 1), repeat=n)
        ]
        assert ranks.signed_rank_counts(n).tolist() == np.bincount(sums).tolist()
    for n, m in ((1, 1), (3, 4), (5, 2), (4, 4)):
        sums = [sum(c) - n * (n + 1) // 2 for c in itertools.combinations(range(1, n + m + 1), n)]
        assert ranks.rank_sum_counts(n, m).tolist() == np.bincount(sums).tolist()
    assert ranks.rank_sum_counts(50, 50).sum() == pytest.approx(math.comb(100, 50), rel=1e-6)


@pytest.mark.parametrize("level", [0.95, 0.997])
@pytest.mark.parametrize("n", [12, 30, 80])
def test_hodges_lehmann_intervals_invert_their_tests(n: int, level: float) -> None:
    """Shifts just inside the interval are accepted at the level, those just outside rejected."""
    one, other = sample(n, n), sample(n + 1, n) + 0.2
    paired, interval = ranks.paired_shift(one - other, level)
    assert interval is not None
    assert interval.holds(paired)
    for shift, inside in _around(interval):
        if n <= 50:
            p = stats.wilcoxon(one - other - shift, method="exact").pvalue
        else:
            p = stats.wilcoxon(one - other - shift, correction=True).pvalue
        assert (float(p) > 1 - level) is inside
    grouped, interval = ranks.group_shift(one, other, level)
    assert interval is not None
    assert interval.holds(grouped)
    for shift, inside in _around(interval):
        if n <= 50:
            p = stats.mannwhitneyu(one - shift, other, method="exact").pvalue
        else:
            p = stats.mannwhitneyu(one - shift, other, method="asymptotic").pvalue
        assert (float(p) > 1 - level) is inside


def _around(interval: Interval) -> list[tuple[float, bool]]:
    step = 1e-9
    return [
        (interval.low - step, False),
        (interval.low + step, True),
        (interval.high - step, True),
        (interval.high + step, False),
    ]


def test_hodges_lehmann_of_a_textbook() -> None:
    """Hollander and Wolfe's depression scores (example 3.1): estimate -0.46, p 0.0391."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    difference = np.array(after) - np.array(before)
    shift, interval = ranks.paired_shift(difference, 0.95)
    assert shift == pytest.approx(-0.46)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-0.786, -0.010))
    assert ranks.wilcoxon_p(difference) == pytest.approx(0.0391, abs=1e-4)


def test_too_few_blocks_have_no_interval_of_ranks() -> None:
    assert ranks.paired_shift(sample(1, 5), 0.95)[1] is None
    assert ranks.paired_shift(sample(1, 6), 0.95)[1] is not None
    assert ranks.paired_shift(sample(1, 9), 0.997)[1] is None
    assert ranks.paired_shift(sample(1, 10), 0.997)[1] is not None


def test_cliffs_delta_counts_pairs() -> None:
    one, other = np.array([1.0, 2, 2, 5]), np.array([2.0, 3, 1])
    pairs = [int(a > b) - int(a < b) for a in one for b in other]
    assert ranks.cliffs_delta(one, other) == pytest.approx(sum(pairs) / len(pairs))
    assert ranks.cliffs_delta(one + 10, other) == 1
    assert ranks.cliffs_delta(one - 10, other) == -1


def test_the_permutation_test_counts_all_exchanges() -> None:
    one, other = sample(7, 8) + 0.5, sample(8, 8)
    difference = one - other
    means = [abs(np.mean(difference * signs)) for signs in itertools.product((-1, 1), repeat=8)]
    p = np.mean(np.array(means) >= abs(difference.mean()) - 1e-12)
    assert resample.permutation_p(one, other, True, 1) == pytest.approx(p)
    theirs = stats.ttest_ind(one, other).pvalue
    assert resample.permutation_p(one, other, False, 1) == pytest.approx(theirs, abs=0.05)


def test_the_bootstrap_keeps_its_seed_and_its_limits() -> None:
    found, refused = resample.bca((sample(9, 29),), 4)
    assert list(found) == [0.95]
    assert refused == ["no bootstrap interval of 99.7 % below 30 blocks"]
    again = resample.bca((sample(9, 29),), 4)[0]
    assert again == found
    assert resample.bca((sample(9, 29),), 5)[0] != found
    found, refused = resample.bca((sample(9, 30),), 4)
    assert (list(found), refused) == ([0.95, 0.997], [])
    assert found[0.997].low < found[0.95].low < found[0.95].high < found[0.997].high
    assert resample.bca((sample(9, 7),), 4)[0] == {}
    direct = stats.bootstrap(
        (sample(9, 30),), np.mean, n_resamples=10_000, method="BCa", rng=np.random.default_rng(4)
    ).confidence_interval
    assert (found[0.95].low, found[0.95].high) == pytest.approx((direct.low, direct.high))


def test_dunnett_leaves_an_interval_out_that_did_not_converge() -> None:
    data = {name: np.exp(0.01 * sample(n, 5)).tolist() for n, name in enumerate("abcd")}
    found = dunnett(data, "a")
    for result, theirs in zip(
        found,
        stats.dunnett(
            *[np.log(data[name]) for name in "bcd"],
            control=np.log(data["a"]),
            rng=np.random.default_rng(1),
        ).pvalue,
        strict=True,
    ):
        assert result.p == pytest.approx(theirs)
        levels = [interval.level for interval in result.ratio]
        assert levels == [0.95]
        assert result.notes == (
            "Dunnett's interval of 99.7 % did not converge, and is left out: take Holm, or more"
            " values",
        )


def test_verdicts_have_the_fixed_words() -> None:
    def words(mean: float, se: float, holm_p: float = 0.01, margin: float = 0.01) -> str:
        estimate = Estimate(mean, se, 29, 30)
        interval = estimate.interval(0.95)
        ratio = interval.mapped(math.exp(interval.low), math.exp(interval.high))
        return judge(estimate, ratio, margin, holm_p, 3)

    assert words(0.001, 0.001) == "equal within ±1 % (TOST)"
    assert words(0.001, 0.001, margin=0.025) == "equal within ±2.5 % (TOST)"
    assert words(0.027, 0.003) == "slower by 2.1 to 3.4 %"
    assert words(-0.027, 0.003) == "faster by 2.1 to 3.3 %"
    assert words(0.0111, 0.0054) == "slower by 0.01 to 2.24 %"
    assert words(0.7, 0.000001) == "slower by 101.37 to 101.38 %"
    assert words(0.027, 0.003, holm_p=0.06).startswith("undecided: about ")
    assert words(0.005, 0.01).endswith(" more blocks")


def test_the_guard_trusts_equal_and_undecided_alone() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    native = rng.normal(10, 0.1, 20)
    for factor, sd, begin, trusted in (
        (1.0, 0.001, "A/A holds: native-again is equal", True),
        (1.0, 0.05, "A/A holds: native-again is undecided", True),
        (1.05, 0.001, "A/A fails: native-again is slower by", False),
        (0.95, 0.001, "A/A fails: native-again is faster by", False),
        (0.0, 0.0, "A/A could not be judged: no verdict: native-again has the value 0", False),
    ):
        values = {
            "native": native.tolist(),
            "native-again": (native * factor * np.exp(sd * sample(3, 20))).tolist(),
        }
        found = guard(compare(values, "native")[0])
        assert found.trusted is trusted
        assert found.text.startswith(begin)
    assert not guard(None).trusted
