"""`coracle-lab papers`: makes the papers' figures anew; and campaign files in `plan` and `run`."""

from __future__ import annotations

import argparse
import contextlib
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coracle_lab.applications import Table, table
from coracle_lab.campaign import designs, kept, needs, parse
from coracle_lab.campaign.groups import Host
from coracle_lab.campaign.kept import Kept
from coracle_lab.campaign.model import Campaign, Figure, Size
from coracle_lab.campaign.runner import INTERRUPTED, Conduct, Runner, progress
from coracle_lab.cli import experiment, modelled
from coracle_lab.cli.progress import note, show
from coracle_lab.errors import LabError
from coracle_lab.run import lock, reframe_site, store
from coracle_lab.run.session import Progress
from coracle_lab.run.store import Store

INTO = Path("docs/lab")
MINUTES: dict[Size, float | None] = {"smoke": 5.0, "quick": 40.0, "day": None}
"""How long a size may take; the report is a part of it."""
REPORT_SHARE = 0.05
"""The share of the time that is left for the report."""
TITLE = "What does a container cost?"
ABOUT = "Figures of these papers, measured anew on one machine, with Coracle in them:"


def add(commands: Any) -> None:
    """Adds the command's words."""
    parser = commands.add_parser(
        "papers",
        help="make the papers' figures anew, and one page of them",
        description="Measures the figures of five papers, with Coracle in them, as far as this"
        " machine can, and writes a page. The same command goes on where it was stopped.",
    )
    parser.add_argument(
        "--size", default="quick", metavar="SIZE", help="smoke, quick (default) or day"
    )
    parser.add_argument(
        "--only", metavar="ID,...", default="", help="figures: OV1,UD2; OV1* are all that begin so"
    )
    parser.add_argument(
        "--into", metavar="DIR", type=Path, default=INTO, help=f"where to (default: {INTO})"
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        help="stop after so long; what is left is listed (default: smoke 5, quick 40, day none)",
    )
    parser.add_argument(
        "--unpack", action="store_true", help="go on with the records that the page in DIR has"
    )
    parser.add_argument("--no-report", action="store_true", help="measure, and write no page")
    parser.add_argument(
        "--oracle", metavar="DIR", type=Path, help="the overhead study's CSV files, drawn beside"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--packages", action="store_true", help="print the Debian packages that are lacking here"
    )
    what.add_argument(
        "--list", action="store_true", help="print the figures, and what cannot be made here"
    )


def run(options: argparse.Namespace) -> int:
    """Measures what is not measured yet, and writes the page."""
    size = parse.size_of(options.size)
    campaigns = [designs.load(path, size) for path in designs.builtin()]
    figures = designs.chosen(campaigns, _words(options.only))
    if options.packages:
        return _packages([figure for _, figure in figures], table())
    if options.list:
        return _list(figures, options.into, table())
    minutes = MINUTES[size] if options.minutes is None else options.minutes
    begun = time.monotonic()
    with _opened(options.into, size) as own:
        if options.unpack:
            for campaign, figure in figures:
                if own.unpack(figure.id, campaign.environments):
                    note(f"{figure.id}: its records are unpacked")
        deadline = None if minutes is None else begun + minutes * 60 * (1 - REPORT_SHARE)
        runner = _runner(own, table(), _conduct, ())
        runner.deadline = deadline
        status = runner.run(figures)
        if status == INTERRUPTED:
            print(f"go on with: {_again(options)}", file=sys.stderr)
            return status
        if not options.no_report:
            report(campaigns, own, options.oracle)
    _ended(own, figures)
    return status


def _conduct(made: Store) -> int:
    """Runs a design on this host, with its application's own launcher."""
    site = reframe_site.Site(experiment.own_launcher(made.design) or "local")
    return experiment.conduct(made, experiment.OUTPUT_MIB << 20, site)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _again(options: argparse.Namespace) -> str:
    """Returns the command that goes on."""
    words = ["coracle-lab", "papers", "--size", options.size]
    words += ["--only", options.only] if options.only else []
    words += ["--into", str(options.into)] if options.into != INTO else []
    return " ".join(words)


@contextlib.contextmanager
def _opened(into: Path, size: Size) -> Iterator[Kept]:
    """Opens the directory of a campaign; no other process can, meanwhile."""
    own = kept.opened(into, size)
    with lock.held(own.records):
        yield own


