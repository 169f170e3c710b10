"""Design files: what they say becomes the design; what is wrong is named with its place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coracle_lab.design import LeftOut, Precision, expand, from_csv, parse, to_csv
from coracle_lab.design.place import line_of
from coracle_lab.errors import LabError

WHOLE = '''\
# A design with everything in it.
name = "overhead"
text = """
seed = 99 is not the seed: this is text
[factors]
"""
kind = "blocks"
seed = 20_180_914
margin = 0.02
session = "monday"
base = "native"
transport = "tcp"
pinning = "1,2-3"
responses = ["wall_s", "launch_s"]

[factors]
environment = [
    "native", "native-again",  # A/A
    "coracle:N1", "coracle:P1",
]
ranks = [1, 2]
"direct" = [true, false]

[precision]
half_width = 0.01
level = 0.997
blocks_at_most = 60
hours_at_most = 2

[[where]]
leave_out = {environment = "coracle:P1", ranks = 2}
reason = "PRoot and two ranks do not fit into an hour"

[[where]]
leave_out = {environment = ["coracle:P1"], direct = true}
reason = "direct files fail there"

[sentinel]
above = 0.2

[application]
command = ["mpirun", "-n", "{ranks}", "./model", "in.dat"]
success = 'norm = \\d'
responses = {work_s = 'work (\\d+)'}
timeout_s = 60
'''


def test_everything_that_a_file_says_is_in_the_design() -> None:
    design = parse(WHOLE, "o.toml")
    assert (design.name, design.kind, design.seed) == ("overhead", "blocks", 20180914)
    assert [factor.levels for factor in design.factors] == [
        ("native", "native-again", "coracle:N1", "coracle:P1"),
        ("1", "2"),
        ("true", "false"),
    ]
    assert design.precision == Precision(0.01, 0.997, 10, 60, 2.0)
    assert design.replicates == 60
    assert (design.margin, design.session, design.base) == (0.02, "monday", "native")
    assert (design.transport, design.pinning) == ("tcp", "1,2-3")
    assert design.responses == ("wall_s", "launch_s")
    assert design.sentinel_above == 0.2
    assert design.application is not None
    assert design.application.command[2] == "{ranks}"
    assert design.application.name == "mpirun"
    assert design.application.responses == {"work_s": r"work (\d+)"}
    assert design.notes == ()


def test_what_is_left_out_is_listed_with_the_first_reason_that_applies() -> None:
    design = parse(WHOLE, "o.toml")
    levels = {"environment": "coracle:P1", "ranks": "2", "direct": "true"}
    fit = "PRoot and two ranks do not fit into an hour"
    assert design.left_out == (
        LeftOut({**levels, "ranks": "1"}, "direct files fail there"),
        LeftOut(levels, fit),
        LeftOut({**levels, "direct": "false"}, fit),
    )
    assert all(dict(row.levels) != levels for row in expand(design))
    assert len(expand(design)) == 60 * (16 - 3)


def test_a_short_file_has_the_documented_defaults() -> None:
    design = parse('seed = 1\nreplicates = 3\n[factors]\nenvironment = ["native", "x"]', "s.toml")
    assert (design.name, design.kind, design.margin, design.replicates) == (
        "s.toml",
        "blocks",
        0.01,
        3,
    )
    assert (design.base, design.responses, design.sentinel_above) == ("native", ("wall_s",), 0.1)
    assert design.notes == (
        'no "native-again" among the environments: without A/A no verdict is printed',
    )


def test_without_a_base_that_is_noted() -> None:
    design = parse('seed = 1\nreplicates = 3\n[factors]\nenvironment = ["x", "y"]', "s.toml")
    assert design.notes[0].startswith('no "native" among the environments')


HEAD = "seed = 1\nreplicates = 2\n"
FACTORS = '[factors]\nenvironment = ["native", "bwrap"]\n'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("seed = 1\nreplicates 2\n", "d.toml, line 2, column 12: this is not TOML", "quotes"),
        (HEAD, 'd.toml: the design has no "factors"', "factor = list of levels"),
        ("replicates = 2\n" + FACTORS, 'd.toml: the design has no "seed"', "order of the rows"),
        ("seed = 1\n" + FACTORS, "neither replicates nor", "replicates = 30"),
        (
            HEAD + 'knd = "blocks"\n' + FACTORS,
            'line 3: unknown key "knd" in the design',
            'did you mean "kind"',
        ),
        ("sed = 1\n" + FACTORS, 'line 1: unknown key "sed" in the design', 'did you mean "seed"'),
        (HEAD + 'kind = "block"\n' + FACTORS, "line 3: kind = 'block' is unknown", '"blocks"'),
        ('seed = "1"\nreplicates = 2\n' + FACTORS, "line 1: seed: '1' is not of the type", "order"),
        (HEAD.replace("1", "-1") + FACTORS, "line 1: seed: -1 is less than 0", "order"),
        ("seed = 1\nreplicates = 0\n" + FACTORS, "line 2: replicates: 0 is less than 1", "cell"),
        (HEAD + "margin = nan\n" + FACTORS, "line 3: margin = nan is not a number", "finite"),
        (HEAD + "margin = 0\n" + FACTORS, "line 3: margin: 0 is not more than 0", "equal"),
        (HEAD + "[factors]\n", "line 3: factors: the table is empty", "levels"),
        (HEAD + "[factors]\ne = []\n", "line 4: factors.e: the list is empty", "schema"),
        (HEAD + '[factors]\ne = "x"\n', "line 4: factors.e: 'x' is not of the type", "schema"),
        (HEAD + '[factors]\n"a b" = [1]\n', 'line 4: "a b" is not a name for a factor', "letter"),
        (HEAD + "[factors]\nblock = [1]\n", 'line 4: "block" is a column', "rename"),
        (HEAD + '[factors]\nr = [1, "1"]\n', 'line 4: r has the level "1" twice', "take one out"),
        (HEAD + '[factors]\nr = ["a\\n"]\n', "control characters or outer spaces", "CSV"),
        (HEAD + FACTORS + "[nested]\nsessions = 1\n", r"line 5: nested has no", "launches"),
        (
            HEAD + FACTORS + "[precision]\nhalf_width = 0.01\nblocks_at_most = 9\n",
            "line 5: both replicates and",
            "take one out",
        ),
        (
            HEAD + FACTORS + '[[where]]\nleave_out = {env = "bwrap"}\nreason = "why"\n',
            'line 6: unknown factor "env" in leave_out',
            'did you mean "environment"',
        ),
        (
            HEAD + FACTORS + '[[where]]\nleave_out = {environment = "brap"}\nreason = "why"\n',
            'line 6: unknown level "brap" of environment',
            'did you mean "bwrap"',
        ),
        (
            HEAD + FACTORS + '[[where]]\nleave_out = {environment = "bwrap"}\n',
            r'where\[1\] has no "reason"',
            "printed in plan",
        ),
        (
            HEAD + FACTORS + '[[where]]\nleave_out = {environment = ["native", "bwrap"]}\n'
            'reason = "all of it"\n',
            "line 5: .*leaves every cell out",
            "nothing",
        ),
        (
            HEAD + FACTORS + '[[where]]\nleave_out = {environment = "bwrap"}\nreason = "one"\n' * 2,
            "line 8: this leaves nothing out that an earlier",
            "take it out",
        ),
        (HEAD + 'base = "podman"\n' + FACTORS, 'line 3: base = "podman" is not an env', '"bwrap"'),
        (HEAD + 'base = "native"\n[factors]\nr = [1]\n', "line 3: there is no factor", "base"),
        (
            HEAD + FACTORS + '[application]\ncommand = ["{rank}"]\n',
            'line 6: "{rank}" of the command is not a factor',
            "environment",
        ),
        (
            HEAD + FACTORS + '[application]\ncommand = ["x"]\nsuccess = "("\n',
            "line 7: application.success is not a regular expression",
            "backslashes",
        ),
        (
            HEAD + FACTORS + '[application]\ncommand = ["x"]\nresponses = {t = "x"}\n',
            "line 7: application.responses.t has no group",
            r"\(\.\.\.\)",
        ),
        (
            "seed = 1\nreplicates = 100000\n[factors]\n"
            + "\n".join(f"f{n} = [1, 2, 3, 4]" for n in range(3)),
            "line 2: the design has 6400000 rows, more than 1000000",
            "fewer",
        ),
        (
            HEAD + "[factors]\n" + "\n".join(f"f{n} = [1, 2, 3, 4]" for n in range(9)),
            "line 3: the factors have more than 100000 cells",
            "fractional",
        ),
        (
            'seed = 1\nkind = "completely-randomised"\n' + FACTORS + "[precision]\n"
            "half_width = 0.01\nblocks_at_most = 9\n",
            r"line 5: \[precision\] does not go with kind",
            "whole blocks",
        ),
        (
            "seed = 1\n" + FACTORS + "[precision]\nhalf_width = 0.01\nblocks_at_least = 10\n"
            "blocks_at_most = 9\n",
            "line 6: blocks_at_least = 10 is more than blocks_at_most = 9",
            "raise",
        ),
    ],
)
def test_errors_name_the_place_and_what_to_do(text: str, message: str, hint: str) -> None:
    with pytest.raises(LabError, match=message) as caught:
        parse(text, "d.toml")
    assert caught.value.hint is not None
    assert re.search(hint, caught.value.hint), caught.value.hint
    assert caught.value.status == 2


@given(st.text())
def test_any_text_is_a_design_or_an_error_for_people(text: str) -> None:
    try:
        parse(text, "d.toml")
    except LabError as error:
        assert error.message.startswith("d.toml")


@given(st.integers(0, len(WHOLE)))
def test_a_file_that_is_cut_off_never_ends_in_a_traceback(length: int) -> None:
    try:
        expand(parse(WHOLE[:length], "d.toml"))
    except LabError as error:
        assert error.message.startswith("d.toml")


def test_lines_are_found_behind_strings_brackets_and_comments() -> None:
    expected = {
        ("seed",): "seed = 20_180_914",
        ("factors",): "[factors]",
        ("factors", "ranks"): "ranks = [1, 2]",
        ("factors", "direct"): '"direct" = [true, false]',
        ("where", 1, "reason"): 'reason = "direct files fail there"',
        ("application", "command", 2): 'command = ["mpirun"',
    }
    lines = WHOLE.splitlines()
    for path, begin in expected.items():
        line = line_of(WHOLE, path)
        assert line is not None
        assert lines[line - 1].startswith(begin)
    assert line_of(WHOLE, ("absent",)) is None
    assert lines[(line_of(WHOLE, ("factors",)) or 0) - 1 - 1] == ""


def test_csv_has_the_columns_of_doe_base() -> None:
    design = parse('seed = 7\nreplicates = 2\n[factors]\ne = ["a", "b,c"]\nr = [1]', "d.toml")
    lines = to_csv(design, expand(design)).splitlines()
    assert lines[0] == ('"name","run.no.in.std.order","run.no","run.no.std.rp","Blocks","e","r"')
    assert sorted(line.split(",", 3)[3] for line in lines[1:]) == [
        '"1.1","1","a","1"',
        '"1.2","2","a","1"',
        '"2.1","1","b,c","1"',
        '"2.2","2","b,c","1"',
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "the table of rows is empty"),
        (lambda text: text.replace("Blocks", "blocks"), 'has no column "Blocks"'),
        (lambda text: text[:-8], "line 5 of the table of rows has 5 of 6 columns"),
        (lambda text: text.replace('"2",2,', '"2",x,').replace(",2,", ",x,"), 'run.no is "x"'),
        (lambda text: "\n".join([*text.splitlines()[:2], *text.splitlines()[3:]]), "instead of 2"),
    ],
)
def test_a_table_that_was_damaged_is_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    design = parse('seed = 7\nreplicates = 2\n[factors]\ne = ["aaa", "bbb"]', "d.toml")
    with pytest.raises(LabError, match=message):
        from_csv(change(to_csv(design, expand(design))))
