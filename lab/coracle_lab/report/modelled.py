"""A model on the page: drawn hatched and called model, with its error on what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coracle_lab.campaign.model import Figure
from coracle_lab.figures.values import ENVIRONMENT, Cloud, Facet, Picture, Ratio, levels_in_order
from coracle_lab.model import form as forms
from coracle_lab.report import draw, markup, numbers
from coracle_lab.report.tables import Table

Form = Mapping[str, Any]
EXPECTED = "expected"
"""What is drawn of the slowest of many starts; its median and its groups are in the table."""
LAYOUTS = {"law": "times", "tail": "times", "two-term": "ratios"}
CAPTIONS = {
    "law": (
        "(a) Hatched and called model: the law, from the lower to the upper end of its interval of"
        " 95 %. Marks: means of what was measured, which the law was not fitted to. (b) Overhead by"
        " the law alone."
    ),
    "tail": (
        "(a) The expected slowest of {x} starts. Hatched and called model: extrapolated, from the"
        " lower to the upper end of its interval of 95 %. Marks: computed from measured starts"
        " without a model. (b) Overhead, hatched where one of the two is a model."
    ),
    "two-term": (
        "Ratio to {base}. Hatched and called model: computed, from the lower to the upper end of"
        " the interval of 95 %. The other panels are measured."
    ),
}


def html(form: Form, figure: Figure, into: Path, name: str) -> str:
    """Writes the files of a model, and returns its HTML."""
    directory = into / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.json").write_text(forms.as_json(form), encoding="utf-8")
    (directory / "model.csv").write_text(forms.as_csv(form), encoding="utf-8")
    kind, about = form["model"], f"{figure.title} (model)"
    x = max((point["x"] for point in form["points"]), default=0)
    words = CAPTIONS[kind].format(base=form["base"], x=x)
    links = ", ".join(
        markup.link(f"{name}/{file}", text)
        for file, text in (("model.json", "model (JSON)"), ("model.csv", "model (CSV)"))
    )
    drawn = draw.drawn(LAYOUTS[kind], [picture(form)], into, name, about, words)
    return _body(form, figure, drawn, [("files", links)])


def alone(form: Form, figure: Figure) -> str:
    """Returns the HTML of a model on a page without files beside it."""
    return _body(form, figure, "", [])


def _body(form: Form, figure: Figure, drawn: str, links: Sequence[tuple[str, str]]) -> str:
    inputs = "; ".join(
        f"{one['name']} of {one['from']} ({' + '.join(one['responses'])})" for one in form["inputs"]
    )
    pairs = [
        ("model", markup.text(form["model"])),
        ("error", markup.text(form["error"]["words"])),
        ("inputs", markup.text(inputs)),
        *([("messages", markup.text(form["profile"]))] if form["profile"] else []),
        ("bootstrap", markup.text(f"{form['resamples']} draws, seed {form['seed']}")),
        *links,
    ]
    return "".join((
        markup.paragraph("This is a model, and no measurement.", "note"),
        drawn,
        markup.facts(pairs),
        markup.folded("The model's numbers", [table(form)]),
        f'<div class="small">{markup.bullets(form["words"])}</div>' if form["words"] else "",
        "<h3>What this does not show</h3>",
        markup.paragraph(figure.shows_not),
    ))  # fmt: skip


def _ends(point: Form, level: str, add: float = 0.0) -> tuple[float, float] | None:
    low, high = point[f"low{level}"], point[f"high{level}"]
    return None if low is None or high is None else (low + add, high + add)


def picture(form: Form) -> Picture:
    """Returns what is drawn of a model."""
    facets: dict[str, list[Cloud]] = {}
    effects = {
        (one["environment"], one["x"]): (one, _is_model(form, one)) for one in form["effects"]
    }
    by_environment = form["model"] == "tail"
    points = [
        point
        for point in form["points"]
        if point["y"] is not None and point.get("what", EXPECTED) == EXPECTED
    ]
    for point in points:
        title = _facet(form, point)
        x = point["environment"] if by_environment else str(point["x"])
        cloud = (_ratio if form["unit"] == "1" else _time)(point, x, effects)
        facets.setdefault(title, []).append(cloud)
    names = dict.fromkeys([form["base"], *(point["environment"] for point in points)])
    xs = [cloud.x for clouds in facets.values() for cloud in clouds]
    return Picture(
        base=form["base"],
        environments=tuple(names),
        x_name=ENVIRONMENT if by_environment else "ranks",
        xs=levels_in_order(xs),
        response="wall_s",
        facets=tuple(Facet(title, tuple(clouds)) for title, clouds in facets.items()),
    )


def _facet(form: Form, point: Form) -> str:
    if form["model"] == "two-term":
        return f"model, {point['bytes']} bytes" if point["kind"] == "model" else "measured"
    return ""


def _is_model(form: Form, effect: Form) -> bool:
    """Tells whether a ratio is that of a model: the law's always is, a tail's where it was
    fitted for the environment or for the base."""
    names = (effect["environment"], form["base"])
    return form["model"] != "tail" or any(
        one["kind"] == "model"
        and one["environment"] in names
        and one["x"] == effect["x"]
        and one.get("what", EXPECTED) == EXPECTED
        for one in form["points"]
    )


Effects = Mapping[tuple[str, int], tuple[Form, bool]]
"""(environment, x) → a ratio, and whether it is a model's."""


