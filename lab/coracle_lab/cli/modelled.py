"""Models of a campaign's figures, from the records of its other figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coracle_lab.campaign.kept import Kept
from coracle_lab.campaign.model import Figure
from coracle_lab.errors import LabError
from coracle_lab.run import records
from coracle_lab.run.records import FACTOR

INPUTS = ("starts", "work", "messages", "times")


def form_of(own: Kept, figure: Figure) -> tuple[str | None, Mapping[str, Any] | None]:
    """Returns why a figure's model cannot be made, or else None and its form."""
    from coracle_lab.model import asked

    told = figure.model
    assert told is not None
    inputs = {name: str(told[name]) for name in INPUTS if name in told}
    lacking = [one for one in inputs.values() if not _has_records(own, one)]
    if lacking:
        return f"it needs records of {', '.join(dict.fromkeys(lacking))}", None
    places = {name: own.directory(one) for name, one in inputs.items()}
    # The page names figures: where their records are is of this machine.
    names = {str(place): inputs[name] for name, place in places.items()}
    names_of = _measured(own, list(inputs.values()), told.get("environments", ()))
    options = asked.Options(names_of, told.get("where", {}))
    try:
        if told["kind"] == "tail":
            form = asked.tail_of(places["starts"], told["of"], options)
        elif told["kind"] == "two-term":
            form = asked.two_term_of(places["times"], places["messages"], told["bytes"], options)
        else:
            request = asked.LawRequest(
                starts=places["starts"],
                work=places["work"],
                messages=places.get("messages"),
                ranks=told["ranks"],
            )
            form = asked.law_of(request, options)
    except LabError as error:
        message = error.message
        for place, name in names.items():
            message = message.replace(place, name)
        return message, None
    told_of = [{**one, "from": names.get(one["from"], one["from"])} for one in form["inputs"]]
    return None, {**form, "inputs": told_of}


def _has_records(own: Kept, name: str) -> bool:
    directory = own.directory(name)
    return (directory / "design.toml").exists() and (directory / "records.jsonl").exists()


def _measured(own: Kept, inputs: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Returns the environments that were measured in all inputs, of those that are wanted."""
    measured = []
    for name in inputs:
        made = records.read(own.directory(name) / "records.jsonl").records
        measured.append(
            dict.fromkeys(
                one.levels[FACTOR]
                for one in made
                if one.row and one.outcome == "ok" and FACTOR in one.levels
            )
        )
    return [
        name
        for name in measured[-1]
        if all(name in others for others in measured) and (not wanted or name in wanted)
    ]
