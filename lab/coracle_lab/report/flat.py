"""Makes flat lines of records: one for each attempt, with a column for everything it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coracle_lab.design import Design
from coracle_lab.run.records import Record

NESTED = ("levels", "responses", "texts", "mapped", "ranks")
FIRST = ("row", "block", "attempt", "session", "started", "outcome", "why")


def flat(design: Design, every: Sequence[Record], whole: bool = False) -> list[dict[str, Any]]:
    """Returns one line for each attempt.

    Levels keep the factors' names; a response or a field of the same name gets `response_` before
    it. What holds more than one value (ranks, mapped files) is there if `whole`.
    """
    taken = {"design", *FIRST, *(factor.name for factor in design.factors)}
    responses = list(dict.fromkeys(n for r in every for n in r.fields["responses"]))
    texts = list(dict.fromkeys(n for r in every for n in r.fields.get("texts", {})))
    plain = [
        name
        for name in dict.fromkeys(name for record in every for name in record.fields)
        if name not in (*NESTED, *FIRST, "schema", "design")
    ]
    levels = list(dict.fromkeys(name for record in every for name in record.fields["levels"]))
    result = []
    for record in every:
        fields: Mapping[str, Any] = record.fields
        line: dict[str, Any] = {"design": design.name}
        line |= {name: fields.get(name) for name in FIRST}
        line |= {name: fields["levels"].get(name) for name in levels}
        for prefix, names, values in (
            ("response_", responses, fields["responses"]),
            ("text_", texts, fields.get("texts", {})),
            ("response_", plain, fields),
        ):
            for name in names:
                line[f"{prefix}{name}" if name in taken else name] = values.get(name)
        if whole:
            line |= {name: fields[name] for name in ("ranks", "mapped") if name in fields}
        result.append(line)
    return result
