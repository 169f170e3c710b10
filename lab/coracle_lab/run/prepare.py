"""What a session does before its rows, untimed: images, builds, environments, first runs.

A place is an environment, with its image if the design has several (`launch.place_of`). A place
that cannot be prepared, or in which the program fails, is left out, and listed. A place whose
program is other bytes than the base's, where the design says that they are the same, is void: its
rows get records that say so, and are not run.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coracle_lab.applications import builds, images, places
from coracle_lab.applications.builds import Build
from coracle_lab.applications.places import Places
from coracle_lab.applications.sources import place as source_place
from coracle_lab.design import Row
from coracle_lab.environments import Environment, Setting
from coracle_lab.errors import LabError
from coracle_lab.facts import same
from coracle_lab.run import judge, launch, records
from coracle_lab.run.cells import of_cell
from coracle_lab.run.records import FACTOR, Record

if TYPE_CHECKING:
    from coracle_lab.run.session import Session

TRIES = 2
"""So often an environment is started in which the program fails."""


@dataclass
class Prepared:
    """What was prepared, for the facts and for the end of the session."""

    environments: dict[tuple[str, str], tuple[Environment, Setting]] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    builds: dict[str, str] = field(default_factory=dict)


def places_of(session: Session, levels: Mapping[str, str]) -> Places:
    """Returns the directories of a row."""
    application = session.application
    build = builds.of(application, levels)
    source = None
    if application.source is not None and places.uses(application, "source"):
        source = source_place(application.source)
    return Places(
        source=source,
        build=build.directory if build is not None else None,
        scratch=session.directory / "scratch" if places.uses(application, "scratch") else None,
    )


def make(session: Session, rows: Sequence[Row]) -> None:
    """Makes images and builds of rows, and prepares their environments."""
    kinds: dict[str | None, list[Row]] = {}
    for row in rows:
        kinds.setdefault(places.image(session.application, row.levels), []).append(row)
    for image, some in kinds.items():
        try:
            if image is not None:
                _image(session, image, some)
            _builds(session, some)
        except LabError as error:
            if len(kinds) == 1:
                raise
            for row in some:
                session.left_out[launch.place_of(session.design, row.levels)] = error.message
    _environments(session, rows)


def _image(session: Session, image: str, rows: Sequence[Row]) -> None:
    """Makes an image that rows need and that has a recipe, or in which is built."""
    application, recipes = session.application, session.design.images
    builds_in_it = bool(application.build) and application.build_in == "image"
    needed = builds_in_it or any(
        session.environments[session.environment_of(row.levels)].takes != "host" for row in rows
    )
    if needed and (builds_in_it or any(one.name == image for one in recipes)):
        session.say(f"makes the image {image}")
        images.ensure(image, recipes)
        session.prepared.images[image] = images.identity(image) or ""


def _builds(session: Session, rows: Sequence[Row]) -> None:
    """Builds what rows need and is not there."""
    found: dict[str, Build] = {}
    for row in rows:
        build = builds.of(session.application, row.levels)
        if build is not None:
            found[build.directory.name] = build
    for build in found.values():
        session.say(f"builds {build.name}")
        builds.make(build)
        session.prepared.builds[build.directory.name] = build.image or "host"


def _environments(session: Session, rows: Sequence[Row]) -> None:
    """Prepares each environment once for each image."""
    for row in rows:
        place = launch.place_of(session.design, row.levels)
        if session.why_left_out(row.levels) is not None:
            continue
        environment = session.environments[session.environment_of(row.levels)]
        try:
            setting = environment.prepared(
                launch.setting_of(
                    session.application, environment, row.levels, places_of(session, row.levels)
                )
            )
            key = environment.name, repr(setting)
            if key in session.prepared.environments:
                continue
            session.prepared.environments[key] = environment, setting
            session.say(f"prepares {place}")
            environment.prepare(setting)
            if setting.image is not None and environment.takes != "host":
                # An image of the user's own environment may be none of Coracle's store.
                with contextlib.suppress(LabError):
                    found = session.prepared.images
                    found[setting.image] = images.identity(setting.image) or ""
        except LabError as error:
            session.left_out[place] = error.message


def clean(session: Session) -> list[str]:
    """Undoes what was prepared; returns in words what could not be undone."""
    said = []
    for environment, setting in session.prepared.environments.values():
        try:
            environment.clean(setting)
        except LabError as error:
            # What was measured stays; and one that was prepared in part has less to undo.
            said.append(error.message)
    return said


def first_runs(session: Session, rows: Sequence[Row]) -> None:
    """Runs the program once in each place, thrown away; with texts, the base's first."""
    rows = session.unfinished(rows)
    base = session.design.base
    first: dict[str, Row] = {}
    if session.application.texts:
        _expect(session)
        lacking = {key for row in rows if (key := _others(row.levels)) not in session.texts}
        for row in session.rows:
            if session.environment_of(row.levels) == base and _others(row.levels) in lacking:
                first.setdefault(f"{base} {_others(row.levels)}", row)
        _run(session, first)
        _expect(session)
        rows = [row for row in rows if session.environment_of(row.levels) != base or not lacking]
    first = {}
    for row in rows:
        first.setdefault(launch.place_of(session.design, row.levels), row)
    _run(session, first)
    if session.design.same is not None:
        _void(session)


