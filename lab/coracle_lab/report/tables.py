"""The tables of a figure: text for the page, full numbers for CSV files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coracle_lab import stats
from coracle_lab.figures.units import title
from coracle_lab.figures.values import levels_in_order
from coracle_lab.report import numbers
from coracle_lab.report.judged import Judged
from coracle_lab.report.screened import NOT_TRUSTED
from coracle_lab.report.written import written
from coracle_lab.stats import Comparison, Mixed


@dataclass(frozen=True)
class Table:
    """A table of text; the first `words` columns are words, the others numbers."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    emphasised: int | None = None
    """The column that is read first: the verdict."""


@dataclass(frozen=True)
class Shown:
    """What decides how values are shown."""

    base: str
    trusted: bool
    rates: frozenset[str]
    beside: Mapping[str, str]

    def is_rate(self, response: str) -> bool:
        """Tells whether larger values of a response are better."""
        return response.partition("@")[0] in self.rates

    def verdict(self, comparison: Comparison) -> str:
        """Returns the verdict with what is beside it; none where A/A fails."""
        text = comparison.verdict
        if not self.trusted and comparison.ratio is not None:
            text = NOT_TRUSTED
        more = self.beside.get(comparison.environment)
        return f"{text} ({more})" if more else text


def places(judged: Sequence[Judged]) -> dict[int, str]:
    """Returns where each of them is, by identity: response and levels, as far as they differ."""
    several = len({one.response.partition("@")[0] for one in judged}) > 1
    found = {}
    for one in judged:
        key = one.response.partition("@")[2]
        parts = [title(one.response)] if several else ([f"@ {key}"] if key else [])
        parts += [levels(one)] if one.cell.levels else []
        found[id(one)] = ", ".join(parts)
    return found


def few(judged: Sequence[Judged], named: Sequence[str], at_most: int) -> list[Judged]:
    """Returns what tables of the page have of a figure: all, or of long series some keys.

    These are the responses that the design names, and the first and the last key of each series
    of which it names none.
    """
    if sum(len(one.runs) for one in judged) <= at_most:
        return list(judged)
    series: dict[str, list[str]] = {}
    for one in judged:
        keys = series.setdefault(one.response.partition("@")[0], [])
        if one.response not in keys:
            keys.append(one.response)
    kept: set[str] = set()
    for keys in series.values():
        kept.update([key for key in keys if key in named] or (keys[0], keys[-1]))
    return [one for one in judged if one.response in kept]


def levels(one: Judged) -> str:
    """Returns the levels of a cell as text; a case is named without the word."""
    return ", ".join(
        level if name == "case" else f"{name} {level}" for name, level in one.cell.levels.items()
    )


def _comparisons(judged: Sequence[Judged]) -> Iterator[tuple[Judged, Comparison]]:
    for one in judged:
        for comparison in one.compared:
            yield one, comparison


def verdicts(judged: Sequence[Judged], shown: Shown) -> Table:
    """Returns the main table: medians, ratios with both intervals, p values, verdicts."""
    rows = []
    where = places(judged)
    for one in judged:
        for name, values in one.runs.items():
            middle = statistics.median(values) if values else math.nan
            found = one.of(name)
            ratios = found.ratio_intervals if found is not None else ()
            verdict = "base" if name == shown.base else "no run of it"
            rows.append((
                name,
                where[id(one)],
                shown.verdict(found) if found is not None else verdict,
                str(len(values)),
                numbers.quantity(one.response, middle),
                "1" if name == shown.base else numbers.ratio(found.ratio if found else None),
                numbers.span(ratios, 0.95),
                numbers.span(ratios, 0.997),
                numbers.p(found.holm_p if found else None),
                numbers.p(found.tost_p if found else None),
            ))  # fmt: skip
    head = (
        "environment", "where", "verdict", "n", "median", "ratio", "95 %", "99.7 %",
        "p (t, Holm)", "p (TOST)",
    )  # fmt: skip
    return Table("Ratios to the base, and verdicts", head, tuple(rows), 3, 2)


