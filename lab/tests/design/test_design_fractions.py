"""Fractional and Plackett-Burman designs: balanced, orthogonal, with their aliases told."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from coracle_lab.design import Design, aliases, cells, expand, from_csv, parse, to_csv
from coracle_lab.errors import LabError

OPTIONS = ["init", "volumes", "layers", "isolate", "root", "tty", "overlay", "rewriting"]


def fraction(kind: str, count: int, extra: str = "", replicates: int = 2) -> Design:
    lines = [f'seed = 5\nkind = "{kind}"\nreplicates = {replicates}', "[factors]"]
    lines += [f'{(OPTIONS * 4)[n]}{n} = ["off", "on"]' for n in range(count)]
    return parse("\n".join([*lines, extra]), "screen.toml")


def signs(design: Design) -> list[list[int]]:
    """Returns the columns of the design as -1 and +1."""
    found = cells(design)
    return [
        [-1 if cell[factor.name] == factor.levels[0] else 1 for cell in found]
        for factor in design.factors
    ]


CASES = [fraction("plackett-burman", n) for n in (2, 3, 7, 8, 11, 12, 19)] + [
    fraction("fractional", 4, '[fractional]\ngenerator = "a b c abc"'),
    fraction("fractional", 5, '[fractional]\ngenerator = "A B C D -ABCD"'),
    fraction("fractional", 6, "[fractional]\nresolution = 3"),
    fraction("fractional", 8, "[fractional]\nresolution = 4"),
]


@pytest.mark.parametrize("design", CASES)
def test_levels_are_balanced_and_columns_orthogonal(design: Design) -> None:
    columns = signs(design)
    for at, column in enumerate(columns):
        assert sum(column) == 0
        for other in columns[at + 1 :]:
            assert sum(a * b for a, b in zip(column, other, strict=True)) == 0


@pytest.mark.parametrize("design", CASES)
def test_each_block_has_the_whole_fraction(design: Design) -> None:
    rows = expand(design)
    every = Counter(tuple(cell.values()) for cell in cells(design))
    for block in (1, 2):
        assert Counter(tuple(r.levels.values()) for r in rows if r.block == block) == every
    assert from_csv(to_csv(design, rows)) == rows


def test_minus_is_the_first_level() -> None:
    """The first row of `a b ab` is (-, -, +), and of Plackett-Burman's 3 factors the same."""
    for design in (
        fraction("fractional", 3, '[fractional]\ngenerator = "a b ab"'),
        fraction("plackett-burman", 3),
    ):
        assert list(cells(design)[0].values()) == ["off", "off", "on"]


def test_sizes_are_the_known_ones() -> None:
    assert [len(cells(d)) for d in CASES] == [4, 4, 8, 12, 12, 16, 20, 8, 16, 8, 16]


def test_aliases_are_the_textbook_ones() -> None:
    """2^(3-1) with c = ab, and 2^(4-1) of resolution IV, which has none between main and pairs."""
    design = fraction("fractional", 3, '[fractional]\ngenerator = "a b ab"')
    assert aliases(design) == [
        "init0 = +1 volumes1*layers2",
        "volumes1 = +1 init0*layers2",
        "layers2 = +1 init0*volumes1",
    ]
    assert aliases(fraction("fractional", 4, '[fractional]\ngenerator = "a b c abc"')) == []
    shares = {line.split()[2] for line in aliases(fraction("plackett-burman", 11))}
    assert shares == {"+0.33", "-0.33"}
    assert aliases(parse('seed = 1\nreplicates = 1\n[factors]\ne = ["a", "b"]', "d")) == []


@pytest.mark.parametrize(
    ("kind", "count", "extra", "message"),
    [
        ("fractional", 3, "", r'screen.toml, line 2: kind = "fractional" needs the table'),
        (
            "fractional",
            3,
            '[fractional]\ngenerator = "a b"',
            r"line 9: .* 2 words, and there are 3",
        ),
        ("fractional", 3, '[fractional]\ngenerator = "a b cd"', '"cd" is not a product'),
        ("fractional", 3, '[fractional]\ngenerator = "a b b"', '"b" repeats itself'),
        ("fractional", 3, '[fractional]\ngenerator = "a b aa"', '"aa" repeats itself'),
        ("fractional", 4, '[fractional]\ngenerator = "a b ab -ba"', "the same product"),
        ("fractional", 3, '[fractional]\ngenerator = "a b ab"\nresolution = 3', "only one of"),
        ("plackett-burman", 1, "", "takes 2 to 26 factors, and this one has 1"),
        (
            "plackett-burman",
            3,
            '[[where]]\nleave_out = {init0 = "on"}\nreason = "slow"',
            "mixes up the effects",
        ),
        ("blocks", 2, "[fractional]\nresolution = 3", r"\[fractional\] does not belong to kind"),
    ],
)
def test_what_is_no_fraction_is_refused(kind: str, count: int, extra: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        fraction(kind, count, extra)


def test_three_levels_are_refused() -> None:
    text = (
        'seed = 1\nreplicates = 1\nkind = "plackett-burman"\n[factors]\na = [1, 2, 3]\nb = [1, 2]'
    )
    with pytest.raises(LabError, match=r"line 5: a has 3 levels, and a plackett-burman .* two"):
        parse(text, "d.toml")


def test_a_resolution_that_cannot_be_is_refused_with_the_reason() -> None:
    with pytest.raises(LabError, match="no plackett-burman design for 25 factors"):
        expand(fraction("plackett-burman", 25))


def test_other_kinds_need_neither_numpy_nor_pydoe() -> None:
    """Running needs ReFrame alone; so rows of blocks come from the standard library."""
    program = """
import sys
from coracle_lab.design import parse, expand, to_csv, from_csv, digest
design = parse('seed = 1\\nreplicates = 2\\n[factors]\\ne = ["a", "b"]', "d.toml")
from_csv(to_csv(design, expand(design))); digest(design)
print([name for name in ("numpy", "pydoe", "scipy", "pandas") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
