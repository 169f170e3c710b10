"""`coracle-lab run` and `plan`, and the session that `run` and `try` have in common."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coracle_lab import applications, environments, nodes
from coracle_lab import design as designs
from coracle_lab.cli import effects, progress, report
from coracle_lab.design import Row
from coracle_lab.design.application import RANKS
from coracle_lab.errors import FAILED, LabError
from coracle_lab.facts import machine
from coracle_lab.report import judged, screened
from coracle_lab.run import launch, records, reframe_site, store
from coracle_lab.run.cells import cells
from coracle_lab.run.session import Late, Session, Stopped
from coracle_lab.run.store import Store

OUTPUT_MIB = 64
"""How much a row may print, if nothing else is said."""
DECIDE = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_")
"""Beginnings of variables that decide how many threads a program has."""
OWN_S = 0.6
"""What a row costs beside its program: ReFrame, sentinels, the timer's start."""
BLOCKS_AT_ONCE = 5
"""With a precision to reach, so many blocks are run between two looks at the intervals."""


def opened(options: argparse.Namespace) -> Store:
    """Returns the store of a design file, or of a directory of records to go on with."""
    path: Path = options.file
    if path.is_dir():
        kept = path / "design.toml"
        if not kept.exists():
            raise LabError(f"{path}: it holds no design.toml", "name a design file")
        if options.records or options.environments or options.applications:
            what = "records, environments and application"
            raise LabError(f"{path} has its own {what}", "name it alone")
        return store.create(path, store.read_text(kept), str(kept))
    text = applications.resolve(store.read_text(path), str(path), options.applications)
    known(text, str(path), options.environments)
    directory = options.records or path.with_name(f"{path.stem}-records")
    return store.create(directory, text, str(path), options.environments)


def known(text: str, name: str, files: Sequence[Path]) -> None:
    """Refuses a design that names an unknown environment, before a directory is made for it."""
    factor = designs.parse(text, name).factor(launch.FACTOR)
    for level in factor.levels if factor is not None else ():
        environments.find(level, files)


def run(options: argparse.Namespace) -> int:
    """Runs a design: what has no record yet."""
    check_site(options)
    found = opened(options)
    return conduct(found, options.output_limit << 20, site_of(options, found.design))


def check_site(options: argparse.Namespace) -> None:
    """Refuses options about the place of rows that exclude or need each other."""
    if options.site and options.launcher:
        raise LabError("--launcher and --site exclude each other: a partition has its launcher")
    if options.system and not options.site:
        raise LabError("--system needs --site", "name the site file that has this system")


def site_of(options: argparse.Namespace, design: designs.Design) -> reframe_site.Site:
    """Returns where the rows of a design run, and what starts their ranks."""
    launcher = options.launcher or own_launcher(design) or "local"
    if options.site:
        launcher = "local"
    return reframe_site.Site(launcher, options.site, options.system)


def own_launcher(design: designs.Design) -> str | None:
    """Returns the launcher that the application names, if rows have ranks on this host."""
    application = design.application
    if application is None or design.nodes is not None or not _has_ranks(design):
        return None
    return application.launcher


def _has_ranks(design: designs.Design) -> bool:
    """Tells whether rows have a number of ranks."""
    application = design.application
    own = application.parameters if application is not None else {}
    return design.factor(RANKS) is not None or RANKS in own


def _check_ranks(design: designs.Design, site: reframe_site.Site) -> None:
    """Refuses a design whose ranks nothing would start."""
    command = design.application.command if design.application is not None else ()
    if design.nodes is not None:
        if not site.is_local:
            raise LabError(
                "the design has [nodes], which are simulated here: --launcher and --site cannot be",
                "leave [nodes] out to run on the nodes of a cluster",
            )
        return
    if _has_ranks(design) and site.is_local and not any("{ranks}" in word for word in command):
        raise LabError(
            "the design has ranks, and nothing that starts them",
            "give --launcher mpirun, or --site FILE of a partition with a launcher; or write"
            ' launcher = "mpirun" into [application]',
        )


