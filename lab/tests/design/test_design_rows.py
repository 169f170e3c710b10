"""Properties of rows: complete, balanced, reproducible, and equal however a run is split."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coracle_lab.design import (
    Design,
    Row,
    block_rows,
    cells,
    digest,
    expand,
    from_csv,
    parse,
    remaining,
    to_csv,
)
from coracle_lab.errors import LabError

pytestmark = pytest.mark.long

LEVEL = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1
)
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in {"name", "Blocks", "block", "number", "session", "launch", "start"}
)


def toml(factors: dict[str, list[str]], head: str) -> str:
    lines = [head, "[factors]"]
    lines += [
        f"{name} = {json.dumps(levels, ensure_ascii=False)}" for name, levels in factors.items()
    ]
    # JSON has \u escapes as TOML does, but DEL is not escaped by it and not allowed in TOML.
    return "\n".join(lines).replace("\x7f", "\\u007f")


FACTORS = st.dictionaries(
    NAME, st.lists(LEVEL, min_size=1, max_size=4, unique=True), min_size=1, max_size=3
)


@st.composite
def designs(draw: st.DrawFn, kinds: tuple[str, ...] = ()) -> Design:
    chosen = kinds or ("blocks", "completely-randomised", "nested")
    kind = draw(st.sampled_from(chosen))
    head = f'seed = {draw(st.integers(0, 2**63 - 1))}\nkind = "{kind}"\n'
    tail = ""
    if kind == "nested":
        numbers = draw(st.tuples(*[st.integers(1, 3)] * 3))
        tail = "\n[nested]\nsessions = {}\nlaunches = {}\nstarts = {}".format(*numbers)
    else:
        head += f"replicates = {draw(st.integers(1, 5))}"
    factors = draw(FACTORS)
    return parse(toml(factors, head) + tail, "some.toml")


def key(levels: dict[str, str], design: Design) -> tuple[str, ...]:
    return tuple(levels[factor.name] for factor in design.factors)


@given(designs())
def test_every_cell_comes_n_times(design: Design) -> None:
    counts = Counter(key(dict(row.levels), design) for row in expand(design))
    every = {key(dict(cell), design) for cell in cells(design)}
    assert set(counts) == every
    assert set(counts.values()) == {design.replicates}


@given(designs())
def test_rows_are_numbered_from_one_and_blocks_never_go_back(design: Design) -> None:
    rows = expand(design)
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert [row.block for row in rows] == sorted(row.block for row in rows)


@given(designs(("blocks",)))
def test_each_block_has_every_cell_once(design: Design) -> None:
    every = sorted(key(dict(cell), design) for cell in cells(design))
    rows = expand(design)
    for block in range(1, design.replicates + 1):
        found = sorted(key(dict(row.levels), design) for row in rows if row.block == block)
        assert found == every


@given(designs(("nested",)))
def test_starts_of_a_launch_are_neighbours_and_launches_are_in_sessions(design: Design) -> None:
    assert design.nested is not None
    rows = expand(design)
    starts = design.nested.starts
    for first in range(0, len(rows), starts):
        launch = rows[first : first + starts]
        assert len({key(dict(row.levels), design) for row in launch}) == 1
        assert len({(row.levels["session"], row.levels["launch"]) for row in launch}) == 1
        assert [row.levels["start"] for row in launch] == [str(s + 1) for s in range(starts)]
    sessions = [int(row.levels["session"]) for row in rows]
    assert sessions == sorted(sessions)
    assert max(sessions) == design.nested.sessions


@given(designs())
def test_equal_designs_have_equal_rows_and_digests(design: Design) -> None:
    again = Design(**{name: getattr(design, name) for name in design.__dataclass_fields__})
    assert expand(again) == expand(design)
    assert digest(again) == digest(design)


@given(designs(), st.data())
def test_any_split_of_a_run_gives_the_same_rows(design: Design, data: st.DataObject) -> None:
    """Stops a run after random numbers of rows; the pieces together are the whole, in order."""
    whole = expand(design)
    done: list[Row] = []
    while len(done) < len(whole):
        left = remaining(expand(design), {row.number for row in done})
        done += left[: data.draw(st.integers(1, len(left)))]
    assert done == whole


@given(designs(), st.data())
def test_rows_that_are_missing_in_the_middle_are_found(design: Design, data: st.DataObject) -> None:
    whole = expand(design)
    lost = data.draw(st.sets(st.sampled_from([row.number for row in whole])))
    found = remaining(whole, {row.number for row in whole} - lost)
    assert [row.number for row in found] == sorted(lost)


@given(designs(("blocks", "nested")))
def test_a_block_alone_is_the_block_of_the_whole(design: Design) -> None:
    whole = expand(design)
    for block in {row.block for row in whole}:
        assert block_rows(design, block) == [row for row in whole if row.block == block]


@given(designs())
@settings(deadline=None)
def test_csv_gives_the_same_rows_again(design: Design) -> None:
    rows = expand(design)
    assert from_csv(to_csv(design, rows)) == rows


def test_more_blocks_leave_the_earlier_ones_as_they_are() -> None:
    text = 'seed = 3\nreplicates = {}\n[factors]\nenvironment = ["native", "bwrap", "podman"]'
    few, many = (expand(parse(text.format(n), "d.toml")) for n in (4, 9))
    assert many[: len(few)] == few


def test_leaving_a_cell_out_leaves_the_order_of_the_others() -> None:
    text = 'seed = 3\nreplicates = 5\n[factors]\ne = ["a", "b", "c"]\nr = [1, 2]\n'
    where = '[[where]]\nleave_out = {e = "b", r = 2}\nreason = "no memory"'
    all_rows = expand(parse(text, "d.toml"))
    some = expand(parse(text + where, "d.toml"))
    kept = [dict(row.levels) for row in all_rows if row.levels != {"e": "b", "r": "2"}]
    assert [dict(row.levels) for row in some] == kept


def test_the_order_is_the_documented_one() -> None:
    """Pins the order, which `sha256sum` and `sort` have given for this text."""
    text = 'seed = 7\nreplicates = 2\n[factors]\nenvironment = ["a", "b", "c", "d"]'
    rows = expand(parse(text, "d.toml"))
    assert [row.levels["environment"] for row in rows] == list("bcadcabd")


def test_another_seed_gives_another_order_and_another_digest() -> None:
    text = 'seed = {}\nreplicates = 20\n[factors]\nenvironment = ["a", "b", "c"]'
    one, other = (parse(text.format(seed), "d.toml") for seed in (1, 2))
    assert expand(one) != expand(other)
    assert digest(one) != digest(other)


def test_orders_are_uniform() -> None:
    """Chi-squared of the 24 orders of four cells over 4,800 blocks, 0.1 % point at 49.7."""
    text = 'seed = 1\nreplicates = 4800\n[factors]\nenvironment = ["a", "b", "c", "d"]'
    rows = expand(parse(text, "d.toml"))
    orders = Counter(
        "".join(row.levels["environment"] for row in rows[at : at + 4])
        for at in range(0, len(rows), 4)
    )
    assert len(orders) == 24
    assert sum((n - 200) ** 2 / 200 for n in orders.values()) < 49.7


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("margin = 0.02", True),
        ('text = "words"', True),
        ('session = "monday"', True),
        ('transport = "tcp"', False),
        ('pinning = "1"', False),
    ],
)
def test_the_digest_is_of_what_decides_the_rows(change: str, same: bool) -> None:
    text = 'seed = 1\nreplicates = 2\n{}\n[factors]\nenvironment = ["a", "b"]'
    one, other = (digest(parse(text.format(line), "d.toml")) for line in ("", change))
    assert (one == other) is same


def test_the_digest_has_the_application_in_it() -> None:
    text = 'seed = 1\nreplicates = 2\n[factors]\ne = ["a"]\n[application]\ncommand = ["{}"]'
    assert digest(parse(text.format("x"), "d")) != digest(parse(text.format("y"), "d"))


def test_records_of_more_rows_than_the_design_are_refused() -> None:
    design = parse('seed = 1\nreplicates = 2\n[factors]\ne = ["a"]', "d.toml")
    with pytest.raises(LabError, match="row 3 was measured, but the design has 2 rows"):
        remaining(expand(design), {1, 3})
    with pytest.raises(LabError, match="there is no block 3"):
        block_rows(design, 3)
