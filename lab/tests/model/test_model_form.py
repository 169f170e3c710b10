"""What is kept of a model: only what the schema allows, and what a reader can take back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from model_inputs import Machine, seeded, tables

from coracle_lab.errors import LabError
from coracle_lab.model import form, slowest
from coracle_lab.model.law import predict
from coracle_lab.model.profile import SILENT
from coracle_lab.model.sample import sample
from coracle_lab.report import modelled


@pytest.fixture
def made() -> dict[str, Any]:
    taken = tables(seeded(), {"native": Machine(), "x": Machine(work=9.0)})
    inputs = [{"name": "work", "from": "d", "responses": ["work_s"], "counts": {"native": 30}}]
    return form.law(predict(taken, SILENT, (2, 300)), inputs, {}, ["a note"])


def test_a_form_is_read_back_as_it_was_written(made: dict[str, Any]) -> None:
    text = form.as_json(made)
    assert form.read(text, "f") == made
    assert form.as_json(form.read(text, "f")) == text


def test_every_value_says_whether_it_is_a_model(made: dict[str, Any]) -> None:
    assert {one["kind"] for one in made["points"]} == {"model"}
    assert made["error"]["words"].startswith("error of the model: unknown")
    assert all(one["words"].startswith("model cannot tell") for one in made["effects"])


@pytest.mark.parametrize(
    "broken",
    [
        {"schema": 2},
        {"model": "guess"},
        {"points": [{"kind": "model", "environment": "native", "x": 2, "y": 1.0}]},
        {"points": [{"kind": "hatched"}]},
        {"error": {"points": [], "largest": None, "largest_ratio": None}},
        {"unit": "h"},
        {"more": 1},
    ],
)
def test_what_is_no_model_is_refused(made: dict[str, Any], broken: dict[str, Any]) -> None:
    with pytest.raises(LabError, match=r"law\.json: this is no model"):
        form.read(json.dumps({**made, **broken}), "law.json")


def test_a_file_that_is_not_json_is_refused() -> None:
    with pytest.raises(LabError, match=r"law\.json: it is not JSON"):
        form.read("model", "law.json")


def test_a_ratio_of_the_law_stands_at_no_measured_point() -> None:
    taken = tables(seeded(), {"native": Machine(), "x": Machine(work=9.0)})
    measured = {(name, 2): sample([5.0, 5.1], name) for name in ("native", "x")}
    law = form.law(predict(taken, SILENT, (2,), "native", measured), [], measured, [])
    clouds = [one for one in modelled.picture(law).clouds() if one.environment == "x"]
    assert [(one.model, one.ratio is None, bool(one.ratios)) for one in clouds] == [
        (True, True, True), (False, True, False),
    ]  # fmt: skip
    assert "ratio to native (model)" in {row[0] for row in modelled.table(law).rows}


@pytest.mark.parametrize(("of", "is_model"), [(64, False), (256, True), (4096, True)])
def test_a_ratio_of_a_tail_is_a_model_where_one_was_fitted(of: int, is_model: bool) -> None:
    rng = seeded()
    starts = {name: sample(1 + rng.exponential(1, 600), name) for name in ("native", "x")}
    kept = form.tail(slowest.tell(starts, of), [])
    clouds = [one for one in modelled.picture(kept).clouds() if one.environment == "x"]
    assert {one.model for one in clouds if one.ratio is not None or one.ratios} == {is_model}
    rows = {row[0] for row in modelled.table(kept).rows}
    assert ("ratio to native (model)" in rows) == is_model


def test_a_tail_without_enough_draws_has_nulls_and_no_numbers_instead() -> None:
    few = {"native": sample([1.0, 1.1, 1.2, 1.3], "native")}
    kept = form.read(form.as_json(form.tail(slowest.tell(few, 4), [])), "f")
    assert [one["what"] for one in kept["points"]] == ["expected", "median", "groups"]
    assert all(one["low95"] is None for one in kept["points"])
    assert kept["points"][0]["words"] == "4 draws are few: it can be higher"
