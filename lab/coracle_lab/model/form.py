"""Makes of a model what is kept and drawn: a JSON object by `schema/model.json`, and CSV.

`points` are what a figure draws: those of `kind` "model" are hatched, those of "measured" are not.
`error` and `words` stand beside them always.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from coracle_lab.errors import LabError
from coracle_lab.model import two_term
from coracle_lab.model.check import Error, beyond
from coracle_lab.model.law import Prediction
from coracle_lab.model.sample import Sample
from coracle_lab.model.slowest import Slowest
from coracle_lab.stats.data import Interval

SCHEMA = 1
ENDS = {"low95": (0.95, "low"), "high95": (0.95, "high")} | {
    "low997": (0.997, "low"),
    "high997": (0.997, "high"),
}
COLUMNS = ("model", "kind", "environment", "x", "y", *ENDS, "words")
Form = dict[str, Any]


@cache
def _validator() -> Draft202012Validator:
    path = Path(__file__).with_name("schema") / "model.json"
    return Draft202012Validator(json.loads(path.read_text()))


def check(form: Mapping[str, Any], name: str) -> None:
    """Raises `LabError` if an object is not what a model is kept as; `name` is its file's."""
    error = next(iter(_validator().iter_errors(form)), None)
    if error is not None:
        place = "/".join(str(step) for step in error.absolute_path)
        raise LabError(f"{name}: this is no model: {place}: {error.message}")


def read(text: str, name: str) -> Form:
    """Returns the model that a JSON file holds, or raises `LabError`."""
    try:
        form = json.loads(text)
    except ValueError as error:
        raise LabError(f"{name}: it is not JSON: {error}") from error
    check(form, name)
    return dict(form)


def as_json(form: Mapping[str, Any]) -> str:
    """Returns the text of a JSON file, checked; equal models have equal texts."""
    check(form, "model")
    return json.dumps(form, indent=1, sort_keys=True, allow_nan=False) + "\n"


def as_csv(form: Mapping[str, Any]) -> str:
    """Returns the points and effects as CSV; the error is the last line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for point in [*form["points"], *form["effects"]]:
        writer.writerow({"model": form["model"], **point})
    writer.writerow({"model": form["model"], "kind": "error", "words": form["error"]["words"]})
    return out.getvalue()


def _ends(found: Mapping[float, Interval]) -> Form:
    return {
        key: _number(getattr(found[level], side)) if level in found else None
        for key, (level, side) in ENDS.items()
    }


def _number(value: float) -> float | None:
    """Returns a finite number, rounded so that equal models have equal texts everywhere."""
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _known(value: float | None) -> float | None:
    """Returns a number as `_number` does, and None as it is."""
    return None if value is None else _number(value)


def _error(error: Error, base: str) -> Form:
    return {
        "points": [
            {
                "environment": one.environment,
                "x": one.x,
                "of": of,
                "model": _number(one.model),
                "measured": _number(one.measured),
                "relative": _number(one.relative),
            }
            for of, some in (("time", error.times), ("ratio", error.ratios))
            for one in some
        ],
        "largest": _known(error.largest),
        "largest_ratio": _known(error.largest_ratio),
        "words": error.words(base),
    }


def law(
    made: Prediction,
    inputs: Sequence[Mapping[str, Any]],
    measured: Mapping[tuple[str, int], Sample],
    notes: Sequence[str],
) -> Form:
    """Returns the form of a prediction by the law; `inputs` tell where its tables are from."""
    points: list[Form] = [
        {
            "kind": "model",
            "environment": one.environment,
            "x": one.ranks,
            "y": _number(one.total_s),
            **_ends(one.intervals),
            "parts": {
                "launch_s": _number(one.launch_s),
                "work_s": _number(one.work_s),
                "messages_s": _number(one.messages_s),
            },
        }
        for one in made.points
    ]
    points += [
        {
            "kind": "measured",
            "environment": name,
            "x": ranks,
            "y": _number(float(one.values.mean())),
            **_ends({}),
        }
        for (name, ranks), one in measured.items()
    ]
    effects = [
        {
            "kind": "effect",
            "environment": one.environment,
            "x": one.ranks,
            "y": _number(one.ratio),
            **_ends(one.intervals),
            "words": one.words,
        }
        for one in made.effects
    ]
    far = beyond(sorted({one.ranks for one in made.points}), made.error)
    return {
        "schema": SCHEMA,
        "model": "law",
        "base": made.base,
        "x": "ranks",
        "unit": "s",
        "profile": made.profile.name,
        "seed": made.seed,
        "resamples": made.resamples,
        "inputs": [dict(one) for one in inputs],
        "points": points,
        "effects": effects,
        "error": _error(made.error, made.base),
        "words": [*made.notes, *notes, *([far] if far else [])],
    }


def split(made: two_term.TwoTerm, inputs: Sequence[Mapping[str, Any]]) -> Form:
    """Returns the form of a two-term model: x is ranks, y the overhead as a fraction."""
    points: list[Form] = []
    told: set[tuple[str, int]] = set()
    for one in made.terms:
        points.append(
            {
                "kind": "model",
                "environment": one.environment,
                "x": one.ranks,
                "y": _number(one.modelled),
                **_ends(one.intervals),
                "bytes": one.bytes,
                "parts": {
                    "work_s": _number(one.work_s),
                    "communication_s": _number(one.communication_s),
                    "message_ratio": _number(one.message_ratio),
                },
                "words": one.words,
            }
        )
        if one.measured is not None and (one.environment, one.ranks) not in told:
            told.add((one.environment, one.ranks))
            points.append(
                {
                    "kind": "measured",
                    "environment": one.environment,
                    "x": one.ranks,
                    "y": _number(one.measured),
                    **_ends({}),
                }
            )
    sizes = sorted({one.bytes for one in made.terms})
    return {
        "schema": SCHEMA,
        "model": "two-term",
        "base": made.base,
        "x": "ranks",
        "unit": "1",
        "profile": f"messages of {', '.join(map(str, sizes))} bytes (an assumption)",
        "seed": made.seed,
        "resamples": made.resamples,
        "inputs": [dict(one) for one in inputs],
        "points": points,
        "effects": [],
        "error": _error(made.error, made.base),
        "words": [
            "the size of the messages is an assumption; ranks on one node do not use the network,"
            " and the model is wrong for them"
        ],
    }


def tail(made: Slowest, inputs: Sequence[Mapping[str, Any]]) -> Form:
    """Returns the form of the slowest of p starts: x is p, y seconds."""
    points = [
        {
            "kind": one.kind,
            "environment": one.environment,
            "x": made.of,
            "y": _known(one.value),
            **_ends(one.intervals),
            "what": one.what,
            "draws": one.draws,
            "words": one.words,
        }
        for one in made.lines
    ]
    effects = [
        {
            "kind": "effect",
            "environment": one.environment,
            "x": made.of,
            "y": _number(one.ratio),
            **_ends(one.intervals),
            "words": one.words,
        }
        for one in made.effects
    ]
    return {
        "schema": SCHEMA,
        "model": "tail",
        "base": made.base,
        "x": "of",
        "unit": "s",
        "profile": "",
        "seed": made.seed,
        "resamples": made.resamples,
        "inputs": [dict(one) for one in inputs],
        "points": points,
        "effects": effects,
        "error": {
            "points": [],
            "largest": _known(made.error),
            "largest_ratio": _known(made.error_of_ratios),
            "words": made.error_words,
        },
        "words": list(made.notes),
    }