def _without_ranks(
    design: designs.Design, found: Mapping[str, environments.Environment]
) -> dict[str, str]:
    """Returns the rows that have more ranks than their environment can have, and why."""
    factor = design.factor(RANKS)
    if factor is None:
        return {}
    return {
        launch.with_ranks(name, level): environment.one_rank
        for name, environment in found.items()
        if environment.one_rank is not None
        for level in factor.levels
        if level != "1"
    }


def _without_options(
    design: designs.Design, found: Mapping[str, environments.Environment]
) -> dict[str, str]:
    """Returns the environments into whose command the design's options cannot be put."""
    if not design.options:
        return {}
    why = 'it takes no options of a design: its entry has no group ["{option}"]'
    return {name: why for name, one in found.items() if not one.has_options}


def used(design_store: Store) -> dict[str, environments.Environment]:
    """Returns the environments that a design names."""
    factor = design_store.design.factor(launch.FACTOR)
    levels = factor.levels if factor is not None else ("native",)
    files = design_store.environment_files()
    return {name: environments.find(name, files) for name in levels}


def conduct(design_store: Store, output_bytes: int, site: reframe_site.Site | None = None) -> int:
    """Runs a session and prints its report; returns the exit status.

    Without a site rows run here, with the application's own launcher if they have ranks.
    """
    design = design_store.design
    site = site or reframe_site.Site(own_launcher(design) or "local")
    _check_ranks(design, site)
    found = used(design_store)
    probes = {name: environment.probe() for name, environment in found.items()}
    unusable = {name: probe.why for name, probe in probes.items() if not probe.usable}
    if design.nodes is not None:
        alone = "it starts its ranks itself, and not in the design's [nodes]"
        unusable |= {name: alone for name, one in found.items() if one.launches}
    unusable |= _without_ranks(design, found) | _without_options(design, found)
    if design.base in unusable:
        raise LabError(f"{design.base} cannot be used here: {unusable[design.base]}")
    controls = set() if design.screens else {design.base, design.base + report.AGAIN}
    if set(found) > controls and set(found) - set(unusable) <= controls:
        why = "; ".join(f"{name}: {reason}" for name, reason in unusable.items())
        raise LabError(
            f"none of the environments can be used here: {why}",
            "coracle-lab doctor shows which can",
        )
    limits = launch.Limits(output_bytes=output_bytes, cpus=launch.cpus_of(design.pinning))
    session = Session(
        directory=design_store.directory,
        design=design,
        digest=design_store.digest,
        rows=design_store.rows,
        environments=found,
        limits=limits,
        site=site,
        tell=progress.show,
        left_out=dict(unusable),
    )
    try:
        with session.opened():
            try:
                _run(design_store, session, {name: one.version for name, one in probes.items()})
            finally:
                for text in session.clean():
                    progress.note(text)
    except Stopped as why:
        if not (session.measured and isinstance(why, Late)):
            return _stopped(design_store, session, str(why), output_bytes)
        progress.note("the time was over before all disturbed blocks were repeated")
    finally:
        progress.clear()
    left_out = {name: why for name, why in session.left_out.items() if name not in unusable}
    cpus = len(os.sched_getaffinity(0)) if site.file is None else None
    return report.show(design_store, report.Ended(left_out, unusable, session.not_run, cpus))


def _say(
    design_store: Store, session: Session, now: dict[str, Any], versions: dict[str, str]
) -> None:
    """Records the facts of the session, and tells what in them matters."""
    simulated = session.simulated
    now["nodes"] = simulated.facts() if simulated is not None else nodes.allocated()
    made = session.prepared
    now["launcher"] = session.site.launcher if session.site.file is None else None
    said = design_store.append_facts(
        session.name, now, versions, made.images, made.builds, session.site.file
    )
    said += _not_passed(session)
    cut = session.read().cut_lines
    if cut:
        said.append(f"{session.records_path}: {cut} cut lines are ignored; their rows run again")
    for text in said:
        progress.note(text)


def _not_passed(session: Session) -> list[str]:
    """Returns what there is to say of variables that native has, and some environments have not."""
    own = session.application.variables
    names = [name for name in sorted(os.environ) if name.startswith(DECIDE) and name not in own]
    without = [
        name
        for name, one in session.environments.items()
        if one.passes_no_variables and name not in session.left_out
    ]
    if not names or not without:
        return []
    return [
        f"{', '.join(names)} of this shell is for native, and not for {', '.join(without)}: name it"
        " among the variables of the application, or with -e NAME=VALUE"
    ]


