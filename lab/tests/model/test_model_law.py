"""The law on planted machines: recovered within its intervals; no claim beyond its error."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from model_inputs import SIZES, Machine, seeded, tables
from numpy.random import Generator

from coracle_lab.errors import LabError
from coracle_lab.model.check import claim
from coracle_lab.model.law import Prediction, Tables, predict
from coracle_lab.model.messages import Messages, interpolation_error, pieces, shares
from coracle_lab.model.profile import SILENT, Message, Profile
from coracle_lab.model.sample import Sample, sample
from coracle_lab.stats.data import Interval

HALO = Profile("halo", 100, (Message(2, 32768, grows="line"), Message(1, 8, grows="log2")))
RANKS = (1, 2, 4, 8, 16)
NATIVE = Machine()
SLOW = Machine(start=0.07, latency=90e-6, bandwidth=5e7)


def measured(
    rng: Generator, machines: dict[str, Machine], ranks: tuple[int, ...], off: float = 1.0
) -> dict[tuple[str, int], Sample]:
    """Measures the program itself; `off` is what the law leaves out."""
    return {
        (name, p): sample(
            one.expected(p, HALO.plan(p)) * off * rng.normal(1, 0.005, 30), f"{name} {p}"
        )
        for name, one in machines.items()
        for p in ranks
    }


def point(made: Prediction, name: str, ranks: int) -> float:
    return next(one.total_s for one in made.points if (one.environment, one.ranks) == (name, ranks))


def test_the_planted_truth_is_recovered() -> None:
    machines = {"native": NATIVE, "slow": SLOW}
    rng = seeded()
    made = predict(tables(rng, machines), HALO, RANKS, measured=measured(rng, machines, RANKS))
    for one in made.points:
        truth = machines[one.environment].expected(one.ranks, HALO.plan(one.ranks))
        assert one.total_s == pytest.approx(truth, rel=0.02)
        assert one.intervals[0.997].holds(truth), one
        assert one.total_s == pytest.approx(one.launch_s + one.work_s + one.messages_s)
    for effect in made.effects:
        ratio = SLOW.expected(effect.ranks, HALO.plan(effect.ranks)) / NATIVE.expected(
            effect.ranks, HALO.plan(effect.ranks)
        )
        assert effect.intervals[0.997].holds(ratio)
    assert made.error.largest is not None
    assert made.error.largest < 0.02
    assert {one.x for one in made.error.times} == {2, 4, 8, 16}, "one rank was fitted to"
    sixteen = next(one for one in made.effects if one.ranks == 16)
    assert sixteen.words.startswith("model: slower by ")


def test_coverage_of_the_bootstrap() -> None:
    """200 experiments, 95 % stated; the inputs are few, as measured ones are.

    The bounds are three standard errors around what `law` says: about 90 % where launch counts.
    """
    held = {2: 0, 8: 0}
    rng = seeded(11)
    for _ in range(200):
        made = predict(
            tables(rng, {"native": NATIVE}, starts=60, blocks=10), HALO, (2, 8), resamples=1000
        )
        for one in made.points:
            held[one.ranks] += one.intervals[0.95].holds(
                NATIVE.expected(one.ranks, HALO.plan(one.ranks))
            )
    assert 176 <= held[2] <= 200
    assert 167 <= held[8] <= 197


def test_native_again_is_not_called_different() -> None:
    wrong = 0
    rng = seeded(13)
    for _ in range(60):
        machines = {"native": NATIVE, "native-again": NATIVE}
        taken = tables(rng, machines, starts=60, blocks=10)
        unseen = measured(rng, machines, (2, 4))
        made = predict(taken, HALO, (4,), measured=unseen, resamples=1000)
        wrong += not made.effects[0].words.startswith("model cannot tell")
    assert wrong <= 2


def test_an_error_as_large_as_the_effect_is_not_a_claim() -> None:
    """The program of `slow` is 30 % slower than the law says: load imbalance, say."""
    machines = {"native": NATIVE, "slow": SLOW}
    rng = seeded()
    taken = tables(rng, machines)
    unseen = measured(rng, machines, (2, 4))
    for key, one in measured(rng, machines, (2, 4), off=1.3).items():
        if key[0] == "slow":
            unseen[key] = one
    made = predict(taken, HALO, (4,), measured=unseen)
    assert made.error.largest_ratio == pytest.approx(0.3, abs=0.02)
    (effect,) = made.effects
    assert effect.intervals[0.95].low > 1
    assert effect.words == (
        f"model cannot tell: its error, {made.error.largest_ratio * 100:.1f} %,"
        " is as large as the effect"
    )


def test_without_measured_points_the_error_is_unknown_and_nothing_is_claimed() -> None:
    machines = {"native": NATIVE, "slow": SLOW}
    made = predict(tables(seeded(), machines), HALO, RANKS)
    assert made.error.words("native").startswith("error of the model: unknown")
    assert {one.words for one in made.effects} == {"model cannot tell: its error is unknown"}


def test_an_error_of_times_alone_is_not_one_of_ratios() -> None:
    machines = {"native": NATIVE, "slow": SLOW}
    rng = seeded()
    made = predict(tables(rng, machines), HALO, (4,), measured=measured(rng, {"slow": SLOW}, (4,)))
    assert made.error.words("native").endswith("of ratios to native: unknown")
    assert made.effects[0].words == "model cannot tell: its error is unknown"


@pytest.mark.parametrize(
    ("low", "high", "error", "words"),
    [
        (1.10, 1.20, 0.0, "model: slower by 10.0 to 20.0 %"),
        (1.10, 1.20, 0.05, "model: slower by 4.8 to 26.0 %"),
        (1.10, 1.20, 0.10, "model cannot tell: its error, 10.0 %, is as large as the effect"),
        (0.80, 0.90, 0.05, "model: faster by 5.5 to 23.8 %"),
        (0.99, 1.20, 0.0, "model cannot tell: the interval holds 1"),
    ],
)
def test_a_claim_is_widened_by_the_error(low: float, high: float, error: float, words: str) -> None:
    assert claim(Interval(0.95, low, high), error) == words
    assert claim(Interval(0.95, low, high), None) == "model cannot tell: its error is unknown"
    assert claim(None, error) == "model cannot tell: too few values for an interval"


@given(some.floats(1e-3, 1e3), some.integers(0, 1000))
def test_the_law_scales_with_the_unit(unit: float, seed: int) -> None:
    taken = tables(seeded(seed), {"native": NATIVE}, starts=60, blocks=10)
    scaled = Tables(
        {n: Sample(one.blocks, one.values * unit) for n, one in taken.starts.items()},
        {n: Sample(one.blocks, one.values * unit) for n, one in taken.work.items()},
        Messages(
            SIZES,
            {
                n: Sample(one.blocks, one.values * unit)
                for n, one in (taken.messages or pytest.fail()).times.items()
            },
        ),
    )
    plain = predict(taken, HALO, (2, 8), resamples=50)
    other = predict(scaled, HALO, (2, 8), resamples=50)
    for one, two in zip(plain.points, other.points, strict=True):
        assert two.total_s == pytest.approx(one.total_s * unit)
        assert two.intervals[0.95].high == pytest.approx(one.intervals[0.95].high * unit)


@given(some.integers(0, 1000))
def test_launch_grows_and_work_falls_with_the_ranks(seed: int) -> None:
    made = predict(tables(seeded(seed), {"native": NATIVE}), HALO, RANKS, resamples=20)
    launches = [one.launch_s for one in made.points]
    assert launches == sorted(launches)
    assert [one.work_s * one.ranks for one in made.points] == pytest.approx(
        [made.points[0].work_s] * len(RANKS)
    )
    assert made.points[0].messages_s == 0


def test_in_weak_scaling_each_rank_has_all_of_the_work() -> None:
    weak = Profile("weak", HALO.steps, HALO.messages, is_weak=True)
    made = predict(tables(seeded(), {"native": NATIVE}), weak, RANKS, resamples=20)
    assert {one.work_s for one in made.points} == {made.points[0].work_s}


def test_more_ranks_that_are_asked_for_change_no_other_point() -> None:
    taken = tables(seeded(), {"native": NATIVE, "slow": SLOW})
    few, many = (predict(taken, HALO, ranks) for ranks in ((4,), (2, 4, 256)))
    assert few.points[0] == many.points[1]
    assert point(few, "slow", 4) == point(many, "slow", 4)


def test_equal_inputs_and_seeds_give_equal_results() -> None:
    taken = tables(seeded(), {"native": NATIVE})
    assert predict(taken, HALO, RANKS) == predict(taken, HALO, RANKS)
    assert predict(taken, HALO, RANKS, seed=1) != predict(taken, HALO, RANKS, seed=2)


def test_what_both_environments_share_cancels_in_the_ratio() -> None:
    """The same blocks were disturbed in both: a ratio from the same blocks is narrower."""
    rng = seeded()
    shared = rng.normal(1, 0.1, 30)
    values = {name: 10 * shared * rng.normal(1, 0.002, 30) for name in ("native", "x")}
    starts = {name: sample(0.01 * rng.normal(1, 0.01, 30), name) for name in values}

    def width(x_blocks: range) -> float:
        work = {
            "native": sample(values["native"], "native"),
            "x": sample(values["x"], "x", x_blocks),
        }
        found = predict(Tables(starts, work), SILENT, (2,)).effects[0].intervals[0.95]
        return found.high - found.low

    assert width(range(1, 31)) < 0.2 * width(range(101, 131))


def test_a_wall_time_as_work_gives_the_one_rank_run_back() -> None:
    rng = seeded()
    starts = {"native": sample(NATIVE.starts(rng, 100), "starts")}
    walls = sample(NATIVE.works(rng, 10) + 0.07, "walls")
    made = predict(Tables(starts, {"native": walls}, None, True), SILENT, (1, 2))
    assert made.points[0].total_s == pytest.approx(float(np.mean(walls.values)))


def test_what_the_one_rank_run_tells_of_its_launcher_is_in_every_launch() -> None:
    """A launcher of 0.4 s: one rank takes it too, so the law adds it for all p, undivided."""
    taken = tables(seeded(), {"native": NATIVE})
    mean = float(taken.starts["native"].values.mean())
    outside = {"native": sample(seeded(5).normal(mean + 0.4, 0.001, 30), "outside")}
    plain = predict(taken, HALO, RANKS, resamples=20)
    with_it = predict(replace(taken, outside=outside), HALO, RANKS, resamples=20)
    for one, other in zip(plain.points, with_it.points, strict=True):
        assert other.launch_s - one.launch_s == pytest.approx(0.4, abs=0.001)
        assert other.work_s == one.work_s


def test_a_claim_beyond_all_points_is_widened_by_the_error_of_times() -> None:
    """What is missing in both times cancels in their ratio at few ranks, and not at many."""
    machines = {"native": NATIVE, "slow": SLOW}
    rng = seeded()
    unseen = measured(rng, machines, (2, 4), off=2.0)
    made = predict(tables(rng, machines), HALO, (4, 16), measured=unseen)
    assert made.error.largest == pytest.approx(1.0, abs=0.05)
    assert made.error.largest_ratio == pytest.approx(0, abs=0.05)
    near, far = made.effects
    assert near.words.startswith("model: slower by ")
    assert far.words.startswith("model cannot tell: its error, a factor ")


def test_few_inputs_are_told() -> None:
    made = predict(tables(seeded(), {"native": NATIVE}, 30, 10), HALO, (2, 64))
    assert made.notes == (
        "launch at 64 ranks is extrapolated by an exponential tail: 30 starts tell the slowest of"
        " 3 at most",
        "no interval of 99.7 % from 10 values of an input",
    )
    assert set(made.points[0].intervals) == {0.95}
    few = predict(tables(seeded(), {"native": NATIVE}, 6, 6), HALO, (4,))
    assert few.points[0].intervals == {}
    assert few.notes[0].startswith("6 starts are few for 4 ranks")


def test_a_message_lies_on_the_line_between_two_measured_sizes() -> None:
    assert shares(SIZES, 1024).tolist() == [0, 1, 0, 0]
    assert shares(SIZES, (1024 + 65536) / 2) == pytest.approx([0, 0.5, 0.5, 0])
    times = np.array([50e-6 + size / 1e8 for size in SIZES])
    for size in (1, 7, 30_000, 1_048_576):
        assert shares(SIZES, size) @ times == pytest.approx(50e-6 + size / 1e8)
    for piece in pieces(SIZES, times):
        assert piece.latency_s == pytest.approx(50e-6)
        assert piece.bytes_per_s == pytest.approx(1e8)
    assert math.isinf(pieces((1, 2), np.array([2.0, 1.0]))[0].bytes_per_s)


def test_the_error_of_interpolation_is_that_of_a_left_out_size() -> None:
    line = np.array([[1.0, 1.0 + 1023, 1.0 + 65535, 1.0 + 1048575]] * 2) * 1e-6
    bent = line * np.array([1, 1, 2, 1])
    plain, jump = (
        interpolation_error(Messages(SIZES, {"native": sample(one, "m")}))["native"]
        for one in (line, bent)
    )
    assert plain == pytest.approx(0, abs=1e-9)
    assert jump == pytest.approx(1.0, abs=0.1), "1024 bytes from 1 and a doubled 65536"


def test_bad_inputs() -> None:
    taken = tables(seeded(), {"native": NATIVE, "slow": SLOW}, 30, 10)
    with pytest.raises(LabError, match="0 ranks"):
        predict(taken, HALO, (0,))
    with pytest.raises(LabError, match="no number of ranks"):
        predict(taken, HALO, ())
    with pytest.raises(LabError, match='"host" is in none of the inputs'):
        predict(taken, HALO, (2,), base="host")
    big = Profile("big", 1, (Message(1, 2**21),))
    with pytest.raises(LabError, match="bytes is outside the measured sizes") as out:
        predict(taken, big, (2,))
    assert "2097152" in (out.value.hint or "")
    silent = Tables(taken.starts, taken.work)
    with pytest.raises(LabError, match="no ping-pong was measured"):
        predict(silent, HALO, (2,))
    assert predict(silent, SILENT, (2,)).points
    other = Tables(taken.starts, {"native": taken.work["native"]}, taken.messages)
    with pytest.raises(LabError, match="in different environments") as unmatched:
        predict(other, HALO, (2,))
    assert unmatched.value.hint == "choose those that all have: --env native --env NAME"
    short = {name: sample([0.05, 0.06], name) for name in taken.work}
    with pytest.raises(LabError, match="one rank takes"):
        predict(Tables(taken.starts, short, taken.messages, True), HALO, (2,))
    few = {name: sample([0.05, 0.06], name) for name in taken.work}
    with pytest.raises(LabError, match="2 draws say nothing about the slowest of 8"):
        predict(Tables(few, taken.work, taken.messages), HALO, (8,))
    with pytest.raises(LabError, match="1 size was measured"):
        Messages((8,), {"native": sample([[1.0], [1.0]], "m")})
    with pytest.raises(LabError, match="not in order"):
        Messages((8, 1), {})
    with pytest.raises(LabError, match="not one time for each"):
        Messages((1, 8), {"native": sample([[1.0], [1.0]], "m")})
