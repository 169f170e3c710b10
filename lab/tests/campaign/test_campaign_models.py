"""Models of a campaign: made of the records of its figures, else listed with the reason."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from coracle_lab.campaign import kept
from coracle_lab.campaign.kept import Outcome
from coracle_lab.campaign.parse import parse
from coracle_lab.cli import papers
from coracle_lab.errors import LabError
from coracle_lab.run import records, store

pytestmark = pytest.mark.long

HEAD = 'title = "T"\npaper = "p"\ntext = "t"\n'
FIGURE = """[[figure]]
id = "{name}"
title = "figure {name}"
of = "Fig. 1"
layout = "times"
responses = ["wall_s"]
shows_not = "much"
[figure.quick]
seed = 1
replicates = {blocks}
factors = {{ environment = ["@native", "x"]{ranks} }}
application = {{ name = "none", command = ["true"] }}
"""
MODEL = """[[figure]]
id = "{name}"
title = "a model"
of = "Fig. 2"
layout = "model"
responses = ["wall_s"]
shows_not = "Nothing is measured."
model = {model}
"""
TAIL = MODEL.format(name="M-tail", model='{ kind = "tail", starts = "S", of = 16 }')
FAR = MODEL.format(
    name="M-far",
    model='{ kind = "tail", starts = "S", of = 16, where = { starts = { ranks = "1" } } }',
)
LACKING = MODEL.format(
    name="M-law", model='{ kind = "law", starts = "S", work = "W", ranks = [2, 4] }'
)
TEXT = HEAD + FIGURE.format(name="S", blocks=40, ranks="") + TAIL + FAR + LACKING
TEXT += FIGURE.format(name="W", blocks=2, ranks=", ranks = [1, 2]")


def measured(into: Path, names: tuple[str, ...]) -> kept.Kept:
    """Returns a campaign's directory with records of some figures, made up."""
    own = kept.opened(into, "quick")
    for figure in parse(TEXT, "c.toml", "quick").figures:
        if figure.id not in names or figure.design is None:
            continue
        design = figure.design.replace('"@native"', '"native", "native-again"')
        made = store.create(own.directory(figure.id), design, figure.id)
        made.facts_path.write_text("")
        for row in made.rows:
            chance = random.Random(row.number)
            records.append(made.directory / "records.jsonl", {
                "schema": 1, "design": made.digest, "row": row.number, "block": row.block,
                "attempt": 1, "session": "s", "levels": dict(row.levels), "outcome": "ok",
                "why": None, "exit_status": 0, "wall_s": chance.lognormvariate(-3, 0.1),
                "user_s": 0.0, "system_s": 0.0, "max_rss_bytes": 1, "minor_faults": 0,
                "major_faults": 0, "voluntary_switches": 0, "involuntary_switches": 0,
                "output_sha256": "0" * 64, "responses": {}, "sentinel_before_s": 0.05,
                "sentinel_after_s": 0.05, "steal_ticks": 0, "started": "2026-01-01T00:00:00Z",
            })  # fmt: skip
        own.set(figure.id, Outcome(made=True))
    return own


def test_a_model_is_made_or_listed_with_the_reason(tmp_path: Path) -> None:
    own = measured(tmp_path, ("S",))
    campaign = parse(TEXT, "c.toml", "quick")
    papers.report([campaign], own, None)
    page = (tmp_path / "index.html").read_text()
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "This is a model, and no measurement." in said
    assert "M-law a model not made: it needs records of W" in said
    assert "M-far a model not made: --where: no input has a factor" in said
    form = json.loads((tmp_path / "M-tail/model.json").read_text())
    assert [one["from"] for one in form["inputs"]] == ["S"]
    assert form["error"]["words"] in said
    assert str(tmp_path) not in page
    alone = (tmp_path / "summary.html").read_text()
    assert form["error"]["words"] in re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", alone))
    assert "This is a model, and no measurement." in alone and "<svg" not in alone
    # Made again, it is the same.
    papers.report([campaign], own, None)
    assert (tmp_path / "index.html").read_text() == page
    assert (tmp_path / "summary.html").read_text() == alone


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TAIL.replace("model = {", "panels = {"), "is not of the type|layout"),
        (TAIL.replace('layout = "model"', 'layout = "times"'), 'layout = "model" has the key'),
        (TAIL + "[figure.quick]\nseed = 1\n", 'layout = "model" has the key'),
        (TAIL + "[figure.design]\nseed = 1\n", 'layout = "model" has the key'),
        (TAIL.replace(", of = 16", ""), "c.toml, line"),
        (TAIL.replace('"tail"', '"tale"'), "'tale'|c.toml, line"),
    ],
)
def test_a_wrong_model_is_told(text: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        parse(HEAD + text, "c.toml", "quick")
