"""The values that a design file becomes: `Design`, its parts, and `Row`.

All of them are frozen and compare by value. Levels are text everywhere: `ranks = [1, 2]` of the
file has the levels "1" and "2".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["blocks", "completely-randomised", "fractional", "plackett-burman", "nested"]
BuildIn = Literal["image", "host"]
Same = Literal["program", "files"]

FRACTIONS: tuple[Kind, ...] = ("fractional", "plackett-burman")
"""Kinds whose cells are a fraction of all; they are judged by the effects of their factors."""

ABOVE = 0.10
"""A sentinel that took so much longer than usual, as a fraction, marks a disturbed block."""
NESTED_COLUMNS = ("session", "launch", "start")
"""Levels that a nested design adds to each row, from the outermost to the innermost."""

COLUMNS = ("name", "run.no.in.std.order", "run.no", "run.no.std.rp", "Blocks")
"""Columns before the factors, in the words of R's `DoE.base`."""


@dataclass(frozen=True)
class Factor:
    """A factor and its levels, in standard order."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class LeftOut:
    """One cell that a `where` of the design file leaves out, and the stated reason."""

    levels: Mapping[str, str]
    reason: str


@dataclass(frozen=True)
class Precision:
    """Replicates until every ratio's interval is narrow enough, or a bound is reached.

    `half_width` is a fraction of the ratio (0.01 is ±1 %). The rule is looked at after whole
    blocks only, first after `blocks_at_least`.
    """

    half_width: float
    level: float
    blocks_at_least: int
    blocks_at_most: int
    hours_at_most: float | None


@dataclass(frozen=True)
class Nested:
    """Numbers of sessions, of launches of each cell in a session, and of starts in a launch."""

    sessions: int
    launches: int
    starts: int


@dataclass(frozen=True)
class Application:
    """The program that every row runs, how its result is checked, and what it has to find.

    `source` is a directory, `build` the commands that make the program of it: in a container of
    `image`, or on the host (`build_in`). `source_sha256` says which source the design was made
    for. `launcher` starts the ranks of rows that have some. `reads` is "lab" if the program
    prints lines of `lab.h`; of those that have the key `series` each number is a response
    NAME@VALUE. `texts` have to be equal in all rows. Of `rates`, larger is better. `host` lists
    Debian packages that the program needs on the host.
    """

    command: tuple[str, ...]
    name: str
    success: str | None = None
    responses: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    image: str | None = None
    rootfs: str | None = None
    volumes: tuple[str, ...] = ()
    workdir: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    gpus: str | None = None
    text: str = ""
    source: str | None = None
    source_sha256: str | None = None
    build: tuple[tuple[str, ...], ...] = ()
    build_in: BuildIn = "image"
    host: tuple[str, ...] = ()
    launcher: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    reads: str | None = None
    series: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    rates: tuple[str, ...] = ()

    def is_rate(self, response: str) -> bool:
        """Tells whether larger values of a response are better; NAME stands for NAME@* too."""
        return response in self.rates or response.partition("@")[0] in self.rates


@dataclass(frozen=True)
class Image:
    """How an image is made if Coracle's store lacks it: a Debian release and its packages.

    All is in the first of its `layers`; each further one has a small file.
    """

    name: str
    release: str
    packages: tuple[str, ...] = ()
    layers: int = 1


@dataclass(frozen=True)
class Nodes:
    """Simulated nodes on this host, and the rate of the links between them ("1gbit")."""

    count: int
    rate: str | None = None


@dataclass(frozen=True)
class Design:
    """A checked design.

    `replicates` is the number of times each cell is measured; with a `precision` it is the most.
    `generator` holds the words of a fractional design ("a b c abc"), one for each factor; without
    it `resolution` says which one to take.
    `same` says which files have to be the same bytes in all environments as in the base: the
    program's, or those of its libraries too. `images` are recipes. `options` has for factors that
    are options the words that each level puts into the environment's command.
    `notes` are sentences for the user about what is allowed but weakens the design.
    """

    name: str
    kind: Kind
    seed: int
    factors: tuple[Factor, ...]
    replicates: int
    precision: Precision | None = None
    nested: Nested | None = None
    generator: str | None = None
    resolution: int | None = None
    left_out: tuple[LeftOut, ...] = ()
    base: str = "native"
    margin: float = 0.01
    responses: tuple[str, ...] = ("wall_s",)
    application: Application | None = None
    session: str | None = None
    transport: str | None = None
    pinning: str | None = None
    sentinel_above: float = ABOVE
    same: Same | None = None
    nodes: Nodes | None = None
    images: tuple[Image, ...] = ()
    options: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    text: str = ""
    notes: tuple[str, ...] = ()

    def factor(self, name: str) -> Factor | None:
        """Returns the factor of this name, if the design has it."""
        return next((factor for factor in self.factors if factor.name == name), None)

    @property
    def screens(self) -> bool:
        """Whether the design is a fraction, which is judged by the effects of its factors."""
        return self.kind in FRACTIONS

    @property
    def varied(self) -> tuple[Factor, ...]:
        """The factors that have more than one level."""
        return tuple(factor for factor in self.factors if len(factor.levels) > 1)

    def option_words(self, levels: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the words that a row's levels put into the environment's command."""
        return tuple(word for name, words in self.options.items() for word in words[levels[name]])


@dataclass(frozen=True)
class Row:
    """One run of the program: its number in run order (from 1), its block (from 1), its levels."""

    number: int
    block: int
    levels: Mapping[str, str]
