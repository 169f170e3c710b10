"""One figure of the page: pictures, provenance, tables, what was repeated, failed and left out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coracle_lab.campaign.model import Figure
from coracle_lab.design.parse import AGAIN
from coracle_lab.errors import LabError
from coracle_lab.report import (
    draw,
    effects,
    files,
    markup,
    modelled,
    numbers,
    oracle,
    order,
    published,
    study,
    tables,
)
from coracle_lab.report.analysis import Analysis, analyse
from coracle_lab.report.judged import Judged
from coracle_lab.report.pictures import Wanted, pictures
from coracle_lab.report.summary import Entry
from coracle_lab.report.tables import Shown, Table
from coracle_lab.run import records
from coracle_lab.run.records import Record
from coracle_lab.run.store import Store
from coracle_lab.stats import Guard

TOLD_AT_MOST = 150
"""A table of the page has more lines than this only where no series makes it long."""
FAILED_AT_MOST = 20
"""So many failed rows are told one by one; all are in the records."""


@dataclass(frozen=True)
class Section:
    """A figure with the records that it is drawn from; `missing` says why there are none.

    `form` is that of a model, which is made of the records of others.
    """

    figure: Figure
    store: Store | None
    missing: str | None = None
    form: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Made:
    """A section as HTML, what the summary says of it, and the red line if A/A fails.

    `alone` is the section on a page without files beside it: it has no picture and links to none.
    """

    html: str
    entry: Entry
    alarm: str | None = None
    alone: str = ""


def made(section: Section, into: Path, study_files: Path | None) -> Made:
    """Writes the files of a section, and returns its HTML."""
    figure = section.figure
    name = markup.slug(figure.id)
    if section.form is not None:
        body = modelled.html(section.form, figure, into, name)
        words = textwrap.shorten(f"a model: {section.form['error']['words']}", 200)
        alone = _frame(name, figure, modelled.alone(section.form, figure))
        return Made(_frame(name, figure, body), Entry(name, _name(figure), told=words), alone=alone)
    why = _why_missing(section)
    if section.store is None or why is not None:
        note = markup.paragraph(f"Not made: {why}", "note")
        return Made(
            _frame(name, figure, note + _study(figure, into, name, study_files)),
            Entry(name, _name(figure), missing=why),
            alone=_frame(name, figure, note),
        )
    found = analyse(section.store, figure.responses)
    shown = _shown(found)
    files.write(found, shown, into / name)
    alarm = None
    if not found.trusted:
        alarm = f"{_name(figure)}: {next(one.text for one in _every(found) if not one.trusted)}"
    guard = markup.paragraph(alarm, "alarm") if alarm else _guards(found)
    verdicts = _verdicts(found, figure, shown)
    end = _rows(found) + _shows_not(found, figure)
    body = "".join((
        guard,
        _pictures(found, figure, shown, into, name),
        verdicts,
        markup.facts([*_provenance(found), ("files", files.links(name))]),
        _study(figure, into, name, study_files),
        _tables(found, shown),
        _order(found, name, _name(figure)),
        end,
    ))  # fmt: skip
    alone = "".join((guard, verdicts, markup.facts(_provenance(found)), end))
    over = bool(found.over())
    entry = Entry(
        name,
        _name(figure),
        found.judged,
        shown,
        oversubscribed=over,
        screened=found.screened,
        margin=found.design.margin,
    )
    return Made(_frame(name, figure, body), entry, alarm, _frame(name, figure, alone))


def _why_missing(section: Section) -> str | None:
    """Returns why a section has nothing to show; None if it has records of rows."""
    given = section.missing or section.figure.reason
    if section.store is None:
        return given or "there are no records of it"
    path = section.store.directory / "records.jsonl"
    if any(record.row for record in records.read(path, section.store.digest).records):
        return None
    return given or "it has no records of rows"


def _name(figure: Figure) -> str:
    return figure.title if figure.title.startswith(figure.id) else f"{figure.id} {figure.title}"


def _frame(name: str, figure: Figure, body: str) -> str:
    of = markup.paragraph(figure.of, "soft") if figure.of else ""
    return f'<section id="{name}"><h2>{markup.text(_name(figure))}</h2>{of}{body}</section>'


def _shown(found: Analysis) -> Shown:
    application = found.design.application
    rates = {
        one.partition("@")[0]
        for one in found.responses
        if application is not None and application.is_rate(one)
    }
    return Shown(found.design.base, found.trusted, frozenset(rates), found.beside)


def _every(found: Analysis) -> list[Guard]:
    """Returns the guards of all cells, or of all responses of a fraction."""
    guards = [one.guard for one in found.judged if one.guard is not None]
    return guards + [one.screen.guard for one in found.screened]


def _guards(found: Analysis) -> str:
    """Returns what A/A says: one line if all cells say the same kind."""
    texts = [one.text for one in _every(found)]
    if len(texts) > 1 and not found.screened:
        texts = [f"A/A holds in all {len(texts)} cells"]
    return "".join(markup.paragraph(text, "small soft") for text in texts)


# Figures.


def _pictures(found: Analysis, figure: Figure, shown: Shown, into: Path, name: str) -> str:
    if found.screened:
        return effects.pictures(found.screened, into, name, _name(figure))
    application = found.design.application
    wanted = Wanted(
        layout=figure.layout,
        base=found.design.base,
        environments=found.environments(),
        x=figure.x,
        panels=figure.panels,
        series=(application.series if application is not None else None) or "size",
        over=found.over(),
        rates=tuple(sorted(shown.rates)),
    )
    about = _name(figure)
    judged = found.split if figure.layout == "split" and found.split else found.judged
    html = ""
    if judged is found.split or figure.layout != "split":
        drawn = [one for one in pictures(judged, wanted) if one.facets]
        html = draw.drawn(figure.layout, drawn, into, name, about)
    if found.split and figure.layout != "split":
        parts = Wanted(**{**vars(wanted), "layout": "split"})
        drawn = [one for one in pictures(found.split, parts) if one.facets]
        html += draw.drawn("split", drawn, into, name, about, vector=False)
    return html or markup.paragraph("No run has succeeded: there is nothing to draw.", "note")


def _study(figure: Figure, into: Path, name: str, study_files: Path | None) -> str:
    """Returns the overhead study's own measurements, if the figure names them and they are
    here."""
    if figure.oracle is None:
        return ""
    head = "<h3>The paper's own measurements</h3>"
    one = oracle.of_file(figure.oracle)
    if one is None:
        raise LabError(f"{figure.id}: the overhead study has no file {figure.oracle}")
    if study_files is None:
        return head + markup.paragraph(
            f"They are not here ({figure.oracle} of the overhead study); --oracle names their"
            " directory.",
            "small soft",
        )
    return head + study.html(study_files, one, into, f"{name}-paper")[0]


# Where it comes from.


def _provenance(found: Analysis) -> list[tuple[str, str]]:
    """Returns names and values; the values are HTML."""
    design = found.design
    blocks = len({record.block for record in found.every if record.block})
    kind = {"completely-randomised": "completely randomised", "blocks": "randomised blocks"}
    application = design.application
    command = " ".join(application.command) if application is not None else ""
    facts = [one["facts"] for one in found.sessions]
    return [
        ("date", markup.text(found.dates())),
        ("commit", markup.text(_each(one.get("commit") or "not a source tree" for one in facts))),
        ("seed", markup.text(design.seed)),
        ("machine", markup.text(_each(_machine(one) for one in facts) or "not recorded")),
        ("design", markup.text(f"{kind.get(design.kind, design.kind)}, {blocks} blocks,"
                               f" {len(found.store.rows)} rows, margin ±{design.margin * 100:g} %,"
                               f" digest {found.store.digest[:12]}")),
        ("sessions", markup.text(len({record.session for record in found.every}))),
        ("command", f"<code>{markup.text(command)}</code>"),
        ("versions", markup.text(_versions(found) or "not recorded")),
    ]  # fmt: skip


def _each(texts: Any) -> str:
    """Returns different texts, joined."""
    return "; ".join(dict.fromkeys(texts))


def _machine(facts: Any) -> str:
    machine, state = facts["machine"], facts["state"]
    cpus = len(facts["process"]["affinity"])
    virtual = ", virtual" if machine["virtual"] else ""
    return (
        f"{machine['cpu']} ({machine['architecture']}), {cpus} processors,"
        f" {machine['memory_bytes'] >> 30} GiB{virtual}, Linux {state['kernel']}"
    )


def _versions(found: Analysis) -> str:
    versions: dict[str, None] = {}
    for one in found.sessions:
        for name, version in one.get("environments", {}).items():
            if version:
                versions[f"{name}: {version}"] = None
    return "; ".join(versions)


# Tables.


def _told(found: Analysis) -> list[Judged]:
    return tables.few(found.judged, found.design.responses, TOLD_AT_MOST)


def _verdicts(found: Analysis, figure: Figure, shown: Shown) -> str:
    """Returns the main table, and the paper's numbers beside ours."""
    if found.screened:
        return effects.tables(found.screened, found.design)
    parts = ["<h3>Verdicts</h3>"]
    told = _told(found)
    main = tables.verdicts(told, shown)
    if len(told) < len(found.judged):
        parts.append(markup.paragraph(
            f"The tables have {len(told)} of {len(found.judged)} cells of the series; all are in"
            " statistics.csv.",
            "small soft",
        ))  # fmt: skip
    if len(main.rows) > markup.OPEN_AT_MOST:
        parts.append(markup.folded("Ratios and verdicts", [main]))
    else:
        parts.append(markup.table(main, cards=True))
    control = found.design.base + AGAIN
    count = sum(1 for one in found.judged for each in one.compared if each.environment != control)
    parts.append(markup.paragraph(
        f"Holm's correction is over the {count} comparisons of this figure; controls apart.",
        "small soft",
    ))  # fmt: skip
    if figure.published:
        parts.append(markup.table(published.table(figure.published, found.judged, shown), True))
    return "".join(parts)


