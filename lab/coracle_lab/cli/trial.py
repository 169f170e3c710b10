"""`coracle-lab try`: a design for one program, made of the words of the command line."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from coracle_lab import applications
from coracle_lab.applications.toml import array, quoted
from coracle_lab.cli import experiment
from coracle_lab.design import parse
from coracle_lab.design.application import PLACEHOLDER
from coracle_lab.errors import LabError
from coracle_lab.run import store

ALWAYS = ("native", "native-again")
"""The base, and the same once more (A/A): they are in every trial."""
SYSTEM = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys",
          "/usr", "/var")  # fmt: skip
"""Directories that are not mounted into a container because one works in them."""


def _command(program: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the words of a design's command, and parameters.

    `{name}` means a factor in a design, but not to the user of `try`: a word that has it becomes
    a parameter whose value is that word.
    """
    parameters: dict[str, str] = {}
    return [_plain(word, f"word{at}", parameters) for at, word in enumerate(program)], parameters


def _plain(word: str, name: str, parameters: dict[str, str]) -> str:
    """Returns what stands for a word in a design: a parameter, if it looks like a placeholder."""
    if not PLACEHOLDER.search(word):
        return word
    parameters[name] = word
    return f"{{{name}}}"


def _variables(options: argparse.Namespace) -> dict[str, str]:
    found = {}
    for word in options.variable:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise LabError(f'"{word}" is not NAME=VALUE')
        found[name] = value
    return found


def design_text(options: argparse.Namespace, seed: int) -> str:
    """Returns the design file of a trial."""
    words, parameters = _command(options.program)
    variables = {
        name: _plain(value, f"variable{at}", parameters)
        for at, (name, value) in enumerate(_variables(options).items())
    }
    names = list(dict.fromkeys([*ALWAYS, *(options.env or ["coracle"])]))
    directory = os.getcwd()  # noqa: PTH109 (the shell's spelling is what the user sees)
    volumes = options.volume
    if volumes is None:
        volumes = [] if directory in SYSTEM else [f"{directory}:{directory}"]
    volumes = [_plain(word, f"volume{at}", parameters) for at, word in enumerate(volumes)]
    workdir = _plain(options.workdir or directory, "workdir", parameters)
    lines = [
        f"name = {quoted(Path(options.program[0]).name or 'program')}",
        f"seed = {seed}",
        f"replicates = {options.blocks}",
        f"margin = {options.margin}",
    ]
    if options.pin:
        lines.append(f"pinning = {quoted(options.pin)}")
    lines += ["", "[factors]", f"environment = {array(names)}"]
    lines += ["", "[application]", f"command = {array(words)}"]
    lines.append(f"workdir = {quoted(workdir)}")
    if volumes:
        lines.append(f"volumes = {array(volumes)}")
    for name in ("image", "rootfs", "gpus", "success"):
        value = getattr(options, name)
        if value is not None:
            lines.append(f"{name} = {quoted(value)}")
    if options.timeout is not None:
        lines.append(f"timeout_s = {options.timeout}")
    if parameters:
        lines += ["", "[application.parameters]"]
        lines += [f"{name} = {quoted(word)}" for name, word in parameters.items()]
    if variables:
        lines += ["", "[application.variables]"]
        lines += [f"{quoted(name)} = {quoted(value)}" for name, value in variables.items()]
    return "\n".join(lines) + "\n"


def _directory(options: argparse.Namespace) -> Path:
    """Returns the directory of the records: the user's, or a new one below this one."""
    if options.records is not None:
        return Path(options.records)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(options.program[0]).name)[:40] or "program"
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return Path("coracle-lab") / f"{name}-{now}-{secrets.token_hex(2)}"


def run(options: argparse.Namespace) -> int:
    """Runs a trial, or goes on with the one whose records are named."""
    directory = _directory(options)
    kept = directory / "design.toml"
    seed = options.seed
    if seed is None:
        seed = secrets.randbelow(1 << 31)
        if kept.exists():
            seed = parse(store.read_text(kept), str(kept)).seed
    text = applications.resolve(design_text(options, seed), "try", options.applications)
    experiment.known(text, "try", options.environments)
    made = store.create(directory, text, "try", options.environments)
    return experiment.conduct(made, options.output_limit << 20)
