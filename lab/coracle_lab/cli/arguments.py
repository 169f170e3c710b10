"""The words of the command line, typed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from coracle_lab.cli import compare, experiment, export, model, page, papers
from coracle_lab.errors import LabError


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like all others of the lab."""

    def error(self, message: str) -> NoReturn:
        """Raises the error instead of printing argparse's text."""
        raise LabError(message, f"{self.prog} --help")


def _positive(word: str) -> int:
    number = int(word) if word.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f'"{word}" is not a number of 1 or more')
    return number


def _seconds(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f'"{word}" is not a time in seconds')
    return number


def _add_applications(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--applications",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a table of your own applications and images (TOML); can be repeated",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    _add_applications(parser)
    parser.add_argument(
        "--environments",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a table of your own environments (TOML); can be repeated",
    )
    parser.add_argument(
        "--records", metavar="DIR", type=Path, help="where records are kept, and gone on with"
    )


def _add_output_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output-limit",
        metavar="MIB",
        type=_positive,
        default=experiment.OUTPUT_MIB,
        help=f"a row that prints more has failed (default: {experiment.OUTPUT_MIB})",
    )


def _add_try(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "try",
        help="compare environments for one program",
        usage="coracle-lab try [OPTIONS] -- PROGRAM [ARGS]",
        description="Runs the program in each environment, once in every block, in random order,"
        " and prints ratio, interval and verdict. native and native-again (A/A) are always"
        " included.",
    )
    add = parser.add_argument
    add("-n", "--blocks", type=_positive, default=10, help="runs of each (default: 10)")
    add("--env", action="append", default=[], metavar="NAME", help="an environment; repeat it")
    add("--image", metavar="NAME", help="image for environments that take images")
    add("--rootfs", metavar="DIR", help="tree for environments that take trees")
    add("-v", "--volume", action="append", metavar="HOST:CONTAINER[:ro]", help="repeat it")
    add("-w", "--workdir", metavar="DIR", help="working directory (default: this one)")
    add("-e", "--variable", action="append", default=[], metavar="NAME=VALUE", help="repeat it")
    add("--gpus", metavar="WHICH", help="GPUs, as the environments take them")
    add("--success", metavar="REGEX", help="the output of a right run contains it")
    add("--timeout", type=_seconds, metavar="SECONDS", help="for each run (default: 3600)")
    add("--margin", type=float, default=0.01, help="what counts as equal (default: 0.01)")
    add("--pin", metavar="CPUS", help="processors of the program, as taskset -c takes them")
    add("--seed", type=int, help="seed of the order (default: drawn, and kept)")
    _add_common(parser)
    _add_output_limit(parser)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Returns the options; `program` holds the words after `--`."""
    own, program = list(words), None
    if "--" in own:
        at = own.index("--")
        own, program = own[:at], own[at + 1 :]
    parser = _Parser(
        prog="coracle-lab", description="What does a container cost? Measured, with a verdict."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_try(commands)
    doctor = commands.add_parser("doctor", help="what this host can measure, and how small")
    doctor.add_argument("--environments", metavar="FILE", type=Path, action="append", default=[])
    _add_applications(doctor)
    for name, what in (
        ("plan", "the rows of a design, their time, the smallest effect that they can show"),
        ("run", "run a design; stops and goes on where it was"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument(
            "file", metavar="FILE", type=Path, help="design file, campaign file, or records"
        )
        command.add_argument(
            "--size", metavar="SIZE", help="of a campaign file: smoke, quick (default) or day"
        )
        _add_common(command)
        if name == "run":
            _add_output_limit(command)
            command.add_argument("--launcher", metavar="NAME", help="ReFrame's launcher of ranks")
            command.add_argument("--site", metavar="FILE", help="ReFrame's site file")
            command.add_argument("--system", metavar="NAME", help="system (and partition) of it")
    papers.add(commands)
    model.add(commands)
    page.add(commands)
    compare.add(commands)
    export.add(commands)
    options = parser.parse_args(own)
    options.program = program
    if program is not None and options.command != "try":
        parser.error(f'"{options.command}" takes no program')
    if options.command == "try" and not program:
        raise LabError(
            "no program is given",
            "coracle-lab try -n 30 --env coracle --image NAME -- PROGRAM ARGS",
        )
    return options
