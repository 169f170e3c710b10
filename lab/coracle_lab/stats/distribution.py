"""Describes the values of each environment in run order: quantiles, order, drift, normality.

These say whether the intervals of `compare` may be believed: values that follow each other
(lag-1 correlation), a drift, or a long tail are seen here first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from coracle_lab.stats.data import Floats, Interval, Refused, Values, positive, spread

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class Distribution:
    """What the values of one environment look like.

    `order` holds (block, value) for the order plot and `qq` (normal quantile, log value) for the
    Q-Q plot. `drift` is the change over all blocks as a fraction (0.02: the last is 2 % slower
    than the first), by a straight line through the logs. What cannot be had is None, and
    `notes` say why.
    """

    environment: str
    count: int
    missing: int
    order: tuple[tuple[int, float], ...]
    quantiles: dict[float, float | None]
    mean: float | None = None
    sd: float | None = None
    lag1: float | None = None
    lag1_p: float | None = None
    drift: float | None = None
    drift_interval: Interval | None = None
    drift_p: float | None = None
    qq: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()


def distribution(values: Values) -> dict[str, Distribution]:
    """Describes each environment; its values are in run order, NaN where one is missing."""
    return {name: describe(name, series) for name, series in values.items()}


def describe(name: str, series: Sequence[float]) -> Distribution:
    """Describes the values of one environment."""
    order = tuple((at, float(v)) for at, v in enumerate(series, start=1) if not math.isnan(v))
    missing = len(series) - len(order)
    kept = np.array([value for _, value in order])
    notes = []
    quantiles = {q: _quantile(kept, q) for q in QUANTILES}
    unknown = [f"{q * 100:g}" for q, value in quantiles.items() if value is None]
    if unknown:
        notes.append(f"no quantile of {', '.join(unknown)} % from {kept.size} values")
    plain = Distribution(name, int(kept.size), missing, order, quantiles, notes=tuple(notes))
    try:
        positive(series, name)
        if kept.size < 3:
            raise Refused(f"{name} has fewer than three values")
        spread(kept, name)
    except Refused as why:
        mean = float(np.mean(kept)) if kept.size else None
        return Distribution(
            name, plain.count, missing, order, quantiles, mean=mean, notes=(*notes, str(why))
        )
    return _moving(plain, kept)


def _quantile(kept: Floats, q: float) -> float | None:
    """Returns a quantile, if the sample reaches as far: at least one value is expected beyond."""
    if kept.size == 0 or kept.size * min(q, 1 - q) < 1 - 1e-9:
        return None
    return float(np.quantile(kept, q))


def _moving(plain: Distribution, kept: Floats) -> Distribution:
    """Adds what needs order and spread: lag-1 correlation, drift, Q-Q."""
    logs = np.log(kept)
    at = np.array([block for block, _ in plain.order], dtype=np.float64)
    line = stats.linregress(at, logs)
    length = float(at[-1] - at[0])
    half = float(stats.t.ppf(0.975, kept.size - 2)) * float(line.stderr)
    ends = [math.expm1((float(line.slope) + side) * length) for side in (-half, half)]
    lag1 = _lag1(at, logs)
    theory, observed = stats.probplot(logs, fit=False)
    return Distribution(
        plain.environment,
        plain.count,
        plain.missing,
        plain.order,
        plain.quantiles,
        mean=float(np.mean(kept)),
        sd=float(np.std(kept, ddof=1)),
        lag1=lag1,
        # Under independence r is normal with the deviation 1/sqrt(n) (Bartlett 1946).
        lag1_p=None if lag1 is None else float(2 * stats.norm.sf(abs(lag1) * math.sqrt(kept.size))),
        drift=math.expm1(float(line.slope) * length),
        drift_interval=Interval(0.95, ends[0], ends[1]),
        drift_p=float(line.pvalue),
        qq=tuple(zip(theory.tolist(), observed.tolist(), strict=True)),
        notes=plain.notes,
    )


def _lag1(at: Floats, logs: Floats) -> float | None:
    """Returns the correlation of neighbours; blocks next to a missing one have none."""
    off = logs - logs.mean()
    next_to = np.diff(at) == 1
    if not next_to.any():
        return None
    products = (off[:-1] * off[1:])[next_to]
    return float(products.sum() / (off**2).sum())
