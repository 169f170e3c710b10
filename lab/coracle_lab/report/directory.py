"""Opens directories of records to read them, and says how a design without a figure is drawn."""

from __future__ import annotations

from pathlib import Path

from coracle_lab.campaign.model import Figure, Layout
from coracle_lab.errors import LabError
from coracle_lab.report.judged import ANY
from coracle_lab.run import store
from coracle_lab.run.store import Store

SHOWS_NOT = (
    "It does not show other machines, other inputs, other versions, or more ranks than were"
    " measured. A ratio holds for this program as it was run here; what is said of one session"
    " need not hold for the next."
)


def opened(directory: Path) -> Store:
    """Returns the store of a directory of records; nothing is written there."""
    for name in ("design.toml", "rows.csv", "records.jsonl"):
        if not (directory / name).is_file():
            raise LabError(
                f"{directory}: it holds no {name}",
                "name a directory that coracle-lab run or try has made",
            )
    design = directory / "design.toml"
    return store.create(directory, store.read_text(design), str(design))


def below(directory: Path) -> list[Path]:
    """Returns the directories of records in a directory: itself, or those right below it."""
    if not directory.is_dir():
        raise LabError(f"{directory}: there is no such directory")
    if (directory / "design.toml").exists():
        return [directory]
    found = sorted(path.parent for path in directory.glob("*/design.toml"))
    if not found:
        raise LabError(
            f"{directory}: it holds no records",
            "name a directory that coracle-lab run or try has made",
        )
    return found


def figure_of(found: Store, name: str) -> Figure:
    """Returns how the records of a plain design are drawn."""
    design = found.design
    factors = [factor.name for factor in design.factors]
    x = next((one for one in ("ranks", "threads") if one in factors), None)
    application = design.application
    series = any(one.endswith(ANY) or "@" in one for one in design.responses)
    rate = application is not None and application.is_rate(design.responses[0])
    layout: Layout = "times"
    if design.screens:
        layout, x = "effects", None
    elif series:
        layout, x = "series", None
    elif rate:
        layout = "rates"
    elif design.nested is not None:
        layout = "distribution"
    return Figure(
        id=name,
        title=design.name if name == design.name else f"{name}: {design.name}",
        of=design.text,
        layout=layout,
        responses=design.responses,
        shows_not=SHOWS_NOT,
        x=x,
    )
