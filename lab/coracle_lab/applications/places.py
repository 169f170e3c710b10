"""The directories of an application, and the words that its placeholders become for one row.

`{source}` and `{build}` have the same path on the host and in containers, and are read-only there;
`{scratch}` too, and can be written to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coracle_lab.applications.resolve import substituted
from coracle_lab.design import Application
from coracle_lab.design.application import PLACEHOLDER, RANKS


@dataclass(frozen=True)
class Places:
    """The directories that stand for `{source}`, `{build}` and `{scratch}`, where there are any."""

    source: Path | None = None
    build: Path | None = None
    scratch: Path | None = None

    def values(self) -> dict[str, str]:
        """Returns them by the names of their placeholders."""
        found = {"source": self.source, "build": self.build, "scratch": self.scratch}
        return {name: str(path) for name, path in found.items() if path is not None}

    def volumes(self, can_be_readonly: bool) -> Iterator[str]:
        """Yields the volumes that show them in a container."""
        readonly = ":ro" if can_be_readonly else ""
        for path in (self.source, self.build):
            if path is not None:
                yield f"{path}:{path}{readonly}"
        if self.scratch is not None:
            yield f"{self.scratch}:{self.scratch}"


def values(application: Application, levels: Mapping[str, str]) -> dict[str, str]:
    """Returns what the placeholders of factors and parameters stand for in a row."""
    return {RANKS: "1", **application.parameters, **levels}


def ranks(application: Application, levels: Mapping[str, str]) -> int | None:
    """Returns the number of ranks of a row; None if it has no ranks."""
    text = levels.get(RANKS, application.parameters.get(RANKS, ""))
    return int(text) if text.isdigit() else None


def image(application: Application, levels: Mapping[str, str]) -> str | None:
    """Returns the image of a row."""
    if application.image is None:
        return None
    return substituted(application.image, values(application, levels))


def uses(application: Application, name: str) -> bool:
    """Tells whether the words that run the application name a placeholder."""
    words = [*application.command, *application.variables.values(), *application.volumes]
    words += [application.workdir or "", application.rootfs or ""]
    return any(name in PLACEHOLDER.findall(word) for word in words)
