"""Runs entries of the table of programs natively, as the lab does, without measuring them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coracle_lab import applications

APPS = Path(__file__).parents[2] / "apps"
TABLE = applications.table()
LIMIT_S = 300


def skip(why: str) -> None:
    """Skips a test, and says why on the terminal too."""
    print(f"SKIP: {why}")
    pytest.skip(why)


def needs(*programs: str) -> None:
    """Skips a test if a program is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        skip(f"not installed: {', '.join(missing)}")


def script(name: str) -> ModuleType:
    """Returns a script of the applications as a module, without leaving files beside it."""
    path = APPS / name
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = before
    return module


class Native:
    """One application with its parameters, on the host."""

    def __init__(self, name: str, directory: Path, parameters: Mapping[str, object]) -> None:
        """Takes a directory for what is built and for the working directory."""
        self.entry = TABLE.applications[name]
        self.build = directory / "build"
        self.scratch = directory / "scratch"
        for path in (self.build, self.scratch):
            path.mkdir(exist_ok=True)
        source = str(self.entry.get("source", "")).replace("{apps}", str(APPS))
        self.values: dict[str, str] = {
            "ranks": "1",
            **{key: str(value) for key, value in self.entry.get("parameters", {}).items()},
            **{key: str(value) for key, value in parameters.items()},
            "source": source,
            "build": str(self.build),
            "scratch": str(self.scratch),
        }

    def fill(self, word: str) -> str:
        """Returns a word without placeholders."""
        for name, value in self.values.items():
            word = word.replace(f"{{{name}}}", value)
        return word

    def environment(self) -> dict[str, str]:
        """Returns the variables of a run."""
        more = {key: self.fill(value) for key, value in self.entry.get("variables", {}).items()}
        return {**os.environ, **more}

    def made(self) -> Native:
        """Runs the commands of its build."""
        for command in self.entry.get("build", ()):
            subprocess.run(
                [self.fill(word) for word in command],
                cwd=self.build,
                check=True,
                timeout=LIMIT_S,
            )
        return self

    def words(self) -> list[str]:
        """Returns its command, for as many ranks as it has."""
        words = [self.fill(word) for word in self.entry["command"]]
        if self.values["ranks"] == "1":
            return words
        needs("mpirun.openmpi")
        launcher = ["mpirun.openmpi", "--oversubscribe", "-n", self.values["ranks"]]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [*launcher, *root, *words]

    def run(self, launcher: Sequence[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs it in an empty working directory."""
        # Podman's store has directories that their owner may not write to.
        subprocess.run(["chmod", "-R", "u+rwX", str(self.scratch)], check=True)
        shutil.rmtree(self.scratch)
        self.scratch.mkdir()
        words = self.words()
        if launcher is not None:
            words = [*launcher, *(self.fill(word) for word in self.entry["command"])]
        return subprocess.run(
            words,
            cwd=self.scratch,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


def told(text: str) -> list[dict[str, Any]]:
    """Returns what the lines of results hold."""
    return [json.loads(line[4:]) for line in text.splitlines() if line.startswith("lab ")]
