"""Compares a model with measured points that it was not fitted to, and words what it may claim.

The error is the largest one that was seen, for times and for ratios to the base; it is told as
max(model / measured, measured / model) - 1, so that half and double are equally far off. A claim
about a ratio is the bootstrap interval widened by the error on both sides: by the error of ratios
where ratios were compared, and beyond by the larger one of both, because what is missing in both
times can cancel in a ratio at few ranks and not at many. If the widened interval holds 1, or if
the error is unknown, the words are that the model cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coracle_lab.model.sample import Sample
from coracle_lab.stats.data import Interval


@dataclass(frozen=True)
class Checked:
    """A modelled value beside the measured one."""

    environment: str
    x: int
    model: float
    measured: float

    @property
    def relative(self) -> float:
        """How far the model is off, as a fraction of what was measured."""
        return self.model / self.measured - 1

    @property
    def off(self) -> float:
        """The same without a sign: 1 if the model is half or double."""
        return max(self.model / self.measured, self.measured / self.model) - 1


@dataclass(frozen=True)
class Error:
    """What is known about the error of a model.

    `times` and `ratios` are the points it was compared at; `reached` is the largest x of them.
    """

    times: tuple[Checked, ...] = ()
    ratios: tuple[Checked, ...] = ()

    @property
    def largest(self) -> float | None:
        """The largest error of a value, or None if no point was compared."""
        return max((one.off for one in self.times), default=None)

    @property
    def largest_ratio(self) -> float | None:
        """The largest error of a ratio to the base, or None."""
        return max((one.off for one in self.ratios), default=None)

    @property
    def reached(self) -> int | None:
        """The largest x at which a ratio was compared."""
        return max((one.x for one in self.ratios), default=None)

    def of_claims(self, x: int) -> float | None:
        """Returns the error that a claim about a ratio at x is widened by, or None."""
        reached, error = self.reached, self.largest_ratio
        if reached is None or error is None:
            return None
        return error if x <= reached or self.largest is None else max(error, self.largest)

    def words(self, base: str) -> str:
        """Returns the sentence that is printed with every model."""
        number = len(self.times) or len(self.ratios)
        if not number:
            return (
                "error of the model: unknown, because no point was measured that it was not"
                " fitted to"
            )
        said = []
        if self.largest is not None:
            said.append(f"of times: at most {told(self.largest)}")
        ratio = self.largest_ratio
        of_ratio = "unknown" if ratio is None else f"at most {told(ratio)}"
        said.append(f"of ratios to {base}: {of_ratio}")
        return (
            f"error of the model on {number} measured point{'s' if number > 1 else ''} that it was"
            f" not fitted to: {'; '.join(said)}"
        )


def compared(
    modelled: Mapping[tuple[str, int], float],
    measured: Mapping[tuple[str, int], Sample],
    base: str,
) -> Error:
    """Returns the error at the points (environment, x) that are both modelled and measured."""
    means = {key: float(np.mean(one.values)) for key, one in measured.items()}
    keys = [key for key in modelled if key in means]
    times = [Checked(*key, modelled[key], means[key]) for key in keys]
    ratios = []
    for name, x in keys:
        other = (base, x)
        if name != base and other in means and other in modelled:
            model = modelled[name, x] / modelled[other]
            ratios.append(Checked(name, x, model, means[name, x] / means[other]))
    return Error(tuple(times), tuple(ratios))


def told(error: float) -> str:
    """Returns an error in words: in percent, or as a factor from a half on."""
    return f"{error * 100:.1f} %" if error < 0.5 else f"a factor {1 + error:.2f}"


def percent(ratio: float) -> float:
    """Returns a ratio as a difference in percent."""
    return (ratio - 1) * 100


def claim(interval: Interval | None, error: float | None, is_model: bool = True) -> str:
    """Returns what may be said about a ratio to the base, in fixed words.

    `is_model` is False for a ratio of measured values alone; its error is 0.
    """
    prefix, undecided = ("model: ", "model cannot tell") if is_model else ("", "undecided")
    if error is None:
        return f"{undecided}: its error is unknown"
    if interval is None:
        return f"{undecided}: too few values for an interval"
    if interval.holds(1.0):
        return f"{undecided}: the interval holds 1"
    low, high = interval.low / (1 + error), interval.high * (1 + error)
    if low <= 1 <= high:
        return f"{undecided}: its error, {told(error)}, is as large as the effect"
    if low > 1:
        return f"{prefix}slower by {percent(low):.1f} to {percent(high):.1f} %"
    return f"{prefix}faster by {-percent(high):.1f} to {-percent(low):.1f} %"


def beyond(xs: Sequence[int], error: Error) -> str | None:
    """Returns the note about points that lie beyond all that were compared."""
    reached = error.reached
    far = [x for x in xs if reached is not None and x > reached]
    if not far:
        return None
    return (
        f"nothing beyond {reached} ranks was compared: the error of the model at"
        f" {', '.join(map(str, far))} can be larger than what is told here"
    )
