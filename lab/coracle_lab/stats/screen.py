"""Main effects of two-level designs: what a factor's second level costs against its first.

The response is taken by its logarithm, so an effect is a ratio; the difference in its own unit
stands beside. The model is one mean for each cell and one for each block, fitted by statsmodels
(OLS), and an effect is the contrast of the cells at the two levels. So its error is what
replicates of a cell differ by, and options that act together (interactions) widen no interval:
whether there are such is an F test of its own. Without replicates that error is not known, and
Lenth's method takes the effects themselves: most of them are supposed to be nothing.

The factor that is given as `again` changes nothing. It is a control, as native-again is: its
effect is noise, and Holm's family is without it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import linalg

from coracle_lab.errors import LabError
from coracle_lab.stats.data import FLAT, LEVELS, Floats, Interval, Refused, positive
from coracle_lab.stats.estimate import Estimate
from coracle_lab.stats.many import holm
from coracle_lab.stats.verdict import ALPHA, Guard, judge, percent

REPLICATES = "replicates"
LENTH = "Lenth"
EFFECTS_AT_LEAST = 5
"""Lenth's method takes no fewer effects: their median would say nothing."""


@dataclass(frozen=True)
class Runs:
    """One response of all rows: values with their blocks, and -1 or +1 of each factor.

    NaN says that a value is missing.
    """

    signs: Mapping[str, Sequence[int]]
    values: Sequence[float]
    blocks: Sequence[str]


@dataclass(frozen=True)
class MainEffect:
    """The ratio of a factor's second level to its first, over all levels of the others.

    Without an estimate `ratio` is None and the verdict says why. `by_block` has the ratio in each
    block that is whole.
    """

    factor: str
    verdict: str
    ratio: float | None = None
    ratio_intervals: tuple[Interval, ...] = ()
    difference: float | None = None
    difference_intervals: tuple[Interval, ...] = ()
    by_block: tuple[float, ...] = ()
    t_p: float | None = None
    holm_p: float | None = None
    tost_p: float | None = None


@dataclass(frozen=True)
class Screen:
    """All effects of one response, the largest first, the control last.

    `method` says where the error comes from. `sd` is the deviation of one run's logarithm from
    its cell, `smallest` the half width of the 95 % intervals as a fraction: smaller effects
    cannot show. `interactions_p` is the p that factors act each for itself.
    """

    effects: tuple[MainEffect, ...]
    guard: Guard
    method: str = REPLICATES
    cells: int = 0
    blocks: int = 0
    missing: int = 0
    sd: float | None = None
    smallest: float | None = None
    interactions_p: float | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    def of(self, factor: str) -> MainEffect | None:
        """Returns the effect of a factor, if there is one."""
        return next((one for one in self.effects if one.factor == factor), None)


@dataclass(frozen=True)
class _Fitted:
    """Estimates of one table on one scale."""

    estimates: Mapping[str, Estimate]
    cells: int
    blocks: int
    method: str
    sd: float | None
    interactions_p: float | None


def screens(tables: Sequence[Runs], margin: float, again: str | None = None) -> list[Screen]:
    """Judges the effects of several responses, whose verdicts are read together: Holm's family
    is all of them. Raises `LabError` for a margin that is none."""
    if not (math.isfinite(margin) and 0 < margin < 1):
        raise LabError(f"the margin is {margin}", "it is a fraction: 0.01 is ±1 %")
    fits: list[_Fitted | str] = []
    for table in tables:
        try:
            fits.append(_fitted(table, np.log(positive(table.values, "the response"))))
        except Refused as why:
            fits.append(str(why))
    adjusted: dict[tuple[int, str], tuple[float, int]] = {}
    for control in (True, False):
        names = [
            (at, name)
            for at, fit in enumerate(fits)
            if isinstance(fit, _Fitted)
            for name in fit.estimates
            if (name == again) == control
        ]
        p = holm([fits[at].estimates[name].p() for at, name in names])  # type: ignore[union-attr]
        adjusted |= {key: (one, len(names)) for key, one in zip(names, p, strict=True)}
    return [
        _refused(table, fit, again)
        if isinstance(fit, str)
        else _judged(
            table,
            fit,
            margin,
            {name: found for (place, name), found in adjusted.items() if place == at},
            again,
        )
        for at, (table, fit) in enumerate(zip(tables, fits, strict=True))
    ]