def _tables(found: Analysis, shown: Shown) -> str:
    """Returns everything beside the verdicts; of a fraction it stands with them."""
    if found.screened:
        return ""
    told = _told(found)
    parts = ["<h3>Beside the verdicts</h3>"]
    parts.append(markup.folded(
        "Other estimates and tests", [tables.beside(told, shown), *_mixed(found)]
    ))  # fmt: skip
    words = [*tables.notes(found.judged), *_mixed_words(found)]
    parts.append(f'<div class="small soft">{markup.bullets(words)}</div>')
    parts.append(markup.folded("As in the papers", [tables.as_in_paper(told, shown)]))
    parts.append(markup.folded("Distribution", [tables.distributions(told)]))
    return "".join(parts)


def _order(found: Analysis, name: str, about: str) -> str:
    """Returns the order plot and the Q-Q plot of the runs, by the first response."""
    made = [record for record in found.every if record.row and record.outcome == "ok"]
    picture = order.picture(made, found.responses[0], found.environments(), found.design.base)
    if picture is None:
        return ""
    html = draw.inside(order.LAYOUT, picture, name, about)
    return f"<details><summary>Runs in their order</summary>{html}</details>"


def _mixed(found: Analysis) -> list[Table]:
    names = found.environments()
    return [tables.mixed(name, fit, names) for name, fit in found.mixed.items() if fit.effects]