def _runner(own: Kept, known: Table, conduct: Conduct, files: Sequence[Path]) -> Runner:
    """Returns the runner of a campaign's directory. An environment is probed once for all."""
    found: dict[str, Any] = {}

    def host_of(campaign: Campaign) -> Host:
        more = list(files)
        if campaign.environments is not None:
            path = own.records / f"{Path(campaign.name).stem}-environments.toml"
            if not path.exists() or path.read_text(encoding="utf-8") != campaign.environments:
                path.write_text(campaign.environments, encoding="utf-8")
            more.insert(0, path)
        return Host(more, lambda name: show(Progress(0, 0, f"looks for {name}")), found)

    return Runner(own, known, conduct, _say, host_of)


def _say(text: str) -> None:
    """Prints a line of its own, between the tables of the figures."""
    print(f"\n== {text}", flush=True)


def _ended(own: Kept, figures: Sequence[tuple[Campaign, Figure]]) -> None:
    """Prints what is made and what is missing."""
    wanted = [figure for _, figure in figures if figure.design is not None]
    missing = [figure.id for figure in wanted if not own.outcomes[figure.id].made]
    print(f"\n{len(wanted) - len(missing)} of {len(wanted)} figures are made: {own.into}")
    for name in missing:
        print(f"missing: {name}: {own.outcomes[name].why}")
    others = [f.id for _, f in figures if f.design is None and f.model is None]
    if others:
        print(f"not of size {own.size} (the page says why): {', '.join(others)}")


def _packages(figures: Sequence[Figure], known: Table) -> int:
    """Prints the packages that the host lacks, in one line that apt-get takes."""
    wanted = needs.packages(figures, known)
    missing = needs.lacking(wanted)
    if missing is None:
        note("this is not Debian: all packages are listed by Debian's names")
    print(" ".join(wanted if missing is None else missing))
    return 0


def _list(figures: Sequence[tuple[Campaign, Figure]], into: Path, known: Table) -> int:
    """Prints the table of figures."""
    there = kept.read(into)
    for _, figure in figures:
        show(Progress(0, 0, f"looks at {figure.id}"))
        state = _state(figure, there) or needs.why_not(figure, known)
        show(Progress(0, 0, ""))
        first = f"{figure.id:<10} {figure.title} ({figure.of})"
        print(textwrap.shorten(first, 96, placeholder=" ..."))
        print(f"{'':<10} {state or 'can be made here'}")
    return 0


def _state(figure: Figure, there: Kept | None) -> str | None:
    """Returns what is measured of a figure, if anything is."""
    if there is None:
        return None
    rows, done = progress(there.directory(figure.id))
    outcome = there.outcomes.get(figure.id)
    if outcome is not None and outcome.made and done:
        return f"made: {done} of {rows} rows, size {there.size}"
    return f"{done} of {rows} rows are measured, size {there.size}" if done else None


# The page.


def report(
    campaigns: Sequence[Campaign], own: Kept, oracle: Path | None, place: Path | None = None
) -> bool:
    """Writes the page of some campaigns, of all that is kept, beside the records or elsewhere.

    Returns whether the A/A guard trusts all figures.
    """
    try:
        from coracle_lab.report import page
    except ImportError as error:
        raise LabError(f"no page: {error}", "install coracle-lab[report]") from error
    sections = [
        page.Section(figure, None, *modelled.form_of(own, figure))
        if figure.model is not None
        else page.Section(_noted(own, figure), _store(own, figure), missing(own, figure))
        for campaign in campaigns
        for figure in campaign.figures
    ]
    one = len(campaigns) == 1
    title = campaigns[0].title if one else TITLE
    into = place or own.into
    trusted = page.write(title, text(campaigns, own), sections, into, oracle, alone=True)
    note(f"the page is {into / 'index.html'}; the verdicts alone are {into / page.ALONE}")
    return trusted


def _store(own: Kept, figure: Figure) -> Store | None:
    """Returns the records of a figure; None if there are none."""
    directory = own.directory(figure.id)
    design = directory / "design.toml"
    if not design.exists() or not (directory / "records.jsonl").exists():
        return None
    return store.create(directory, store.read_text(design), str(design))


def _noted(own: Kept, figure: Figure) -> Figure:
    """Returns a figure whose last words say what is not measured yet, if anything is."""
    why = missing(own, figure)
    if why is None:
        return figure
    return replace(figure, shows_not=f"{figure.shows_not} Not all of it is measured: {why}.")


def missing(own: Kept, figure: Figure) -> str | None:
    """Returns what is missing of a figure, and why; None if it is made."""
    outcome = own.outcomes.get(figure.id)
    if outcome is None:
        return figure.reason or "it was not asked for"
    return None if outcome.made else outcome.why


