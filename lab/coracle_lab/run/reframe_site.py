"""Writes ReFrame's configuration for rows that run here, and its arguments.

Nothing is written outside the directory of the records: ReFrame's reports, its database and
the topology that it detects would otherwise go to the user's home.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLAIN = re.compile(r"[A-Za-z0-9_./@%+=:,-]+")


@contextlib.contextmanager
def work(directory: Path) -> Iterator[Path]:
    """Yields the directory for ReFrame's own files: below the records', or a temporary one.

    ReFrame 4.10 splits the path of a job's script at spaces and quotes, so a path that has some
    cannot be its working directory. It executes that script, so the file system has to allow that.
    """
    no_exec = os.statvfs(directory).f_flag & os.ST_NOEXEC
    if PLAIN.fullmatch(str(directory)) and not no_exec:
        path = directory / "reframe"
        path.mkdir(exist_ok=True)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="coracle-lab-") as name:
        yield Path(name)


@dataclass(frozen=True)
class Site:
    """Where rows run: this host with one of ReFrame's launchers, or a site file of the user's."""

    launcher: str = "local"
    file: str | None = None
    system: str | None = None

    @property
    def is_local(self) -> bool:
        """Tells whether the words of a row are all that starts its program."""
        return self.file is None and self.launcher == "local"

    def environment(self) -> dict[str, str]:
        """Returns the variables that ReFrame gets.

        The caller's own ones for ReFrame belong to a site file. Without one they would choose
        another system, and other places for ReFrame's files.
        """
        if self.file is not None:
            return dict(os.environ)
        return {name: value for name, value in os.environ.items() if not name.startswith("RFM_")}


def configuration(work: Path, launcher: str) -> dict[str, object]:
    """Returns a site of one partition that runs everything on this host, one by one."""
    return {
        "systems": [
            {
                "name": "lab",
                "hostnames": [".*"],
                "partitions": [
                    {
                        "name": "host",
                        "scheduler": "local",
                        "launcher": launcher,
                        "environs": ["builtin"],
                        "max_jobs": 1,
                    }
                ],
            }
        ],
        "environments": [{"name": "builtin"}],
        "storage": [{"enable": False}],
        "general": [
            {
                "report_file": str(work / "report.json"),
                "topology_prefix": str(work / "topology"),
                "use_login_shell": False,
                # ReFrame asks ten times a second whether the row has ended, then less and less:
                # it sees the end soon, and hardly runs beside the row.
                "poll_rate_max": 10,
                "poll_rate_min": 4,
                "poll_rate_decay": 0.1,
            }
        ],
        "logging": [
            {
                "handlers": [],
                "handlers_perflog": [],
                "handlers$": [
                    {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}
                ],
            }
        ],
    }


def arguments(work: Path, site: Site) -> list[str]:
    """Returns ReFrame's arguments."""
    file = site.file
    if file is None:
        path = work / "site.json"
        path.write_text(json.dumps(configuration(work, site.launcher), indent=1))
        file = str(path)
    return [
        "-C",
        file,
        *(["--system", site.system] if site.system else []),
        "-c",
        str(Path(__file__).with_name("rows.py")),
        "--prefix",
        str(work),
        "--exec-order=name",
        "--exec-policy=serial",
        "--nocolor",
        "-r",
    ]
