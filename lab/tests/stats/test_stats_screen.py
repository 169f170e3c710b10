"""Effects of two-level designs: what is planted is found, and what cannot be told is not told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coracle_lab.design import Design, aliases, cells, parse
from coracle_lab.errors import LabError
from coracle_lab.stats import MainEffect, Runs, Screen, screens

pytestmark = pytest.mark.long

FEW = settings(max_examples=25, deadline=None)
NAMES = [*"abcdefgh", "again"]


def design(kind: str = "plackett-burman", count: int = 9, more: str = "") -> Design:
    lines = [f'seed = 1\nreplicates = 1\nkind = "{kind}"\n[factors]']
    lines += [f'{name} = ["no", "yes"]' for name in NAMES[:count]]
    return parse("\n".join([*lines, more]), "d.toml")


def rows(found: Design, blocks: int) -> list[dict[str, int]]:
    """Returns the signs of all rows, block after block."""
    signs = [{n: 1 if level == "yes" else -1 for n, level in c.items()} for c in cells(found)]
    return signs * blocks


def runs(
    found: Design,
    blocks: int = 4,
    effects: dict[str, float] | None = None,
    sd: float = 0.01,
    together: tuple[str, str, float] | None = None,
    seed: int = 1,
) -> Runs:
    """Returns made-up times: logs of `effects`, noise, blocks that differ, and an interaction."""
    rng = np.random.Generator(np.random.PCG64(seed))
    every = rows(found, blocks)
    size = len(every) // blocks
    shift = 0.2 * rng.normal(size=blocks)
    logs = []
    for at, row in enumerate(every):
        log = shift[at // size] + sd * rng.normal()
        log += sum(row[name] * effect / 2 for name, effect in (effects or {}).items())
        if together is not None:
            log += row[together[0]] * row[together[1]] * together[2] / 2
        logs.append(log)
    names = [factor.name for factor in found.factors]
    return Runs(
        {name: [row[name] for row in every] for name in names},
        np.exp(logs).tolist(),
        [str(at // size) for at in range(len(every))],
    )


def one(table: Runs, again: str | None = "again") -> Screen:
    (found,) = screens([table], 0.01, again)
    return found


def effect(found: Screen, name: str) -> MainEffect:
    made = found.of(name)
    assert made is not None
    return made


def ends(found: Sequence[MainEffect]) -> list[float]:
    return [end for each in found for i in each.ratio_intervals for end in (i.low, i.high)]


@pytest.mark.parametrize("kind", ["plackett-burman", "fractional"])
def test_planted_effects_are_found_and_nothing_else(kind: str) -> None:
    more = "[fractional]\nresolution = 4" if kind == "fractional" else ""
    found = one(runs(design(kind, more=more), 8, {"b": 0.05, "e": -0.03}, 0.005))
    assert [each.factor for each in found.effects[:2]] == ["b", "e"]
    assert found.effects[-1].factor == "again"
    assert effect(found, "b").verdict.startswith("slower by")
    assert effect(found, "b").ratio_intervals[0].holds(math.exp(0.05))
    assert effect(found, "e").verdict.startswith("faster by")
    for name in "acdfgh":
        assert effect(found, name).verdict == "equal within ±1 % (TOST)"
    assert found.guard.trusted
    assert found.guard.text.startswith("A/A holds: again, which changes nothing, is equal")
    assert found.sd == pytest.approx(0.005, rel=0.4)
    assert found.interactions_p is None or found.interactions_p > 0.001


def test_an_effect_is_the_difference_of_the_means_of_both_levels() -> None:
    table = runs(design(), 3, {"a": 0.1})
    logs, signs = np.log(table.values), np.asarray(table.signs["c"])
    found = effect(one(table), "c")
    assert found.ratio == pytest.approx(math.exp(logs[signs > 0].mean() - logs[signs < 0].mean()))
    plain = np.asarray(table.values)
    assert found.difference == pytest.approx(plain[signs > 0].mean() - plain[signs < 0].mean())
    assert math.prod(found.by_block) ** (1 / 3) == pytest.approx(found.ratio)


@pytest.mark.parametrize("generator", ["a b ab", "a b -ab"])
def test_an_interaction_shows_where_the_aliases_say(generator: str) -> None:
    """Nothing is planted but a*b, which `c` is mixed up with, wholly and with that sign."""
    known = design("fractional", 3, f'[fractional]\ngenerator = "{generator}"')
    share = next(float(line.split()[2]) for line in aliases(known) if line.startswith("c = "))
    assert abs(share) == 1
    found = one(runs(known, 6, {}, 0.001, ("a", "b", 0.08)), None)
    assert math.log(effect(found, "c").ratio or 0) == pytest.approx(share * 0.08, abs=0.004)
    assert math.log(effect(found, "a").ratio or 0) == pytest.approx(0, abs=0.004)


def test_a_third_of_an_interaction_shows_in_a_plackett_burman_design() -> None:
    known = design()
    shares = {
        line.split(" = ")[0]: float(line.split()[2]) for line in aliases(known) if "a*b" in line
    }
    found = one(runs(known, 6, {}, 0.001, ("a", "b", 0.09)))
    assert shares
    for name in NAMES[2:]:
        wanted = shares.get(name, 0.0) * 0.09
        assert math.log(effect(found, name).ratio or 0) == pytest.approx(wanted, abs=0.004)
    assert found.interactions_p is not None and found.interactions_p < 1e-6


@FEW
@given(st.integers(0, 2**32), st.floats(1e-6, 1e6))
def test_the_unit_and_the_names_of_levels_do_not_matter(seed: int, unit: float) -> None:
    table = runs(design(), 3, {"a": 0.03}, seed=seed)
    first = one(table)
    scaled = one(Runs(table.signs, [unit * v for v in table.values], table.blocks))
    assert [each.verdict for each in scaled.effects] == [each.verdict for each in first.effects]
    assert ends(scaled.effects) == pytest.approx(ends(first.effects))
    turned = {**table.signs, "a": [-sign for sign in table.signs["a"]]}
    other = effect(one(Runs(turned, table.values, table.blocks)), "a")
    assert other.ratio == pytest.approx(1 / (effect(first, "a").ratio or 0))


def test_intervals_hold_the_truth_as_often_as_they_say_and_the_control_alarms_seldom() -> None:
    held = alarms = 0
    known, count = design(count=4), 200
    for seed in range(count):
        found = one(runs(known, 3, {"b": 0.04}, 0.02, seed=seed), "d")
        held += effect(found, "b").ratio_intervals[0].holds(math.exp(0.04))
        alarms += not found.guard.trusted
    # Binomial: the chance to leave these bounds is below 1e-4.
    assert 0.95 * count - 15 <= held <= count
    assert alarms <= 0.05 * count + 13


def test_a_control_that_changes_something_is_an_alarm() -> None:
    found = one(runs(design(), 4, {"again": 0.1}))
    assert not found.guard.trusted
    assert "A/A fails: again, which changes nothing, is slower by" in found.guard.text


def test_without_a_control_it_is_said_what_can_show() -> None:
    found = one(runs(design(), 4), None)
    assert found.guard.trusted
    assert found.smallest is not None
    half = f"±{round(found.smallest, 4) * 100:g} %"
    assert found.guard.text.startswith("no A/A: ")
    assert f"replicates show effects to {half} (95 %)" in found.guard.text
    fourfold = one(runs(design(), 16), None)
    assert fourfold.smallest == pytest.approx(found.smallest / 2, rel=0.3)


def test_holms_family_is_all_factors_of_all_responses_but_the_control() -> None:
    tables = [runs(design(), 3, seed=seed) for seed in (1, 2)]
    found = screens(tables, 0.01, "again")
    smallest = min(
        each.t_p or 1 for made in found for each in made.effects if each.factor != "again"
    )
    adjusted = min(
        each.holm_p or 1 for made in found for each in made.effects if each.factor != "again"
    )
    assert adjusted == pytest.approx(min(1.0, 16 * smallest))
    controls = sorted(effect(made, "again").t_p or 1 for made in found)
    assert min(effect(made, "again").holm_p or 1 for made in found) == pytest.approx(
        min(1.0, 2 * controls[0])
    )


def test_a_missing_value_is_left_out_and_told() -> None:
    table = runs(design(), 4, {"a": 0.05}, 0.003)
    lacking = [math.nan if at == 5 else value for at, value in enumerate(table.values)]
    found = one(Runs(table.signs, lacking, table.blocks))
    assert found.missing == 1
    assert found.notes == ("1 values are missing",)
    assert effect(found, "a").verdict.startswith("slower by")
    assert len(effect(found, "a").by_block) == 3


def test_one_replicate_is_judged_by_lenth() -> None:
    """His example's arithmetic by hand: effects 0.2, ±0.01 and ±0.02 have a known error."""
    known = design("fractional", 7, '[fractional]\ngenerator = "a b c ab ac bc abc"')
    sizes = dict(zip(NAMES[:7], (0.2, 0.01, -0.01, 0.02, -0.02, 0.01, 0.01), strict=True))
    found = one(runs(known, 1, sizes, 0.0), None)
    assert found.method == "Lenth"
    # The median of 0.01 four times, 0.02 twice and 0.2 once is 0.01; 0.2 is beyond 2.5 of it.
    half = math.log(effect(found, "a").ratio_intervals[0].high) - 0.2
    assert half == pytest.approx(3.7637 * 1.5 * 0.01, rel=1e-3)
    assert effect(found, "a").verdict.startswith("slower by")
    for name in NAMES[1:7]:
        assert effect(found, name).verdict == "undecided: about 1 more block"
    assert "nothing called equal" in found.notes[0]