def text(campaigns: Sequence[Campaign], own: Kept) -> str:
    """Returns the page's first words: of which papers it is, and what is left out."""
    if len(campaigns) == 1:
        lines = [campaigns[0].text]
    else:
        lines = [f"{ABOUT} {'; '.join(campaign.title for campaign in campaigns)}."]
    left_out: dict[str, str] = {}
    for name in sorted(own.outcomes):
        left_out |= own.outcomes[name].left_out
    if left_out:
        words = "; ".join(f"{name}: {left_out[name]}" for name in sorted(left_out))
        lines.append(f"Environments that are left out on this machine: {words}.")
    return " ".join(lines)


# Campaign files in the other commands.


def of_file(options: argparse.Namespace) -> tuple[Campaign, Path] | None:
    """Returns the campaign of a command's FILE and the directory of its records.

    None if the file is a design, or a directory of records.
    """
    given: Path = options.file
    path = designs.found(given)
    if path.is_dir() or not path.exists() or not parse.is_campaign(store.read_text(path)):
        return None
    beside = path if path == given else Path(path.name)
    into: Path = options.records or beside.with_name(f"{path.stem}-records")
    there = kept.read(into)
    size = getattr(options, "size", None) or (there.size if there is not None else "quick")
    return designs.load(path, parse.size_of(size)), into


def plan_file(options: argparse.Namespace) -> int:
    """`coracle-lab plan` of a campaign file, or else of a design."""
    campaign = of_file(options)
    if campaign is None:
        _no_size(options)
        return experiment.plan(options)
    return plan(*campaign, options)


def run_file(options: argparse.Namespace) -> int:
    """`coracle-lab run` of a campaign file, or else of a design."""
    campaign = of_file(options)
    if campaign is None:
        _no_size(options)
        return experiment.run(options)
    experiment.check_site(options)
    return measure(*campaign, options)


def _no_size(options: argparse.Namespace) -> None:
    if options.size is not None:
        raise LabError("--size is of campaign files", "a design has its replicates itself")


def plan(campaign: Campaign, into: Path, options: argparse.Namespace) -> int:
    """Prints the figures of a campaign and their rows."""
    if options.environments:
        what = "a plan of a campaign file has its groups of environments as they are"
        raise LabError(what, "leave --environments out")
    known, there = table(options.applications), kept.read(into)
    for figure in campaign.figures:
        state = _state(figure, there) or needs.why_not(figure, known)
        print(f"{figure.id}: {figure.title}: {state or 'can be made here'}")
        if figure.design is not None:
            print(f"  {_rows(figure)}")
    return 0


def _rows(figure: Figure) -> str:
    """Returns how many rows a figure has before its groups of environments are known."""
    tree = needs.tree_of(figure)
    assert tree is not None
    levels = {name: len(some) for name, some in tree["factors"].items()}
    groups = [one for one in tree["factors"].get(parse.FACTOR, ()) if str(one).startswith("@")]
    words = " x ".join(f"{count} {name}" for name, count in levels.items())
    blocks = tree.get("replicates", "blocks to a precision")
    beside = f" ({', '.join(groups)}: what is usable here)" if groups else ""
    return f"{words}{beside}, {blocks} blocks"


def measure(campaign: Campaign, into: Path, options: argparse.Namespace) -> int:
    """Measures the figures of a campaign file that are not measured yet."""
    figures = [(campaign, figure) for figure in campaign.figures]

    def conduct(made: Store) -> int:
        site = experiment.site_of(options, made.design)
        return experiment.conduct(made, options.output_limit << 20, site)

    with _opened(into, campaign.size) as own:
        runner = _runner(own, table(options.applications), conduct, options.environments)
        runner.tables = tuple(options.applications)
        # Nodes of a cluster take the place of those that are simulated.
        runner.simulates = not (options.site or options.launcher)
        status = runner.run(figures)
    if status != INTERRUPTED:
        _ended(own, figures)
        print(f"page: coracle-lab report {options.file}")
    return status


def page_of(
    campaign: Campaign, into: Path, oracle: Path | None = None, place: Path | None = None
) -> bool:
    """Writes the page of a campaign file's records; returns whether A/A trusts all figures."""
    own = kept.read(into)
    if own is None:
        raise LabError(
            f"{into}: there are no records of {campaign.name}",
            f"coracle-lab run {campaign.name}",
        )
    return report([campaign], own, oracle, place)


__all__ = ["add", "of_file", "page_of", "plan_file", "run", "run_file"]