def _mixed_words(found: Analysis) -> list[str]:
    said = []
    for name, fit in found.mixed.items():
        if fit.why:
            said.append(f"Mixed model of {name}: {fit.why}.")
            continue
        spread = [
            f"{what} {value * 100:.2g} %"
            for what, value in (
                ("sessions", fit.sd_session),
                ("blocks", fit.sd_block),
                ("runs within a block", fit.sd_residual),
            )
            if value is not None
        ]
        text = (
            f"Mixed model of {name}, {fit.blocks} blocks in {fit.sessions} session(s): deviation"
            f" between {', '.join(spread)}"
        )
        if fit.interaction_p is not None:
            text += f"; p that the ratios are the same in all cells: {numbers.p(fit.interaction_p)}"
        said.append("; ".join((text, *fit.notes)) + ".")
    return said


# Rows.


def _rows(found: Analysis) -> str:
    """Returns what was repeated, disturbed, failed and left out: all of it, nothing is deleted."""
    said = []
    rule = found.disturbed
    if rule.blocks:
        said.append(
            f"Disturbed blocks: {_list(rule.blocks)} (sentinel more than {rule.above * 100:g} %"
            f" above its session's lower quartile), of which {len(rule.repeated)} were repeated."
        )
    if rule.repeated:
        words = "; ".join(
            f"{text} ({', '.join(part for part in (response, cell) if part)})"
            for response, cell, text in rule.changed
        )
        words = words or "each verdict is of the same kind"
        said.append(
            f"Repeated blocks: {_list(rule.repeated)}. The tables are of the repetitions; with the"
            f" first attempts: {words}."
        )
    for record in found.failed[:FAILED_AT_MOST]:
        said.append(_failed(record))
    if len(found.failed) > FAILED_AT_MOST:
        said.append(f"{len(found.failed) - FAILED_AT_MOST} more rows have failed: see the records.")
    for name, missing, rows, why in found.left_out:
        said.append(f"Left out: {name}, {missing} of its {rows} rows: {why}.")
    for cell in found.design.left_out:
        levels = ", ".join(f"{name} {level}" for name, level in cell.levels.items())
        said.append(f"Left out by the design: {levels}: {cell.reason}.")
    if found.cut_lines:
        said.append(f"{found.cut_lines} cut lines of the records were ignored.")
    if not said:
        return "<h3>Rows</h3>" + markup.paragraph(
            "No block was disturbed or repeated, no row has failed, none is left out.", "small"
        )
    return f'<h3>Rows</h3><div class="small">{markup.bullets(said)}</div>'


def _list(numbers_: Sequence[int]) -> str:
    return ", ".join(map(str, numbers_))


def _failed(record: Record) -> str:
    levels = ", ".join(record.levels.values())
    return f"{record.outcome}: row {record.row} ({levels}), block {record.block}: {record.why}."


def _shows_not(found: Analysis, figure: Figure) -> str:
    parts = [markup.paragraph(figure.shows_not)]
    if found.notes:
        parts.append(markup.bullets(found.notes))
    return "<h3>What this does not show</h3>" + "".join(parts)
