"""Properties of ratios: units, exchange of sides, order of blocks, order of environments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coracle_lab.stats import Comparison, Interval, compare

FLAT = settings(max_examples=25, deadline=None)
TIMES = st.floats(0.5, 2.0)
BLOCKS = st.integers(3, 12)


@st.composite
def two(draw: st.DrawFn) -> dict[str, list[float]]:
    n = draw(BLOCKS)
    seed = draw(st.integers(0, 2**32))
    rng = np.random.Generator(np.random.PCG64(seed))
    spread = draw(st.sampled_from([0.001, 0.01, 0.2]))
    effect = draw(st.sampled_from([0.0, 0.003, -0.03, 0.5]))
    native = np.exp(spread * rng.normal(size=n))
    other = np.exp(effect + spread * rng.normal(size=n))
    return {"native": native.tolist(), "other": other.tolist()}


def one(values: dict[str, list[float]], base: str = "native", paired: bool = True) -> Comparison:
    (found,) = compare(values, base, paired=paired)
    return found


def ends(intervals: tuple[Interval, ...]) -> list[float]:
    return [end for interval in intervals for end in (interval.low, interval.high)]


@FLAT
@given(two(), st.floats(1e-6, 1e6), st.booleans())
def test_the_unit_does_not_matter(
    values: dict[str, list[float]], unit: float, paired: bool
) -> None:
    scaled = {name: [unit * value for value in series] for name, series in values.items()}
    first, second = one(values, paired=paired), one(scaled, paired=paired)
    assert second.verdict == first.verdict
    assert second.ratio == pytest.approx(first.ratio)
    assert ends(second.ratio_intervals) == pytest.approx(ends(first.ratio_intervals))
    assert first.difference is not None
    assert second.difference == pytest.approx(unit * first.difference, abs=unit * 1e-9)


@FLAT
@given(two(), st.booleans())
def test_exchanging_the_sides_inverts_the_ratio(
    values: dict[str, list[float]], paired: bool
) -> None:
    there, back = one(values, paired=paired), one(values, "other", paired)
    assert there.ratio is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    for forth, inverse in zip(there.ratio_intervals, back.ratio_intervals, strict=True):
        assert (inverse.low, inverse.high) == pytest.approx((1 / forth.high, 1 / forth.low))
    assert (back.t_p, back.tost_p) == pytest.approx((there.t_p, there.tost_p))
    assert back.rank_p == pytest.approx(there.rank_p)
    assert back.cliffs_delta == pytest.approx(-(there.cliffs_delta or 0))
    assert back.hodges_lehmann == pytest.approx(1 / (there.hodges_lehmann or 0))
    words = {"slower": "faster", "faster": "slower"}
    first = there.verdict.split()[0]
    assert back.verdict.split()[0] == words.get(first, first)
    if first not in words:
        assert back.verdict == there.verdict


@FLAT
@given(two(), st.randoms(use_true_random=False))
def test_the_order_of_blocks_does_not_matter(
    values: dict[str, list[float]], random: object
) -> None:
    order = list(range(len(values["native"])))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed_up = {name: [series[at] for at in order] for name, series in values.items()}
    first, second = one(values), one(mixed_up)
    assert second.verdict == first.verdict
    assert second.ratio == pytest.approx(first.ratio)
    assert second.rank_p == pytest.approx(first.rank_p)


@FLAT
@given(two(), st.floats(0.5, 2))
def test_a_common_slowness_of_each_block_cancels(
    values: dict[str, list[float]], slowness: float
) -> None:
    """What slows a whole block down changes no paired ratio: that is what blocks are for."""
    factors = np.linspace(1, slowness, len(values["native"]))
    drifted = {name: (np.array(series) * factors).tolist() for name, series in values.items()}
    first, second = one(values), one(drifted)
    assert ends(second.ratio_intervals) == pytest.approx(ends(first.ratio_intervals))


@FLAT
@given(two())
def test_intervals_hold_the_estimate_and_grow_with_the_level(
    values: dict[str, list[float]],
) -> None:
    found = one(values)
    assert found.ratio is not None
    narrow, wide = found.ratio_intervals
    assert wide.low < narrow.low <= found.ratio <= narrow.high < wide.high


@FLAT
@given(two())
def test_words_and_numbers_agree(values: dict[str, list[float]]) -> None:
    found = one(values)
    interval = found.interval(0.95)
    assert interval is not None
    assert found.holm_p is not None
    if found.verdict.startswith("slower"):
        assert interval.low > 1
        assert found.holm_p < 0.05
    elif found.verdict.startswith("faster"):
        assert interval.high < 1
        assert found.holm_p < 0.05
    elif found.verdict.startswith("equal"):
        assert found.tost_p is not None
        assert found.tost_p < 0.05
    else:
        assert found.verdict.startswith("undecided: about ")


def test_results_do_not_depend_on_the_order_of_environments() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    values = {name: rng.normal(10, 0.1, 12).tolist() for name in ("native", "a", "b", "c")}
    back = dict(reversed(values.items()))
    first = {found.environment: found for found in compare(values, "native")}
    second = {found.environment: found for found in compare(back, "native")}
    assert first == second


def test_the_control_is_not_in_holms_family() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    values = {name: rng.normal(10, 0.1, 12).tolist() for name in ("native", "native-again", "b")}
    again, other = compare(values, "native")
    assert again.holm_p == again.t_p
    assert other.holm_p == other.t_p
    with_c = compare({**values, "c": rng.normal(10, 0.1, 12).tolist()}, "native")
    assert with_c[0].holm_p == again.t_p
    p = sorted((found.t_p or 0, found.holm_p or 0) for found in with_c[1:])
    assert p[0][1] == pytest.approx(min(1, 2 * p[0][0]))
    assert math.isclose(p[1][1], max(p[0][1], p[1][0]))