def _run(design_store: Store, session: Session, versions: dict[str, str]) -> None:
    """Prepares, runs first runs, rows and repetitions."""
    design, rows = design_store.design, list(design_store.rows)
    now = machine.facts(design_store.directory)
    if design.nested is not None:
        rows = _rows_of_session(session)
    if design.precision is not None:
        rows = _next_blocks(design_store, session)
    session.make(rows)
    _say(design_store, session, now, versions)
    session.first_runs(rows)
    _check_left(session)
    while design.nested is not None and rows and not session.unfinished(rows):
        # What was left of this session does not run here.
        rows = _rows_of_session(session)
        session.make(rows)
        session.first_runs(rows)
        _check_left(session)
    while session.unfinished(rows) or (design.precision is not None and rows):
        session.run(rows)
        if design.precision is not None:
            rows = _next_blocks(design_store, session)
    session.measured = True
    session.repeat()


def _check_left(session: Session) -> None:
    """Tells what is left out; raises `LabError` if nothing can be compared any more."""
    design, gone = session.design, session.gone()
    if design.base in gone:
        raise LabError(f"{design.base}: {gone[design.base]}", _hint(session), FAILED)
    for name, why in session.left_out.items():
        progress.note(f"{name} is left out: {why}")
    if design.screens and session.left_out:
        why = "; ".join(f"{name}: {session.left_out[name]}" for name in sorted(session.left_out))
        raise LabError(
            f"a fraction is judged by all of its rows, and some cannot be run: {why}",
            "take what cannot be run out of the factors",
            FAILED,
        )
    wanted = set(session.environments) - {design.base, design.base + report.AGAIN}
    if wanted and wanted <= set(gone):
        why = "; ".join(f"{name}: {gone[name]}" for name in sorted(wanted))
        raise LabError(f"nothing is left to compare with {design.base}: {why}", None, FAILED)


def _hint(session: Session) -> str:
    """Returns what to do about a program that does not run in the base."""
    text = "the program has to run there, because all others are compared with it"
    if session.application.host:
        text += f"; on Debian it needs the packages {' '.join(session.application.host)}"
    return f"{text}; what it printed is in {session.directory / 'failed'}"


def _rows_of_session(session: Session) -> list[Row]:
    """Returns the rows of a nested design's first session that is not finished.

    A start of the lab is a session: the next one belongs to another start. A session is finished
    without the environments that are left out.
    """
    left = sorted({_session_of(row) for row in session.unfinished()})
    if len(left) > 1:
        progress.note(f"this is session {left[0]}; the same command runs session {left[1]} later")
    return [row for row in session.rows if left and _session_of(row) == left[0]]


def _session_of(row: Row) -> int:
    return int(row.levels["session"])


