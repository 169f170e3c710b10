"""Makes the values of figures from what was judged: which factor is x, and what makes facets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coracle_lab.figures.values import (
    ENVIRONMENT,
    Cloud,
    Facet,
    Picture,
    Ratio,
    View,
    finite,
    levels_in_order,
)
from coracle_lab.report.judged import Judged
from coracle_lab.stats import Comparison

FACETS_AT_MOST = 6
"""A figure with more facets than this becomes several."""
ALONE = ("split", "series", "scaling")
"""Layouts whose x is not the environment."""


@dataclass(frozen=True)
class Wanted:
    """How something is to be drawn."""

    layout: str
    base: str
    environments: tuple[str, ...]
    x: str | None = None
    panels: str | None = None
    series: str = "size"
    over: frozenset[str] = field(default_factory=frozenset)
    view: View = "median"
    rates: tuple[str, ...] = ()


def pictures(judged: Sequence[Judged], wanted: Wanted) -> list[Picture]:
    """Returns one picture for each response (a series is one), more where facets are many."""
    if wanted.layout == "split":
        return _chunks(_split(judged, wanted))
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(one.response.partition("@")[0], []).append(one)
    return [
        picture
        for name, group in groups.items()
        for picture in _chunks(_picture(name, group, wanted))
    ]


def _chunks(picture: Picture) -> list[Picture]:
    """Returns pictures of a few facets each."""
    count = math.ceil(len(picture.facets) / FACETS_AT_MOST)
    size = math.ceil(len(picture.facets) / max(1, count))
    return [
        Picture(**{**vars(picture), "facets": picture.facets[at : at + size]})
        for at in range(0, len(picture.facets), max(1, size))
    ]


def _x_of(one: Judged, x_name: str, series: str) -> str:
    key = one.response.partition("@")[2]
    if x_name == series and key:
        return key
    return one.cell.levels.get(x_name, "")


def _x_name(judged: Sequence[Judged], wanted: Wanted) -> str:
    """Returns the name of the x axis: the asked factor, the key of a series, or environments."""
    factors = {name for one in judged for name in one.cell.levels}
    keyed = any("@" in one.response for one in judged)
    if wanted.x is not None and wanted.x in factors:
        return wanted.x
    if keyed:
        return wanted.series
    if wanted.layout in ALONE:
        return next((name for name in ("ranks", "threads") if name in factors), ENVIRONMENT)
    return ENVIRONMENT


def _facet_title(one: Judged, x_name: str, wanted: Wanted) -> str:
    """Returns the levels of all factors but x, the one of the panels first."""
    levels = [(name, level) for name, level in one.cell.levels.items() if name != x_name]
    levels.sort(key=lambda pair: pair[0] != wanted.panels)
    key = one.response.partition("@")[2]
    parts = [level if name == "case" else f"{name} {level}" for name, level in levels]
    if key and x_name != wanted.series:
        parts.append(f"{wanted.series} {key}")
    return ", ".join(parts)


def _picture(name: str, group: Sequence[Judged], wanted: Wanted) -> Picture:
    x_name = _x_name(group, wanted)
    facets: dict[str, list[Cloud]] = {}
    for one in group:
        clouds = facets.setdefault(_facet_title(one, x_name, wanted), [])
        for environment in wanted.environments:
            if one.runs.get(environment):
                x = environment if x_name == ENVIRONMENT else _x_of(one, x_name, wanted.series)
                clouds.append(_cloud(one, environment, x, wanted))
    xs = [cloud.x for clouds in facets.values() for cloud in clouds]
    return Picture(
        base=wanted.base,
        environments=_present(facets, wanted),
        x_name=x_name,
        xs=levels_in_order(xs),
        response=name,
        facets=tuple(Facet(title, tuple(clouds)) for title, clouds in facets.items() if clouds),
        over=wanted.over if x_name == "ranks" else frozenset(),
        view=wanted.view,
        rate=name in wanted.rates,
    )


def _present(facets: Mapping[str, Sequence[Cloud]], wanted: Wanted) -> tuple[str, ...]:
    there = {cloud.environment for clouds in facets.values() for cloud in clouds}
    return tuple(name for name in wanted.environments if name in there)


def _cloud(one: Judged, environment: str, x: str, wanted: Wanted) -> Cloud:
    comparison = one.of(environment)
    return Cloud(
        environment,
        x,
        tuple(one.runs[environment]),
        _ratio(one, environment, comparison, wanted),
        _single_ratios(one, environment, wanted.base),
    )


def _ratio(
    one: Judged, environment: str, comparison: Comparison | None, wanted: Wanted
) -> Ratio | None:
    """Returns the ratio that is drawn: the lab's with its intervals, or that of the means."""
    if environment == wanted.base or wanted.base not in one.cell.values:
        return None
    if wanted.view == "mean":
        own, base = (finite(one.cell.values[name]) for name in (environment, wanted.base))
        if not own or not base or not statistics.fmean(base):
            return None
        return Ratio(statistics.fmean(own) / statistics.fmean(base))
    if comparison is None or comparison.ratio is None:
        return None
    limits = {found.level: (found.low, found.high) for found in comparison.ratio_intervals}
    return Ratio(comparison.ratio, limits.get(0.95), limits.get(0.997))


def _single_ratios(one: Judged, environment: str, base: str) -> tuple[float, ...]:
    """Returns the ratio of each block, or of each run to the base's median."""
    if environment == base or base not in one.cell.values:
        return ()
    own, native = one.cell.values[environment], one.cell.values[base]
    if one.cell.paired:
        pairs = zip(own, native, strict=False)
        every = [a / b for a, b in pairs if a > 0 and b > 0]
    else:
        known = [value for value in finite(native) if value > 0]
        middle = statistics.median(known) if known else math.nan
        every = [value / middle for value in finite(own) if value > 0]
    return tuple(finite(every))


def _split(judged: Sequence[Judged], wanted: Wanted) -> Picture:
    """Returns the picture of the parts of the time."""
    x_name = _x_name(judged, wanted)
    facets: dict[str, list[Cloud]] = {}
    parts = []
    for one in judged:
        part = one.response.removesuffix("_s")
        parts.append(part)
        clouds = facets.setdefault(_facet_title(one, x_name, wanted), [])
        for environment in wanted.environments:
            if one.runs.get(environment):
                x = environment if x_name == ENVIRONMENT else _x_of(one, x_name, wanted.series)
                clouds.append(Cloud(environment, x, tuple(one.runs[environment]), part=part))
    return Picture(
        base=wanted.base,
        environments=_present(facets, wanted),
        x_name=x_name,
        xs=levels_in_order([cloud.x for clouds in facets.values() for cloud in clouds]),
        response="time_s",
        facets=tuple(Facet(title, tuple(clouds)) for title, clouds in facets.items() if clouds),
        over=wanted.over if x_name == "ranks" else frozenset(),
        parts=tuple(dict.fromkeys(parts)),
    )
