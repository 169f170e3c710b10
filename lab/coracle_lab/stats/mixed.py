"""The mixed model `log t ~ environment * ranks + (1 | session/block)`, fitted by statsmodels.

One fit for all cells of a design: environments within ranks are fixed effects, sessions and the
blocks in them are random (Laird and Ware 1982; REML). The fixed part is written as one mean for
each number of ranks and one log-ratio to the base within it: the same model, with the effects that
people ask for as its coefficients. With a single session, blocks alone are random.

Intervals use t with one degree of freedom less than there are blocks. Statsmodels' own are normal
and too narrow for few blocks.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from coracle_lab.stats.data import FLAT, LEVELS, Floats, Interval


@dataclass(frozen=True)
class Observation:
    """One measured row of a design."""

    time: float
    environment: str
    ranks: str
    session: str
    block: str


@dataclass(frozen=True)
class Effect:
    """The ratio of an environment to the base at one number of ranks."""

    environment: str
    ranks: str
    ratio: float
    intervals: tuple[Interval, ...]
    p: float


@dataclass(frozen=True)
class Mixed:
    """The fitted model. Without a fit `effects` is empty and `why` says why.

    `interaction_p` is the p that the ratios are the same for all numbers of ranks (Wald's F).
    Deviations are of log t: between sessions, between blocks of a session, and within a block.
    """

    effects: tuple[Effect, ...] = ()
    interaction_p: float | None = None
    sessions: int = 0
    blocks: int = 0
    sd_session: float | None = None
    sd_block: float | None = None
    sd_residual: float | None = None
    notes: tuple[str, ...] = ()
    why: str = ""


Cell = tuple[str, str]
"""(ranks, environment)."""


def mixed(table: Sequence[Observation], base: str) -> Mixed:
    """Fits the model to the rows; NaN times are missing rows."""
    rows = [row for row in table if not math.isnan(row.time)]
    bad = next((row for row in rows if row.time <= 0 or math.isinf(row.time)), None)
    if bad is not None:
        return Mixed(why=f"{bad.environment} has the value {bad.time:g} in block {bad.block}")
    cells, notes = _cells(rows, base)
    effects = [cell for cell in cells if cell[1] != base]
    if not effects:
        return Mixed(why=f"no environment was measured beside {base} twice", notes=tuple(notes))
    rows = [row for row in rows if (row.ranks, row.environment) in cells]
    if _blocks(rows) < 2:
        return Mixed(why="one block has no spread between blocks", notes=tuple(notes))
    endog = np.log(np.array([row.time for row in rows]))
    exog = _fixed(rows, [cell for cell in cells if cell[1] == base], effects)
    # Statsmodels compares variances with fixed numbers, so the logs are given a unit deviation.
    unit = float(np.std(endog - exog @ np.linalg.lstsq(exog, endog)[0]))
    if unit < FLAT:
        return Mixed(why="all values of each cell are equal", notes=tuple(notes))
    try:
        fit, told = _fit(rows, endog / unit, exog)
    except (np.linalg.LinAlgError, ValueError) as error:
        return Mixed(why=f"the model could not be fitted: {error}", notes=tuple(notes))
    return _result(fit, unit, rows, effects, [*notes, *told])


def _blocks(rows: Sequence[Observation]) -> int:
    return len({(row.session, row.block) for row in rows})


def _cells(rows: Sequence[Observation], base: str) -> tuple[list[Cell], list[str]]:
    """Returns the cells that the model can have, and notes about those that it cannot."""
    counts = Counter((row.ranks, row.environment) for row in rows)
    cells: list[Cell] = []
    notes = []
    for cell, count in counts.items():
        ranks, environment = cell
        if counts[(ranks, base)] < 2:
            notes.append(f"{environment} at {ranks} ranks is left out: {base} is missing there")
        elif count < 2:
            notes.append(f"{environment} at {ranks} ranks is left out: it has one value")
        else:
            cells.append(cell)
    return sorted(cells, key=list(counts).index), notes


def _fixed(rows: Sequence[Observation], bases: list[Cell], effects: list[Cell]) -> Floats:
    """Returns the matrix of the fixed part: a mean for each number of ranks, then the effects."""
    exog = np.zeros((len(rows), len(bases) + len(effects)))
    column = {ranks: at for at, (ranks, _) in enumerate(bases)}
    effect = {cell: len(bases) + at for at, cell in enumerate(effects)}
    for at, row in enumerate(rows):
        exog[at, column[row.ranks]] = 1
        if (row.ranks, row.environment) in effect:
            exog[at, effect[(row.ranks, row.environment)]] = 1
    return exog


def _fit(rows: Sequence[Observation], endog: Floats, exog: Floats) -> tuple[Any, list[str]]:
    """Runs statsmodels; returns the fit and what it warned of."""
    # Statsmodels takes a second to import, and only this function needs it.
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    sessions = sorted({row.session for row in rows})
    session_of = np.array([sessions.index(row.session) for row in rows])
    blocks = sorted({(row.session, row.block) for row in rows})
    block_of = np.array([blocks.index((row.session, row.block)) for row in rows])
    if len(sessions) == 1:
        model = MixedLM(endog, exog, groups=block_of)
    else:
        matrices, names = [], []
        for at in range(len(sessions)):
            inside = block_of[session_of == at]
            own = sorted(set(inside.tolist()))
            matrices.append((inside[:, None] == np.array(own)[None, :]).astype(float))
            names.append([str(block) for block in own])
        model = MixedLM(
            endog,
            exog,
            groups=session_of,
            exog_re=np.ones((len(rows), 1)),
            exog_vc=VCSpec(["block"], [names], [matrices]),
        )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit = model.fit(reml=True)
    notes = sorted({f"statsmodels: {str(w.message).splitlines()[0]}" for w in told})
    if not fit.converged:
        notes.append("the fit did not converge: do not use its intervals")
    return fit, notes


def _result(
    fit: Any, unit: float, rows: Sequence[Observation], cells: list[Cell], notes: list[str]
) -> Mixed:
    """Reads the fit, and gives it the unit of the logs again."""
    fixed = len(fit.fe_params)
    mean = unit * np.asarray(fit.fe_params)[fixed - len(cells) :]
    effects_only = slice(fixed - len(cells), fixed)
    covariance = unit**2 * np.asarray(fit.cov_params())[effects_only, effects_only]
    error = np.sqrt(np.diag(covariance))
    if not np.all(np.isfinite(error) & (error > 0)):
        return Mixed(why="the model gives no standard errors", notes=tuple(notes))
    blocks = _blocks(rows)
    freedom = blocks - 1
    effects = []
    for (ranks, environment), m, e in zip(cells, mean.tolist(), error.tolist(), strict=True):
        intervals = []
        for level in LEVELS:
            half = float(stats.t.ppf((1 + level) / 2, freedom)) * e
            intervals.append(Interval(level, math.exp(m - half), math.exp(m + half)))
        p = float(2 * stats.t.sf(abs(m) / e, freedom))
        effects.append(Effect(environment, ranks, math.exp(m), tuple(intervals), p))
    sessions = len({row.session for row in rows})
    random = float(np.asarray(fit.cov_re)[0, 0])
    return Mixed(
        effects=tuple(effects),
        interaction_p=_interaction(cells, mean, covariance, freedom),
        sessions=sessions,
        blocks=blocks,
        sd_session=unit * math.sqrt(random) if sessions > 1 else None,
        sd_block=unit * math.sqrt(float(fit.vcomp[0]) if sessions > 1 else random),
        sd_residual=unit * math.sqrt(float(fit.scale)),
        notes=tuple(notes),
    )


def _interaction(cells: list[Cell], mean: Floats, covariance: Floats, freedom: int) -> float | None:
    """Tests that each environment has one ratio for all numbers of ranks."""
    contrasts = []
    for environment in dict.fromkeys(name for _, name in cells):
        own = [at for at, (_, name) in enumerate(cells) if name == environment]
        for other in own[1:]:
            row = np.zeros(len(cells))
            row[own[0]], row[other] = -1, 1
            contrasts.append(row)
    if not contrasts:
        return None
    matrix = np.array(contrasts)
    apart = matrix @ mean
    wald = float(apart @ np.linalg.solve(matrix @ covariance @ matrix.T, apart))
    return float(stats.f.sf(wald / len(contrasts), len(contrasts), freedom))