def test_a_second_block_that_has_just_begun_changes_nothing() -> None:
    known = design("fractional", 7, '[fractional]\ngenerator = "a b c ab ac bc abc"')
    sizes = dict(zip(NAMES[:7], (0.2, 0.01, -0.01, 0.02, -0.02, 0.01, 0.01), strict=True))
    two = runs(known, 2, sizes, 0.0)
    alone, begun = (
        Runs({name: each[:n] for name, each in two.signs.items()}, two.values[:n], two.blocks[:n])
        for n in (8, 9)
    )
    assert one(begun, None).method == "Lenth"
    assert one(begun, None).effects == one(alone, None).effects


def refusal(table: Runs) -> str:
    found = one(table)
    assert all(each.ratio is None for each in found.effects)
    assert not found.guard.trusted
    return found.effects[0].verdict


def test_what_cannot_be_estimated_is_refused_with_its_reason() -> None:
    table = runs(design(), 2)
    size = len(table.values) // 2

    def other(change: dict[int, float]) -> str:
        values = [change.get(at, value) for at, value in enumerate(table.values)]
        return refusal(Runs(table.signs, values, table.blocks))

    text = other({3: math.nan, 3 + size: math.nan})
    assert text.startswith(f"no verdict: 1 of {size} cells have no value, one is a ")
    assert "has the value 0 in block" in other({2: 0.0})
    assert "has the value inf" in other({2: math.inf})
    equal = Runs(table.signs, [1.0] * (2 * size), table.blocks)
    assert refusal(equal) == "no verdict: the replicates of each cell are equal"
    few = design("fractional", 4, '[fractional]\ngenerator = "a b c abc"')
    assert "Lenth's method takes 5" in refusal(runs(few, 1))
    same = {**table.signs, "b": table.signs["a"]}
    assert "cannot be told apart" in refusal(Runs(same, table.values, table.blocks))
    with pytest.raises(LabError, match="margin"):
        screens([table], 0.0)
