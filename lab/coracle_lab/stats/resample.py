"""Bootstrap over blocks and permutation within blocks, with a kept seed.

Both resample what was randomised: whole blocks are drawn with replacement, and within a block the
two environments are exchanged. Without blocks, values are drawn and exchanged within and between
the groups. Equal seeds give equal results.

The bootstrap is printed beside the t interval and decides nothing. In the simulations of the tests
(30 blocks, 200 experiments, 95 %) it covers 91 % with normal noise, 85 % where 8 % of the runs are
1.4 times slower, and 81 % with disturbances that last some runs: from 30 blocks BCa takes the
skewness of a tail for that of the mean. The t interval covers 92 to 97 % in all of them.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from coracle_lab.stats.data import LEVELS, Floats, Interval

RESAMPLES = 10_000
FEWEST = {0.95: 8, 0.997: 30}
"""Fewer blocks than these give no bootstrap interval of the level: its tails would be noise."""


def bca(samples: tuple[Floats, ...], seed: int) -> tuple[dict[float, Interval], list[str]]:
    """Returns the BCa intervals (Efron 1987) of a mean, or of the difference of two.

    The second value says which levels are refused, and why.
    """
    found: dict[float, Interval] = {}
    refused: list[str] = []
    n = min(sample.size for sample in samples)
    result = None
    for level in LEVELS:
        if n < FEWEST[level]:
            refused.append(
                f"no bootstrap interval of {level * 100:g} % below {FEWEST[level]} blocks"
            )
            continue
        with warnings.catch_warnings():
            # Degenerate data: the interval is NaN, which is looked at below.
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            result = stats.bootstrap(
                samples,
                _mean if len(samples) == 1 else _difference,
                n_resamples=RESAMPLES if result is None else 0,
                bootstrap_result=result,
                confidence_level=level,
                method="BCa",
                vectorized=True,
                rng=np.random.Generator(np.random.PCG64(seed)),
            )
        low, high = result.confidence_interval
        if np.isnan(low) or np.isnan(high):
            refused.append(f"the bootstrap gives no interval of {level * 100:g} %")
        else:
            found[level] = Interval(level, float(low), float(high))
    return found, refused


def _mean(sample: Floats, axis: int = -1) -> NDArray[np.float64]:
    return np.asarray(np.mean(sample, axis=axis))


def _difference(one: Floats, other: Floats, axis: int = -1) -> NDArray[np.float64]:
    return np.asarray(np.mean(one, axis=axis) - np.mean(other, axis=axis))


def permutation_p(one: Floats, other: Floats, paired: bool, seed: int) -> float:
    """Returns the two-sided p of the permutation test of a difference of means.

    All permutations are tried where there are no more than `RESAMPLES`; else that many, drawn.
    """
    result = stats.permutation_test(
        (one, other),
        _difference,
        permutation_type="samples" if paired else "independent",
        n_resamples=RESAMPLES,
        vectorized=True,
        batch=1000,
        rng=np.random.Generator(np.random.PCG64(seed)),
    )
    return float(result.pvalue)
