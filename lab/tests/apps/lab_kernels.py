"""Compiles and runs the lab's programs in C, with Open MPI and with MPICH."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

APPS = Path(__file__).parents[2] / "apps"
LIMIT_S = 300


@dataclass(frozen=True)
class Library:
    """An MPI library: its compiler and its launcher."""

    compiler: str
    launcher: str

    def __str__(self) -> str:
        return self.compiler.partition(".")[2]


OPENMPI = Library("mpicc.openmpi", "mpirun.openmpi")
MPICH = Library("mpicc.mpich", "mpiexec.mpich")
LIBRARIES = [OPENMPI, MPICH]


def skip(why: str) -> None:
    """Skips a test, and says why on the terminal too."""
    print(f"SKIP: {why}")
    pytest.skip(why)


def compiled(source: Path, into: Path, *words: str, compiler: str = "gcc") -> Path:
    if shutil.which(compiler) is None:
        skip(f"{compiler} is not installed")
    line = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", *words, str(source), "-o", str(into)]
    subprocess.run([*line, "-lm"], check=True, timeout=LIMIT_S)
    return into


def changed(name: str, into: Path, before: str, after: str) -> Path:
    """Returns the copy of a program's source in which one thing is another: a wrong program."""
    shutil.copy(APPS / "lab.h", into)
    shutil.copytree((APPS / name).parent, into / "changed")
    texts = {path: path.read_text() for path in (into / "changed").glob("*.[ch]")}
    found = [path for path, text in texts.items() if before in text]
    assert len(found) == 1, f"{before!r} is in {len(found)} files"
    found[0].write_text(texts[found[0]].replace(before, after))
    return into / "changed" / Path(name).name


def ended(*words: str | Path) -> subprocess.CompletedProcess[str]:
    line = [str(word) for word in words]
    return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def told(text: str, begin: str = "lab ") -> list[dict[str, Any]]:
    return [json.loads(line[len(begin) :]) for line in text.splitlines() if line.startswith(begin)]


def ranks(library: Library, *words: str | Path, count: int = 2) -> subprocess.CompletedProcess[str]:
    """Runs ranks by the launcher of the library that the program was compiled with."""
    more = ["--allow-run-as-root", "--oversubscribe"] if library == OPENMPI else []
    return ended(library.launcher, *more, "-n", str(count), *words)


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Returns the only result of a run that must be right."""
    assert done.returncode == 0, done.stderr
    (line,) = told(done.stdout)
    return line


def is_refused(done: subprocess.CompletedProcess[str], what: str) -> None:
    """Checks that wrong words are told, with a hint."""
    assert done.returncode == 2, done.stdout
    assert f"error: {what}" in done.stderr
    assert "\n  hint: " in done.stderr


class Kernels:
    """Compiles each program once for each library."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: dict[tuple[str, str], Path] = {}

    def get(self, name: str, library: Library | None = None, more: Sequence[str] = ()) -> Path:
        """Returns a program by the name of its source: "wave/wave.c"."""
        key = (name, str(library))
        if key not in self.made:
            into = self.directory / f"{Path(name).stem}-{library}"
            compiler = library.compiler if library else "gcc"
            words = ["-DLAB_MPI", *more] if library else more
            self.made[key] = compiled(APPS / name, into, *words, compiler=compiler)
        return self.made[key]