def _refused(table: Runs, why: str, again: str | None) -> Screen:
    effects = tuple(MainEffect(name, f"no verdict: {why}") for name in table.signs)
    return Screen(effects, Guard(again is None, f"nothing could be judged: {why}"))


def _judged(
    table: Runs,
    fit: _Fitted,
    margin: float,
    adjusted: Mapping[str, tuple[float, int]],
    again: str | None,
) -> Screen:
    """Returns the effects with their verdicts, in the order of their size."""
    try:
        plain = _fitted(table, np.asarray(table.values, dtype=np.float64)).estimates
    except Refused:
        plain = {}
    by_block = _by_block(table)
    effects = []
    for name, estimate in fit.estimates.items():
        intervals = tuple(_exp(estimate.interval(level)) for level in LEVELS)
        p, family = adjusted[name]
        difference = plain.get(name)
        effects.append(
            MainEffect(
                name,
                _verdict(fit, estimate, intervals[0], margin, p, family),
                math.exp(estimate.mean),
                intervals,
                difference.mean if difference else None,
                tuple(difference.interval(level) for level in LEVELS) if difference else (),
                by_block[name],
                estimate.p(),
                p,
                estimate.tost_p(math.log1p(margin)),
            )
        )
    effects.sort(key=lambda one: (one.factor == again, -abs(math.log(one.ratio or 1.0))))
    missing = int(np.isnan(np.asarray(table.values, dtype=np.float64)).sum())
    widest = max(fit.estimates.values(), key=lambda one: one.se)
    half = widest.interval(LEVELS[0]).high - widest.mean
    made = Screen(
        tuple(effects),
        Guard(True, ""),
        fit.method,
        fit.cells,
        fit.blocks,
        missing,
        fit.sd,
        math.expm1(half),
        fit.interactions_p,
        _notes(fit, missing),
    )
    return replace(made, guard=_guard(made, again))


def _verdict(
    fit: _Fitted, estimate: Estimate, ratio95: Interval, margin: float, p: float, family: int
) -> str:
    """Returns the verdict; without replicates nothing is called equal."""

    def freedom(blocks: int) -> float:
        return (fit.cells - 1) * (blocks - 1)

    is_equal = estimate.tost_p(math.log1p(margin)) < ALPHA
    if fit.method == LENTH and (is_equal or p >= ALPHA):
        return "undecided: about 1 more block"
    return judge(estimate, ratio95, margin, p, family, freedom)


def _guard(made: Screen, again: str | None) -> Guard:
    """Says whether the effects are trusted: by the control, if the design has one."""
    half = f"effects to ±{percent(round(made.smallest or 0.0, 4))} % (95 %)"
    source = "replicates show" if made.method == REPLICATES else "Lenth's method shows"
    control = made.of(again) if again is not None else None
    if control is None:
        return Guard(True, f"no A/A: no factor of the design changes nothing; its {source} {half}")
    about = f"{control.factor}, which changes nothing, is {control.verdict}"
    if control.verdict.startswith(("equal", "undecided")):
        return Guard(True, f"A/A holds: {about}; {source} {half}")
    return Guard(
        False,
        f"A/A fails: {about}: the machine was too restless, or options that act together show in"
        " it; no verdict of this run is trusted",
    )


def _notes(fit: _Fitted, missing: int) -> tuple[str, ...]:
    said = []
    if missing:
        said.append(f"{missing} values are missing")
    if fit.method == LENTH:
        said.append("one run of each cell: intervals by Lenth's method, and nothing called equal")
    return tuple(said)


def _exp(interval: Interval) -> Interval:
    return interval.mapped(math.exp(interval.low), math.exp(interval.high))


def _cells(table: Runs) -> tuple[list[tuple[int, ...]], list[int]]:
    """Returns the different combinations of signs, and the number of each row's."""
    rows = list(zip(*table.signs.values(), strict=True))
    cells = list(dict.fromkeys(rows))
    return cells, [cells.index(row) for row in rows]


def _contrasts(cells: Sequence[tuple[int, ...]]) -> tuple[Floats, Floats]:
    """Returns what makes effects of means of cells, and what makes interactions of them."""
    means = np.column_stack([np.ones(len(cells)), np.asarray(cells, dtype=np.float64)])
    if np.linalg.matrix_rank(means) < means.shape[1]:
        raise Refused("the factors cannot be told apart in these cells")
    effects: Floats = 2 * np.linalg.pinv(means)[1:]
    rest: Floats = linalg.null_space(means.T).T
    return effects, rest


