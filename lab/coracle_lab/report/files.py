"""The files of a figure that the page links to; equal records give equal bytes.

What takes much room is there once: the rows follow from the design, and every run is in the
records, of which `coracle-lab export` makes CSV.
"""

from __future__ import annotations

import json
from pathlib import Path

from coracle_lab.report import effects, markup, tables
from coracle_lab.report.analysis import Analysis
from coracle_lab.report.tables import Shown
from coracle_lab.run import packed

FILES = (
    ("statistics.csv", "statistics (CSV)"),
    ("design.toml", "design"),
    (packed.NAME, "all runs (records)"),
    ("facts.jsonl", "facts"),
)


def write(found: Analysis, shown: Shown, directory: Path) -> None:
    """Writes the files of a figure beside its pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    store = found.store
    texts = {
        "statistics.csv": effects.statistics_csv(found.screened)
        if found.screened
        else tables.statistics_csv(found.judged, shown),
        "design.toml": (store.directory / "design.toml").read_text(encoding="utf-8"),
        "facts.jsonl": "".join(json.dumps(one, sort_keys=True) + "\n" for one in found.sessions),
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    data = (store.directory / "records.jsonl").read_bytes()
    (directory / packed.NAME).write_bytes(packed.packed(data))


def links(name: str) -> str:
    """Returns links to the files of a figure."""
    return ", ".join(markup.link(f"{name}/{file}", text) for file, text in FILES)
