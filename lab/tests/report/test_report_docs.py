"""What the repository has of the lab's results: the files that its documents show, and no more."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
RESULTS = REPOSITORY / "docs/lab"
BYTES = 1_000_000
"""What they take at most."""


def shown() -> set[str]:
    """Returns the files of `docs/lab` that the README and the lab's document show."""
    texts = {"README.md": "docs/lab/", "docs/lab.md": "lab/"}
    return {
        name
        for path, directory in texts.items()
        for name in re.findall(rf"\]\({directory}([^)#]+)\)", (REPOSITORY / path).read_text())
    }


def test_what_documents_show_is_there_and_small() -> None:
    names = shown()
    assert "summary.html" in names
    assert sum((RESULTS / name).stat().st_size for name in names) < BYTES


def test_git_leaves_out_all_else() -> None:
    lines = (RESULTS / ".gitignore").read_text().splitlines()
    assert "/*" in lines
    kept = {line.removeprefix("!/") for line in lines if line.startswith("!/")}
    assert {name for name in kept if not name.endswith("/")} == {*shown(), ".gitignore"}
    # Of a directory nothing else is kept.
    assert all(f"/{name}*" in lines for name in kept if name.endswith("/"))


def test_the_summary_asks_for_no_other_file() -> None:
    text = (RESULTS / "summary.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'\sid="([^"]+)"', text))
    found = re.findall(r'\s(?:href|src)="([^"]*)"', text)
    assert len(found) > 50
    for reference in found:
        assert reference == "data:," or reference.removeprefix("#") in ids, reference
    assert "equal within ±1 % (TOST)" in text
