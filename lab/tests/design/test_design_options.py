"""Factors that are options: their words in each row, what the digest holds, what is refused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coracle_lab.design import Design, cells, digest, expand, parse, remaining
from coracle_lab.errors import LabError

HEAD = 'seed = 3\nreplicates = 2\nkind = "plackett-burman"\n'
FACTORS = """
[factors]
environment = ["coracle:N1"]
init = ["no", "yes"]
volumes = [0, 50]
layers = [1, 60]
again = ["first", "second"]
"""
OPTIONS = """
[options]
init = { yes = ["--init"] }
volumes = { 50 = ["--volume=/a:/mnt/{1..50}:ro", "--quiet"] }
"""
APPLICATION = """
[application]
image = "lab/layers-{layers}"
command = ["true"]
"""


def design(options: str = OPTIONS, head: str = HEAD, factors: str = FACTORS) -> Design:
    return parse(head + factors + options + APPLICATION, "screen.toml")


def test_each_row_has_the_words_of_its_levels() -> None:
    found = design()
    assert len(found.option_words({"init": "yes", "volumes": "50"})) == 52
    for row in expand(found):
        words = found.option_words(row.levels)
        assert ("--init" in words) == (row.levels["init"] == "yes")
        mounted = [word for word in words if word.startswith("--volume=")]
        wanted = range(1, 51) if row.levels["volumes"] == "50" else ()
        assert mounted == [f"--volume=/a:/mnt/{number}:ro" for number in wanted]


def test_one_environment_is_in_all_rows_and_no_factor_of_the_fraction() -> None:
    found = design()
    assert {row.levels["environment"] for row in expand(found)} == {"coracle:N1"}
    assert [factor.name for factor in found.varied] == ["init", "volumes", "layers", "again"]
    for factor in found.varied:
        counts = Counter(cell[factor.name] for cell in cells(found))
        assert len(set(counts.values())) == 1, counts
    assert found.screens
    assert found.notes == ()


def test_two_environments_are_a_factor_like_others() -> None:
    found = design(factors=FACTORS.replace('["coracle:N1"]', '["coracle:I1", "coracle:N1"]'))
    assert found.varied[0].levels == ("coracle:I1", "coracle:N1")
    assert {row.levels["environment"] for row in expand(found)} == {"coracle:I1", "coracle:N1"}
    text = APPLICATION + "texts = { sum = 'is (.*)' }"
    with pytest.raises(LabError, match="no base whose texts they have"):
        parse(HEAD + FACTORS.replace('["coracle:N1"]', '["a", "b"]') + OPTIONS + text, "d")


def test_options_go_with_other_kinds_too() -> None:
    found = design(head="seed = 3\nreplicates = 2\n")
    assert not found.screens
    assert len(cells(found)) == 16
    assert 'no "native"' in found.notes[0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 4), st.sets(st.integers(1, 12)))
def test_a_stopped_run_goes_on_with_the_same_rows(
    seed: int, replicates: int, done: set[int]
) -> None:
    head = HEAD.replace("seed = 3", f"seed = {seed}").replace("= 2", f"= {replicates}")
    one, other = design(head=head), design(head=head)
    rows = expand(one)
    assert rows == expand(other)
    made = {number for number in done if number <= len(rows)}
    assert remaining(rows, made) == [row for row in rows if row.number not in made]


def test_words_are_in_the_digest_and_a_design_without_them_keeps_its_own() -> None:
    plain = HEAD.replace('kind = "plackett-burman"\n', "") + '[factors]\nenvironment = ["native"]\n'
    plain += APPLICATION.replace("-{layers}", "-1")
    # The digest that this design had before there were options.
    known = "6476944d334c7f97f2c82ed9caa94c4b9b4a6e15233cebf8b9562d359cd2e57a"
    assert digest(parse(plain, "d.toml")) == known
    other = design(OPTIONS.replace("--init", "--tty"))
    assert digest(other) != digest(design())
    assert digest(design(OPTIONS.replace("{1..50}", "{1..49}"))) != digest(design())
    assert digest(design(OPTIONS.replace("yes =", "no = [], yes ="))) == digest(design())


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ('[options]\ninitt = { yes = ["--init"] }', r'line 12: unknown factor "initt"', '"init"'),
        ('[options]\ninit = { ja = ["--init"] }', r'line 12: unknown level "ja" of init', "yes"),
        ('[options]\nenvironment = { "coracle:N1" = ["-t"] }', "unknown factor", "there is"),
        ("[options]\ninit = { yes = [] }", "two levels of init have the same words", "again"),
        ('[options]\ninit = { no = ["-t"], yes = ["-t"] }', "the same words", "again"),
        ('[options]\ninit = { yes = "--init" }', "options.init.yes", ""),
        ("[options]\ninit = {}", "the table is empty", ""),
        ('[options]\ninit = { yes = ["-v{9..1}"] }', "not one word with one range", "{1..50}"),
        ('[options]\ninit = { yes = ["-v{1..2}{1..2}"] }', "not one word with one range", ""),
        ('[options]\ninit = { yes = ["-v{1..5000}"] }', "5000 words for one level", "smaller"),
        ('[options]\ninit = { yes = ["-t"] }', "line 8: volumes changes nothing", "A/A"),
        (OPTIONS + 'again = { second = ["-t"] }', 'line 10: "again" changes something', "rename"),
        ('base = "coracle:N1"' + OPTIONS, "no base", "take base out"),
        ('same = "program"' + OPTIONS, "no base", "take same out"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(options: str, message: str, hint: str) -> None:
    head = HEAD
    if not options.lstrip().startswith("["):
        first, options = options.split("\n", 1)
        head += first + "\n"
    with pytest.raises(LabError, match=message) as error:
        design(options, head)
    assert hint in (error.value.hint or "")


def test_an_image_has_so_many_layers() -> None:
    more = '[[image]]\nname = "lab/layers-60"\nrelease = "bookworm"\nlayers = 60\n'
    assert [image.layers for image in design(OPTIONS + more).images] == [60]
    with pytest.raises(LabError, match="is less than 1"):
        design(OPTIONS + more.replace("60\n", "0\n"))