def _time(point: Form, x: str, effects: Effects) -> Cloud:
    """Returns the cloud of a time: a model's has the ends of its interval besides itself.

    A ratio of a model stands at the model's point alone, and one that was measured at the other.
    """
    is_model = point["kind"] == "model"
    ends = (_ends(point, "95") or ()) if is_model else ()
    effect, is_modelled = effects.get((point["environment"], point["x"]), ({}, False))
    values = (point["y"], *ends)
    if effect.get("y") is None or is_model != is_modelled:
        return Cloud(point["environment"], x, values, model=is_model)
    if is_model:
        ratios = (effect["y"], *(_ends(effect, "95") or ()))
        return Cloud(point["environment"], x, values, ratios=ratios, model=True)
    ratio = Ratio(effect["y"], *(_ends(effect, level) for level in ("95", "997")))
    return Cloud(point["environment"], x, values, ratio)


def _ratio(point: Form, x: str, effects: Effects) -> Cloud:
    """Returns the cloud of an overhead."""
    limits = (_ends(point, level, 1.0) for level in ("95", "997"))
    is_model = point["kind"] == "model"
    return Cloud(point["environment"], x, (), Ratio(1 + point["y"], *limits), model=is_model)


def table(form: Form) -> Table:
    """Returns the numbers of a model; each line says whether it is one."""
    overhead = form["unit"] == "1"

    def shown(value: float | None, is_ratio: bool) -> str:
        if value is None:
            return numbers.NONE
        if is_ratio:
            return numbers.ratio(value)
        return numbers.percent(value * 100) if overhead else numbers.quantity("wall_s", value)

    rows = []
    for point in [*form["points"], *form["effects"]]:
        is_ratio = point["kind"] == "effect"
        what = point.get("what") or (f"{point['bytes']} bytes" if "bytes" in point else "")
        spans = [
            numbers.NONE if pair is None else " to ".join(shown(end, is_ratio) for end in pair)
            for pair in (_ends(point, "95"), _ends(point, "997"))
        ]
        kind = point["kind"]
        if is_ratio:
            word = " (model)" if _is_model(form, point) else ""
            kind = f"ratio to {form['base']}{word}"
        rows.append((
            kind, point["environment"], what, str(point["x"]), shown(point["y"], is_ratio), *spans,
            point.get("words", ""),
        ))  # fmt: skip
    head = ("", "environment", "what", form["x"], "value", "95 %", "99.7 %", "says")
    return Table("The model, and what was measured", head, tuple(rows), 3)