def beside(judged: Sequence[Judged], shown: Shown) -> Table:
    """Returns what is computed beside the verdict and decides nothing."""
    rows = []
    where = places(judged)
    joint = {id(one): _joint(one, shown) for one in judged}
    for one, found in _comparisons(judged):
        if found.ratio is None:
            continue
        difference: tuple[str, str] = (numbers.NONE, numbers.NONE)
        if not shown.is_rate(one.response):
            difference = (
                numbers.quantity(one.response, found.difference),
                numbers.quantities(one.response, found.difference_intervals, 0.95),
            )
        rows.append((
            found.environment,
            where[id(one)],
            numbers.ratio(found.hodges_lehmann),
            numbers.span(found.hodges_lehmann_intervals, 0.95),
            numbers.span(found.hodges_lehmann_intervals, 0.997),
            f"{numbers.p(found.rank_p)} ({found.rank_test})",
            numbers.p(found.permutation_p),
            numbers.p(joint[id(one)].get(found.environment)),
            numbers.span(found.bootstrap_intervals, 0.95),
            numbers.span(found.bootstrap_intervals, 0.997),
            numbers.fixed(found.cliffs_delta, 2),
            *difference,
        ))  # fmt: skip
    head = (
        "environment", "where", "Hodges-Lehmann", "95 %", "99.7 %", "p (ranks)", "p (permutation)",
        "p (Dunnett)",
        "bootstrap 95 %", "99.7 %", "Cliff's δ", "difference", "95 %",
    )  # fmt: skip
    return Table("Beside the verdict: other estimates and tests, which decide nothing",
                 head, tuple(rows), 2)  # fmt: skip


def _joint(one: Judged, shown: Shown) -> Mapping[str, float | None]:
    """Returns the p values of Dunnett's test, which is for runs without blocks."""
    if one.cell.paired or shown.base not in one.cell.values:
        return {}
    return {found.environment: found.p for found in stats.dunnett(one.cell.values, shown.base)}


def notes(judged: Sequence[Judged]) -> list[str]:
    """Returns why something is missing in the tables, each reason once, with whose it is."""
    found: dict[str, list[str]] = {}
    for _, comparison in _comparisons(judged):
        for note in comparison.notes:
            found.setdefault(note, []).append(comparison.environment)
    result = []
    for note, names in found.items():
        different = list(dict.fromkeys(names))
        everywhere = len(names) == sum(len(one.compared) for one in judged)
        result.append(note if everywhere else f"{note}: {', '.join(different)}")
    return result


def as_in_paper(judged: Sequence[Judged], shown: Shown) -> Table:
    """Returns the papers' statistics."""
    rows = []
    where = places(judged)
    for one in judged:
        if shown.base not in one.runs:
            continue
        views = stats.as_in_paper(one.runs, shown.base, shown.is_rate(one.response))
        for name, view in views.items():
            masked, response = view.masked, one.response
            eq1 = counts = numbers.NONE
            # A smaller rate is slower, and a smaller time is faster.
            of = " (of rates)" if shown.is_rate(response) else ""
            if masked is not None:
                spread, error = (numbers.fixed(v, 4) for v in (masked.spread, masked.error))
                eq1 = f"{masked.ratio:.4f} ± {spread} (of means ± {error})"
                counts = f"{masked.masked} of it, {masked.masked_base} of {shown.base}"
            rows.append((
                name,
                where[id(one)],
                str(view.count),
                numbers.quantity(response, view.mean),
                numbers.quantity(response, view.bar),
                numbers.NONE if name == shown.base else numbers.percent(view.overhead) + of,
                eq1 + (of if masked is not None else ""),
                counts,
                numbers.quantity(response, view.best),
                numbers.ratio(view.best_ratio),
                numbers.quantity(response, view.first),
                numbers.quantity(response, view.mean_without_first),
            ))  # fmt: skip
    head = (
        "environment", "where", "n", "mean", "± 3 s/√n", "overhead of means", "ratio by Eq. 1",
        "masked", "best of three", "its ratio", "first run", "mean without it",
    )  # fmt: skip
    return Table("As in the papers: their statistics, which decide nothing", head, tuple(rows), 2)