def _run(session: Session, first: Mapping[str, Row]) -> None:
    """Runs the program once for each row; leaves out the places in which it fails twice."""
    waiting = dict(first)
    why: dict[str, str] = {}
    for attempt in range(1, TRIES + 1):
        if not waiting:
            return
        done = [record for record in session.read().records if record.row == 0]
        number = max((record.attempt for record in done), default=0)
        asked = {number + count: key for count, key in enumerate(waiting, start=1)}
        tasks = [session.task(Row(0, 0, waiting[key].levels), at) for at, key in asked.items()]
        session.run_piece(tasks, f"first run {attempt}")
        for record in session.read().records:
            if record.row == 0 and record.attempt in asked:
                key = asked[record.attempt]
                why[key] = record.why
                if record.outcome == "ok":
                    waiting.pop(key, None)
    for key, row in waiting.items():
        reason = why.get(key, "its timer was ended")
        place = launch.place_of(session.design, row.levels)
        session.left_out[place] = f"the program failed in it: {reason}"


def _others(levels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the levels of all factors but the environment, as a key; launches share theirs."""
    return tuple(sorted((k, v) for k, v in of_cell(levels).items() if k != FACTOR))


def _expect(session: Session) -> None:
    """Takes the texts of the base's first run in each cell: the earliest one that was right."""
    for record in session.read().records:
        is_base = session.environment_of(record.levels) == session.design.base
        if record.row == 0 and is_base and record.outcome == "ok" and "texts" in record.fields:
            session.texts.setdefault(_others(record.levels), record.fields["texts"])


def texts_of(session: Session, levels: Mapping[str, str]) -> Mapping[str, str]:
    """Returns what the texts of a row have to be, as far as that is known."""
    return session.texts.get(_others(levels), {})


def _void(session: Session) -> None:
    """Finds the places whose files are not those of the base, where the design calls them equal."""
    looked = [
        record
        for record in session.read().records
        if record.row == 0 and record.outcome == "ok" and "mapped" in record.fields
    ]
    base = session.design.base
    bases = [one for one in looked if session.environment_of(one.levels) == base]
    for record in looked:
        name = session.environment_of(record.levels)
        if name == base or not bases:
            continue
        nearest = max(bases, key=lambda one: _shared(one, record))
        likeness = same.compare(nearest.fields["mapped"], record.fields["mapped"])
        place = launch.place_of(session.design, record.levels)
        session.void.pop(place, None)
        if likeness is not None and likeness.breaks(session.design.same):
            session.void[place] = (
                f'not the files of {base}, and the design says same = "{session.design.same}":'
                f" {likeness.text()}"
            )


def _shared(one: Record, other: Record) -> int:
    """Returns how many levels two records have in common."""
    return sum(1 for name, level in one.levels.items() if other.levels.get(name) == level)


def append_void(session: Session, row: Row, why: str) -> None:
    """Appends the record of a row that is void, and was not run."""
    measured: dict[str, Any] = dict.fromkeys(
        (
            "user_s",
            "system_s",
            "max_rss_bytes",
            "minor_faults",
            "major_faults",
            "voluntary_switches",
            "involuntary_switches",
            "steal_ticks",
        )
    )
    measured |= {
        "outcome": "void",
        "why": why,
        "exit_status": 0,
        "wall_s": 0.0,
        "output_sha256": hashlib.sha256(b"").hexdigest(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    content = session.piece([])
    task = session.task(row, 1)
    made = judge.record(content, task, measured, session.directory)
    records.append(session.records_path, made)
