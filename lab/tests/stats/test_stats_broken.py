"""Broken inputs: no interval is invented, and the verdict says why there is none."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from coracle_lab.errors import LabError
from coracle_lab.stats import Comparison, as_in_paper, compare, dunnett

pytestmark = pytest.mark.long

GOOD = [10.0, 10.1, 9.9, 10.05, 9.95]
NAN = math.nan


def found(values: dict[str, list[float]], paired: bool = True) -> Comparison:
    """Compares two environments; a warning of NumPy or SciPy is an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (comparison,) = compare(values, "native", paired=paired)
    return comparison


@pytest.mark.parametrize(
    ("native", "other", "why"),
    [
        ([10.0], [11.0], "one block has both x and native"),
        ([], [], "no block has both x and native"),
        ([NAN] * 5, GOOD, "no block has both x and native"),
        ([10.0, NAN, NAN, 10.1, NAN], [NAN, 10.0, 10.1, NAN, 10.0], "no block has both"),
        (GOOD, [11.0] * 5, "all 5 values of x are equal"),
        ([10.0] * 5, GOOD, "all 5 values of native are equal"),
        (GOOD, [1.03 * value for value in GOOD], "all 5 ratios of x to native are equal"),
        (GOOD, GOOD, "all 5 ratios of x to native are equal"),
        (GOOD, [10.0, 0.0, 10.1, 10.2, 10.3], "x has the value 0 in block 2"),
        ([10.0, 10.1, -1e-9, 10.2, 10.3], GOOD, "native has the value -1e-09 in block 3"),
        (GOOD, [10.0, 10.1, math.inf, 10.2, 10.3], "x has the value inf in block 3"),
    ],
)
def test_paired_values_that_give_no_interval(
    native: list[float], other: list[float], why: str
) -> None:
    comparison = found({"native": native, "x": other})
    assert comparison.verdict.startswith(f"no verdict: {why}")
    nothing_computed(comparison)


@pytest.mark.parametrize(
    ("native", "other", "why"),
    [
        ([10.0], GOOD, "native has one value"),
        (GOOD, [NAN, NAN, 10.0], "x has one value"),
        (GOOD, [], "x has no value"),
        (GOOD, [3.0, 3.0], "all 2 values of x are equal"),
        (GOOD, [3.0, 0.0], "x has the value 0 in block 2"),
    ],
)
def test_groups_that_give_no_interval(native: list[float], other: list[float], why: str) -> None:
    comparison = found({"native": native, "x": other}, paired=False)
    assert comparison.verdict == f"no verdict: {why}"
    nothing_computed(comparison)


def nothing_computed(comparison: Comparison) -> None:
    assert comparison.ratio is None
    assert comparison.ratio_intervals == ()
    assert comparison.bootstrap_intervals == ()
    assert comparison.hodges_lehmann_intervals == ()
    assert comparison.difference_intervals == ()
    assert (comparison.t_p, comparison.holm_p, comparison.tost_p) == (None, None, None)


def test_blocks_with_a_missing_value_are_left_out_and_counted() -> None:
    whole = {"native": GOOD, "x": [10.2, 10.0, 10.4, 10.1, 10.3]}
    holes = {"native": [*GOOD, 10.0, NAN], "x": [*whole["x"], NAN, 99.0]}
    plain, with_holes = found(whole), found(holes)
    assert (with_holes.blocks, with_holes.missing) == (5, 2)
    assert with_holes.ratio_intervals == plain.ratio_intervals
    assert with_holes.notes[0] == "2 blocks left out: a value is missing"


def test_one_bad_environment_leaves_the_others_their_verdicts() -> None:
    values = {"native": GOOD, "bad": [0.0] * 5, "x": [10.2, 10.0, 10.4, 10.1, 10.3]}
    bad, good = compare(values, "native")
    assert bad.verdict == "no verdict: bad has the value 0 in block 1"
    assert good.ratio is not None
    assert good.holm_p == good.t_p, "what could not be compared is in no family"


def test_two_blocks_give_a_wide_interval_and_say_what_they_cannot() -> None:
    comparison = found({"native": [10.0, 10.1], "x": [10.2, 10.4]})
    assert comparison.ratio_intervals != ()
    assert comparison.bootstrap_intervals == ()
    assert comparison.hodges_lehmann_intervals == ()
    assert comparison.notes == (
        "no Hodges-Lehmann interval of 95 % from 2 blocks",
        "no Hodges-Lehmann interval of 99.7 % from 2 blocks",
        "no bootstrap interval of 95 % below 8 blocks",
        "no bootstrap interval of 99.7 % below 30 blocks",
    )


def test_what_the_caller_can_mend_is_an_error() -> None:
    with pytest.raises(LabError, match='there are no values of "host"'):
        compare({"native": GOOD}, "host")
    with pytest.raises(LabError, match="different numbers of blocks"):
        compare({"native": GOOD, "x": GOOD[:3]}, "native")
    for margin in (0.0, -0.01, 1.0, NAN):
        with pytest.raises(LabError, match="the margin is"):
            compare({"native": GOOD, "x": GOOD}, "native", margin=margin)
    with pytest.raises(LabError, match="no values"):
        as_in_paper({"x": GOOD}, "native")
    with pytest.raises(LabError, match="no values"):
        dunnett({"x": GOOD}, "native")


def test_the_base_alone_has_no_comparisons() -> None:
    assert compare({"native": GOOD}, "native") == []


def test_swapped_labels_are_seen_by_the_sign() -> None:
    """The same numbers under the other's name give the inverse ratio, not the same verdict."""
    slow = [10.5, 10.6, 10.4, 10.52, 10.41]
    assert found({"native": GOOD, "x": slow}).verdict.startswith("slower")
    assert found({"native": slow, "x": GOOD}).verdict.startswith("faster")


def test_dunnett_and_the_papers_view_of_what_is_missing() -> None:
    values = {"native": GOOD, "x": [NAN, 10.0], "zero": [0.0, 1.0], "y": [10.2, 10.1, 10.4]}
    by_name = {result.environment: result for result in dunnett(values, "native")}
    assert (by_name["x"].p, by_name["x"].notes) == (None, ("x has one value",))
    assert by_name["zero"].notes == ("zero has the value 0 in block 1",)
    assert by_name["y"].p is not None
    (only,) = dunnett({"native": [1.0], "x": GOOD}, "native")
    assert (only.p, only.notes) == (None, ("native has one value",))
    view = as_in_paper(values, "native")
    assert (view["x"].count, view["x"].sd, view["x"].bar) == (1, None, None)
    empty = as_in_paper({"native": [], "x": GOOD}, "native")["x"]
    assert (empty.overhead, empty.best_ratio, empty.masked) == (None, None, None)


def test_many_values_have_no_pairs_to_count() -> None:
    """Starts are measured by the thousand; the estimate of ranks is then left out, and said."""
    rng = np.random.Generator(np.random.PCG64(1))
    values = {name: rng.lognormal(0, 0.1, 2001).tolist() for name in ("native", "x")}
    comparison = found(values)
    assert comparison.hodges_lehmann is None
    assert comparison.notes == ("no Hodges-Lehmann estimate of more than 2000 values",)
    assert comparison.rank_p is not None
