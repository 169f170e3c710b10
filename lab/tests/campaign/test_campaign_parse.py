"""Campaign files: what is read, how sizes merge, and what is said of a wrong one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coracle_lab.applications import resolve
from coracle_lab.campaign import designs
from coracle_lab.campaign.groups import GROUPS
from coracle_lab.campaign.model import SIZES
from coracle_lab.campaign.parse import is_campaign, merged, parse, size_of
from coracle_lab.design import expand
from coracle_lab.design import parse as parse_design
from coracle_lab.design.check import Source
from coracle_lab.design.parse import read
from coracle_lab.errors import LabError

HEAD = 'title = "T"\npaper = "p"\ntext = "t"\n'
FIGURE = """[[figure]]
id = "A1"
title = "a figure"
of = "Fig. 1"
layout = "times"
responses = ["wall_s"]
shows_not = "much"
"""
DESIGN = """[figure.design]
seed = 1
factors = { environment = ["@native", "bwrap"], ranks = [1, 2] }
application = { command = ["true"], parameters = { n = 1, m = 2 } }
[figure.quick]
replicates = 3
factors = { ranks = [4] }
application = { parameters = { n = 5 } }
"""
WHOLE = HEAD + FIGURE + DESIGN


def test_the_size_is_merged_over_the_design() -> None:
    (figure,) = parse(WHOLE, "c.toml", "quick").figures
    assert figure.design is not None
    tree = read(Source(figure.design, "A1"))
    assert tree["factors"] == {"environment": ["@native", "bwrap"], "ranks": [4]}
    assert tree["application"] == {"command": ["true"], "parameters": {"n": 5, "m": 2}}
    assert (tree["replicates"], tree["name"], tree["responses"]) == (3, "A1", ["wall_s"])


def test_a_size_that_a_figure_does_not_have_is_told() -> None:
    (figure,) = parse(WHOLE, "c.toml", "day").figures
    assert figure.design is None
    assert figure.reason == "not a figure of size day: it is made at size quick"
    own = WHOLE.replace('shows_not = "much"', 'shows_not = "much"\nreason = "no time"')
    assert parse(own, "c.toml", "smoke").figures[0].reason == "no time"


TABLES = st.recursive(
    st.integers() | st.lists(st.integers()),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from("abc"), TABLES), st.dictionaries(st.sampled_from("abc"), TABLES)
)
def test_merging_takes_each_value_from_the_second_table_that_has_it(
    one: dict[str, Any], over: dict[str, Any]
) -> None:
    result = merged(one, over)
    assert set(result) == {*one, *over}
    for key, value in result.items():
        if key not in over:
            assert value == one[key]
        elif isinstance(over[key], dict) and isinstance(one.get(key), dict):
            assert value == merged(one[key], over[key])
        else:
            assert value == over[key]
    assert merged(result, over) == result


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (HEAD, 'the design has no "figure"', "add figure"),
        (HEAD + FIGURE.replace('"times"', '"tims"'), "line 8: .*'tims' is unknown", '"times"'),
        (HEAD + FIGURE.replace("shows_not", "show_not"), 'unknown key "show_not"', '"shows_not"'),
        (WHOLE.replace("figure.quick", "figure.quik"), 'unknown key "quik"', '"quick"'),
        (WHOLE.replace("seed", "sead"), 'line 12: unknown key "sead"', '"seed"'),
        (
            WHOLE.replace("replicates", "replicate"),
            'line 16: unknown key "replicate"',
            "replicates",
        ),
        (WHOLE.replace("@native", "@nativ"), 'unknown group of environments "@nativ"', '"@native"'),
        (WHOLE.replace('"much"', '"much"\nx = "rank"'), 'x = "rank" is not a factor', '"ranks"'),
        (WHOLE.replace('"A1"', '"A 1"'), "line 5: .*is not of the form", "short name"),
        (WHOLE + FIGURE.replace("A1", "a1"), 'there is a figure "a1" already', "another id"),
        ("figure = 3\n", "is not of the type|has no", "."),
        ("x = [", "this is not TOML", "quotes"),
    ],
)
def test_errors_name_the_place_and_what_there_is(text: str, message: str, hint: str) -> None:
    with pytest.raises(LabError, match=message) as caught:
        parse(text, "c.toml", "quick")
    assert caught.value.message.startswith("c.toml")
    assert re.search(hint, caught.value.hint or ""), caught.value.hint
    assert caught.value.status == 2


@given(st.integers(0, len(WHOLE)))
def test_a_file_that_is_cut_off_never_ends_in_a_traceback(length: int) -> None:
    try:
        parse(WHOLE[:length], "c.toml", "quick")
    except LabError as error:
        assert error.message.startswith("c.toml")


def test_unknown_names_are_told_with_what_there_is() -> None:
    with pytest.raises(LabError, match='unknown size "quik"') as caught:
        size_of("quik")
    assert '"quick"' in (caught.value.hint or "")
    campaign = parse(WHOLE, "c.toml", "quick")
    with pytest.raises(LabError, match='there is no figure "A2"') as caught:
        designs.chosen([campaign], ["A2"])
    assert '"A1"' in (caught.value.hint or "")


def test_a_design_is_no_campaign() -> None:
    assert is_campaign(WHOLE)
    assert not is_campaign("seed = 1\nreplicates = 1\n[factors]\nx = [1]\n")
    assert not is_campaign("figure = [")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("a1", ["A1"]),
        ("a1*", ["A1", "A1-tcp", "A11"]),
        ("A1-*", ["A1-tcp"]),
        ("a", ["A1", "A1-tcp", "A11"]),
        ("co", ["CO-x"]),
        ("", ["A1", "A1-tcp", "A11", "CO-x"]),
    ],
)
def test_an_id_means_that_figure_and_other_words_those_that_belong_to_them(
    word: str, meant: list[str]
) -> None:
    more = [FIGURE.replace("A1", name) + DESIGN for name in ("A1-tcp", "A11", "CO-x")]
    campaign = parse(WHOLE + "".join(more), "c.toml", "quick")
    words = [word] if word else []
    assert [figure.id for _, figure in designs.chosen([campaign], words)] == meant


IDS = "OV1 OV2 OV3 OV4 OV5 UD1 UD2 UD3 UD4 UD5 UD6 UD7 PU1 PU2 PU3 PU4 CY1 CY2 BE1 BE2 BE3 BE4 BE5"
"""The rows of the papers' table; CO has several figures, and none of its bare name."""