def _fitted(table: Runs, response: Floats) -> _Fitted:
    """Fits one table. Raises `Refused` where nothing can be estimated."""
    cells, cell_of = _cells(table)
    known = ~np.isnan(response)
    lacking = set(range(len(cells))) - {
        at for at, is_in in zip(cell_of, known, strict=True) if is_in
    }
    if lacking:
        names = ", ".join(
            f"{name} {'second' if sign > 0 else 'first'}"
            for name, sign in zip(table.signs, cells[min(lacking)], strict=True)
        )
        raise Refused(f"{len(lacking)} of {len(cells)} cells have no value, one is {names}")
    effects, rest = _contrasts(cells)
    labels = [block for block, is_in in zip(table.blocks, known, strict=True) if is_in]
    blocks = list(dict.fromkeys(labels))
    model = np.zeros((len(labels), len(cells) + len(blocks) - 1))
    own = [at for at, is_in in zip(cell_of, known, strict=True) if is_in]
    model[np.arange(len(own)), own] = 1.0
    for row, block in enumerate(labels):
        if (at := blocks.index(block)) > 0:
            model[row, len(cells) + at - 1] = 1.0
    if len(labels) <= model.shape[1]:
        return _lenth(list(table.signs), effects, response[known], own, len(blocks))
    return _replicated(list(table.signs), effects, rest, model, response[known], len(blocks))


def _replicated(
    names: Sequence[str],
    effects: Floats,
    rest: Floats,
    model: Floats,
    response: Floats,
    blocks: int,
) -> _Fitted:
    """Estimates effects with the error of replicates."""
    import statsmodels.api as sm

    cells = effects.shape[1]
    fit: Any = sm.OLS(response, model).fit()
    sd = math.sqrt(float(fit.scale))
    if sd <= FLAT * max(1.0, float(np.max(np.abs(response)))):
        raise Refused("the replicates of each cell are equal")

    def padded(contrasts: Floats) -> Floats:
        return np.pad(contrasts, ((0, 0), (0, model.shape[1] - cells)))

    found = fit.t_test(padded(effects))
    means, errors = np.atleast_1d(found.effect), np.atleast_1d(found.sd)
    interactions = None
    if rest.shape[0]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            interactions = float(fit.f_test(padded(rest)).pvalue)
    return _Fitted(
        {
            name: Estimate(float(mean), float(se), float(fit.df_resid), blocks)
            for name, mean, se in zip(names, means, errors, strict=True)
        },
        cells,
        blocks,
        REPLICATES,
        sd,
        interactions,
    )


def _lenth(
    names: Sequence[str], effects: Floats, response: Floats, cells: Sequence[int], blocks: int
) -> _Fitted:
    """Estimates effects of unreplicated cells, with Lenth's pseudo standard error (1989)."""
    if len(names) < EFFECTS_AT_LEAST:
        raise Refused(
            f"one run of each cell and {len(names)} factors: Lenth's method takes"
            f" {EFFECTS_AT_LEAST}; replicate the cells"
        )
    # A second block that has just begun has values of some cells: they are left for replicates.
    ordered = response[[cells.index(cell) for cell in range(effects.shape[1])]]
    found = effects @ ordered
    sizes = np.abs(found)
    first = 1.5 * float(np.median(sizes))
    small = sizes[sizes < 2.5 * first]
    error = 1.5 * float(np.median(small)) if small.size else 0.0
    if error <= FLAT * max(1.0, float(np.max(np.abs(response)))):
        raise Refused("most effects are exactly 0: their error cannot be estimated")
    return _Fitted(
        {
            name: Estimate(float(mean), error, len(names) / 3, 1)
            for name, mean in zip(names, found, strict=True)
        },
        effects.shape[1],
        blocks,
        LENTH,
        None,
        None,
    )


def _by_block(table: Runs) -> dict[str, tuple[float, ...]]:
    """Returns the ratio of each factor in each block that has all cells once."""
    cells, cell_of = _cells(table)
    effects, _ = _contrasts(cells)
    values = np.asarray(table.values, dtype=np.float64)
    found: list[Floats] = []
    for block in dict.fromkeys(table.blocks):
        rows = [at for at, one in enumerate(table.blocks) if one == block]
        mine = {cell_of[at]: values[at] for at in rows if values[at] > 0}
        if len(mine) == len(cells):
            found.append(np.exp(effects @ np.log([mine[at] for at in range(len(cells))])))
    return {
        name: tuple(float(ratios[at]) for ratios in found) for at, name in enumerate(table.signs)
    }