def distributions(judged: Sequence[Judged]) -> Table:
    """Returns quantiles, drift and correlation of each environment's runs."""
    rows = []
    where = places(judged)
    for one in judged:
        for name, found in stats.distribution(one.runs).items():
            quantiles = [numbers.quantity(one.response, q) for q in found.quantiles.values()]
            drift = numbers.as_percent(found.drift)
            if found.drift_interval is not None:
                low, high = found.drift_interval.low, found.drift_interval.high
                drift += f" ({numbers.as_percent(low)} to {numbers.as_percent(high)})"
            rows.append((
                name,
                where[id(one)],
                str(found.count),
                *quantiles,
                numbers.quantity(one.response, found.sd),
                drift,
                numbers.p(found.drift_p),
                numbers.fixed(found.lag1, 2),
                numbers.p(found.lag1_p),
            ))  # fmt: skip
    head = (
        "environment", "where", "n", "5 %", "25 %", "median", "75 %", "95 %", "99 %", "s",
        "drift over the run (95 %)", "p", "lag-1 correlation", "p",
    )  # fmt: skip
    return Table("Distribution: quantiles, drift, and what neighbouring runs have in common",
                 head, tuple(rows), 2)  # fmt: skip


def mixed(name: str, fit: Mixed, environments: Sequence[str]) -> Table:
    """Returns the ratios of the mixed model, cell by cell."""
    cells = levels_in_order([effect.ranks for effect in fit.effects])
    effects = sorted(
        fit.effects, key=lambda one: (cells.index(one.ranks), environments.index(one.environment))
    )
    rows = [
        (
            effect.environment,
            effect.ranks or numbers.NONE,
            numbers.ratio(effect.ratio),
            numbers.span(effect.intervals, 0.95),
            numbers.span(effect.intervals, 0.997),
            numbers.p(effect.p),
        )
        for effect in effects
    ]
    head = ("environment", "where", "ratio", "95 %", "99.7 %", "p")
    return Table(f"Mixed model of {title(name)}", head, tuple(rows), 2)


def statistics_csv(judged: Sequence[Judged], shown: Shown) -> str:
    """Returns all comparisons with all digits, as CSV."""
    lines: list[dict[str, object]] = []
    for one, found in _comparisons(judged):
        line: dict[str, object] = {"response": one.response}
        told: dict[str, object] = {
            "environment": found.environment,
            "base": found.base,
            "margin": found.margin,
            "paired": found.paired,
            "verdict": shown.verdict(found),
            "blocks": found.blocks,
            "missing": found.missing,
            "ratio": found.ratio,
            **numbers.limits("ratio", found.ratio_intervals),
            "t_p": found.t_p,
            "holm_p": found.holm_p,
            "tost_p": found.tost_p,
            "hodges_lehmann": found.hodges_lehmann,
            **numbers.limits("hodges_lehmann", found.hodges_lehmann_intervals),
            "rank_test": found.rank_test,
            "rank_p": found.rank_p,
            "permutation_p": found.permutation_p,
            **numbers.limits("bootstrap", found.bootstrap_intervals),
            "cliffs_delta": found.cliffs_delta,
            "difference": "" if shown.is_rate(one.response) else found.difference,
            **numbers.limits("difference", found.difference_intervals),
            "sd_of_log_ratio": found.sd_of_log_ratio,
            "notes": "; ".join(found.notes),
        }
        # A factor may have the name of a column.
        line |= {
            f"factor.{name}" if name in told or name == "response" else name: level
            for name, level in one.cell.levels.items()
        }
        # Seven digits are more than any interval needs.
        lines.append({
            name: f"{value:.7g}" if isinstance(value, float) else value
            for name, value in (line | told).items()
        })  # fmt: skip
    return written(lines)