@pytest.mark.parametrize("size", SIZES)
def test_every_built_in_figure_is_a_design_that_expands(size: Any) -> None:
    campaigns = [designs.load(path, size) for path in designs.builtin()]
    figures = [figure for campaign in campaigns for figure in campaign.figures]
    ids = [figure.id for figure in figures]
    assert set(IDS.split()) <= set(ids)
    assert any(one.startswith("CO-") for one in ids)
    assert len(set(ids)) == len(ids)
    for figure in figures:
        if figure.model is not None:
            inputs = {figure.model.get(name) for name in ("starts", "work", "messages", "times")}
            assert inputs - {None} <= set(ids)
            continue
        if figure.design is None:
            assert figure.reason
            continue
        design = parse_design(resolve(figure.design, figure.id), figure.id)
        assert expand(design)
        assert design.screens == (figure.layout == "effects"), figure.id
        if design.screens:
            assert design.factor("again") is not None
            continue
        assert design.base in figure.design
        levels = design.factor("environment")
        assert levels is not None
        known = [name for level in levels.levels for name in GROUPS.get(level, (level,))]
        assert f"{design.base}-again" in known
        application = design.application
        assert application is not None
        for response in figure.responses:
            is_series = response.endswith("@*")
            assert is_series == (application.series is not None), (figure.id, response)
        if figure.layout == "rates":
            assert all(application.is_rate(one) for one in figure.responses), figure.id


def test_no_figure_of_the_papers_is_missing_at_size_quick_but_with_a_reason() -> None:
    campaigns = [designs.load(path, "quick") for path in designs.builtin()]
    made = {f.id for c in campaigns for f in c.figures if f.design is not None}
    assert set(IDS.split()) <= made
    others = [f for c in campaigns for f in c.figures if f.design is None and f.model is None]
    assert [figure.id for figure in others if not figure.reason] == []
