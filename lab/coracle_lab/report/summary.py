"""The first thing on the page: what was found, in the words of the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coracle_lab.design.parse import AGAIN
from coracle_lab.report import markup, numbers
from coracle_lab.report.judged import Judged
from coracle_lab.report.screened import Screened
from coracle_lab.report.tables import Shown, places

EACH_AT_MOST = 24
"""So many comparisons are listed one by one; more are counted by kind."""
KINDS = ("equal", "slower", "faster", "more", "less", "undecided", "not", "no")
WORDS = {
    "equal": "equal",
    "slower": "slower",
    "faster": "faster",
    "more": "more",
    "less": "less",
    "undecided": "undecided",
    "not": "not trusted",
    "no": "no verdict",
}


@dataclass(frozen=True)
class Entry:
    """What the summary says of one figure. `missing` says why it is not there, `told` what stands
    in place of verdicts."""

    anchor: str
    name: str
    judged: tuple[Judged, ...] = ()
    shown: Shown | None = None
    missing: str | None = None
    told: str | None = None
    oversubscribed: bool = False
    screened: tuple[Screened, ...] = ()
    margin: float = 0.01


def summary(entries: Sequence[Entry]) -> str:
    """Returns the table of all figures, or of all comparisons if they are few."""
    count = sum(len(one.compared) for entry in entries for one in entry.judged)
    count += sum(len(one.screen.effects) for entry in entries for one in entry.screened)
    lines = [_each(entry) if count <= EACH_AT_MOST else _kinds(entry) for entry in entries]
    names: tuple[str, ...]
    if count <= EACH_AT_MOST:
        names = ("environment", "where", "verdict", "ratio", "95 %")
    else:
        names = ("figure", "verdicts")
    head = "".join(f'<th scope="col" class="w">{markup.text(name)}</th>' for name in names)
    return (
        '<table class="summary cards"><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _link(entry: Entry) -> str:
    over = " (oversubscribed)" if entry.oversubscribed else ""
    return markup.link(f"#{entry.anchor}", entry.name) + over


def _missing(entry: Entry, columns: int) -> str:
    words = markup.text(entry.told or f"not made: {entry.missing}")
    return (
        f'<tr><td class="w">{_link(entry)}</td><td class="w" colspan="{columns}">{words}</td></tr>'
    )


def _each(entry: Entry) -> str:
    """Returns one row for each comparison."""
    if entry.shown is None:
        return _missing(entry, 4)
    rows = []
    where = places(entry.judged)
    for one in entry.judged:
        at = ": ".join(part for part in (_link(entry), markup.text(where[id(one)])) if part)
        for found in one.compared:
            rows.append(
                f'<tr><td class="w">{markup.text(found.environment)}</td>'
                f'<td class="w" data-h="where">{at}</td>'
                f'<td class="w v">{markup.verdict(entry.shown.verdict(found))}</td>'
                f'<td class="w" data-h="ratio">{numbers.ratio(found.ratio)}</td>'
                f'<td class="w" data-h="95 %">{numbers.span(found.ratio_intervals, 0.95)}</td></tr>'
            )
    for effects in entry.screened:
        for effect in effects.screen.effects:
            words = markup.verdict(effects.verdict(effect))
            limits = numbers.span(effect.ratio_intervals, 0.95)
            rows.append(
                f'<tr><td class="w">{markup.text(effects.levels(effect))}</td>'
                f'<td class="w" data-h="where">{_link(entry)}</td><td class="w v">{words}</td>'
                f'<td class="w" data-h="ratio">{numbers.ratio(effect.ratio)}</td>'
                f'<td class="w" data-h="95 %">{limits}</td></tr>'
            )
    return "".join(rows)


def _kinds(entry: Entry) -> str:
    """Returns one row for a figure: which environments have verdicts of which kind."""
    if entry.shown is None:
        return _missing(entry, 1)
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    cells: dict[str, int] = {}
    for one in entry.judged:
        for comparison in one.compared:
            name = comparison.environment
            kind = entry.shown.verdict(comparison).split()[0].rstrip(":")
            ratios = found.setdefault(kind, {}).setdefault(name, [])
            ratios.append(comparison.ratio if comparison.ratio is not None else float("nan"))
            cells[name] = cells.get(name, 0) + 1
    for effects in entry.screened:
        for effect in effects.screen.effects:
            kind = effects.verdict(effect).split()[0].rstrip(":")
            ratio = effect.ratio if effect.ratio is not None else float("nan")
            found[kind].setdefault(effect.factor, []).append(ratio)
            cells[effect.factor] = cells.get(effect.factor, 0) + 1
    items = []
    for kind, names in found.items():
        if not names:
            continue
        margin = entry.margin
        words = f"equal within ±{margin * 100:g} % (TOST)" if kind == "equal" else WORDS[kind]
        text = ", ".join(_counted(name, ratios, cells[name]) for name, ratios in names.items())
        items.append(f"<li>{markup.verdict(words)}: {markup.text(text)}</li>")
    return f'<tr><td class="w">{_link(entry)}</td><td class="w"><ul>{"".join(items)}</ul></td></tr>'


def _counted(name: str, ratios: Sequence[float], cells: int) -> str:
    """Returns an environment with the number of its cells and the ratios there."""
    known = [value for value in ratios if value == value]
    parts = [f"{len(ratios)} of {cells}"] if cells > 1 else []
    if known and not name.endswith(AGAIN):
        low, high = (f"{value:.3f}" for value in (min(known), max(known)))
        parts.append(f"ratio {low}" if low == high else f"ratios {low} to {high}")
    return f"{name} ({', '.join(parts)})" if parts else name