def _next_blocks(design_store: Store, session: Session) -> list[Row]:
    """Returns the rows up to the block at which the precision is looked at next; none if it is
    reached, or if no block is left.

    Where it is looked follows from the design alone, so a session that was stopped stops the design
    where an unbroken one would have.
    """
    precision = design_store.design.precision
    assert precision is not None
    made = session.read().records
    done = max((record.block for record in made), default=0)
    beyond = max(0, done - precision.blocks_at_least)
    look = precision.blocks_at_least + -(-beyond // BLOCKS_AT_ONCE) * BLOCKS_AT_ONCE
    look = min(look, precision.blocks_at_most)
    rows = [row for row in design_store.rows if row.block <= look]
    if session.unfinished(rows):
        return rows
    if look >= precision.blocks_at_most or report.narrow_enough(design_store, made):
        return []
    more = [row for row in design_store.rows if row.block <= look + BLOCKS_AT_ONCE]
    return more if session.unfinished(more) else []


def _stopped(design_store: Store, session: Session, why: str, output_bytes: int) -> int:
    """Tells where the session stopped and how it goes on."""
    progress.clear()
    done = len(records.first_attempts(session.read().records))
    words = ["coracle-lab", "run", str(design_store.directory)]
    site = session.site
    if site.launcher != (own_launcher(session.design) or "local") and site.file is None:
        words += ["--launcher", site.launcher]
    for name, value in (("--site", site.file), ("--system", site.system)):
        words += [name, value] if value is not None else []
    if output_bytes != OUTPUT_MIB << 20:
        words += ["--output-limit", str(output_bytes >> 20)]
    print(
        f"stopped ({why}): {done} of {len(design_store.rows)} rows are recorded\n"
        f"  go on with: {shlex.join(words)}",
        file=sys.stderr,
    )
    return 130


def plan(options: argparse.Namespace) -> int:
    """Prints what a design will run, how long that takes, and what it can show."""
    path: Path = options.file
    kept = path / "design.toml" if path.is_dir() else path
    directory = options.records or (
        path if path.is_dir() else path.with_name(f"{path.stem}-records")
    )
    text = applications.resolve(store.read_text(kept), str(kept), options.applications)
    design = designs.parse(text, str(kept))
    rows = designs.expand(design)
    factor = design.factor(launch.FACTOR)
    pilot = Store(directory, design, designs.digest(design), rows)
    tables = [*pilot.environment_files(), *options.environments]
    for name in factor.levels if factor is not None else ():
        probe = environments.find(name, tables).probe()
        if not probe.usable:
            print(f"left out here: {name}: {probe.why}")
    count = len({row.block for row in rows})
    most = " at most" if design.precision is not None else ""
    print(
        f"{design.name}: {design.kind}, {len(designs.cells(design))} cells,"
        f" {count} blocks, {len(rows)} rows{most}"
    )
    for cell in design.left_out:
        levels = ", ".join(f"{factor} {level}" for factor, level in cell.levels.items())
        print(f"left out by the design: {levels}: {cell.reason}")
    for text in design.notes:
        print(f"note: {text}")
    if design.screens:
        for line in screened.mixed_up(design):
            print(f"aliases: {line}")
    made = records.read(directory / "records.jsonl", designs.digest(design)).records
    if not made:
        print("no records yet: time and smallest effect are known after the first blocks")
        return 0
    _time_left(pilot, made)
    _smallest_effects(pilot, made)
    return 0


def _time_left(pilot: Store, made: Sequence[records.Record]) -> None:
    """Prints how long the rows without a record will take, from those that have one."""
    done = records.first_attempts(made)
    times = [record.fields["wall_s"] for record in made if record.fields["wall_s"] > 0]
    wall = statistics.mean(times) if times else 0.0
    left = [row for row in pilot.rows if row.number not in done]
    seconds = len(left) * (wall + OWN_S)
    print(
        f"{len(done)} rows are recorded, {len(left)} are left: about {progress.duration(seconds)}"
    )


def _smallest_effects(pilot: Store, made: Sequence[records.Record]) -> None:
    """Prints, for each comparison, the half width that the design's blocks will give."""
    try:
        from coracle_lab import stats
    except ImportError as error:
        print(f"no smallest effect: {error}; install coracle-lab[report]")
        return
    design = pilot.design
    if design.screens:
        effects.plan(pilot, made, judged.responses(design.responses[:1], made))
        return
    blocks = len({row.block for row in pilot.rows})
    what = "blocks"
    if blocks == 1:
        blocks, what = design.replicates, "runs of each"
    latest, names = records.last_attempts(made), judged.responses(design.responses[:1], made)
    for response, cell in (
        (name, cell) for name in names for cell in cells(design, pilot.rows, latest, name)
    ):
        what_of = f"{response if len(names) > 1 else ''} {cell.name}".strip()
        if design.base not in cell.values:
            print(f"{what_of}: the design does not measure {design.base} in it".strip())
            continue
        for one in stats.compare(cell.values, design.base, design.margin, cell.paired):
            deviation = one.sd_of_log_ratio
            if deviation is None or not deviation > 0 or not math.isfinite(deviation):
                print(f"{what_of} {one.environment}: {one.verdict}".strip())
                continue
            width = next(
                step / 1000
                for step in range(1, 100_000)
                if stats.blocks_needed(deviation, step / 1000, 0.95) <= blocks or step == 99_999
            )
            needed = stats.blocks_needed(deviation, design.margin, 0.95)
            print(
                f"{what_of} {one.environment}: {blocks} {what} show ratios to"
                f" ±{width * 100:.1f} % (95 %); ±{design.margin * 100:g} % takes {needed}".strip()
            )
