"""Runs NetPIPE, and prints the time one way for each size.

Words: openmpi|mpich|tcp LARGEST ROUNDS. Messages have 1 byte to LARGEST; with ROUNDS 0 NetPIPE
chooses how often each is sent, to take a quarter of a second. NPopenmpi and NPmpich2 are two
ranks, which the launcher of their library starts; NPtcp is one process, or two ranks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pair

PROGRAMS = {"openmpi": "NPopenmpi", "mpich": "NPmpich2"}
OUTPUT = "np.out"
MEGABIT = 1 << 20
"""Bits of the "Mbps" that NetPIPE prints."""


def series(text: str, largest: int) -> Iterator[dict[str, float]]:
    """Yields bytes and seconds one way from NetPIPE's file. Raises `ValueError`.

    The time is that of the rate: the file's own times have ten nanoseconds as their last digit.
    """
    last = 0
    for line in text.splitlines():
        size, rate = line.split()[:2]
        last = int(size)
        if float(rate) <= 0:
            raise ValueError(f"the rate of {last} bytes is {rate}")
        yield {"bytes": last, "one_way_s": 8 * last / (float(rate) * MEGABIT)}
    if last < largest / 2:
        raise ValueError(f"it ends at {last} bytes, before {largest}")


def _print(largest: int) -> None:
    try:
        for line in series(Path(OUTPUT).read_text(), largest):
            print("lab", json.dumps(line))
    except (OSError, ValueError) as error:
        pair.fail(f"{OUTPUT} of NetPIPE: {error}")


def _mpi(program: str, words: list[str], largest: int) -> None:
    if pair.ranks() != 2:
        pair.fail(f"{program} is two ranks, which the launcher of its library starts", 2)
    try:
        if pair.rank() != 0:
            os.execvp(program, [program, *words])
        # MPICH's launcher is at the other end of a descriptor.
        done = subprocess.run(
            [program, *words], stdout=subprocess.DEVNULL, close_fds=False, check=False
        )
    except OSError as error:
        pair.fail(f"{program}: {error.strerror}")
        raise
    if done.returncode != 0:
        pair.fail(f"{program} ended with status {done.returncode}")
    _print(largest)


def _tcp(words: list[str], largest: int) -> None:
    def client(address: str, port: int) -> None:
        pair.output(["NPtcp", "-h", address, "-P", str(port), *words])
        _print(largest)

    pair.run(lambda _, port: ["NPtcp", "-P", str(port), *words], client)


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 4 or sys.argv[1] not in (*PROGRAMS, "tcp"):
        pair.fail("words: openmpi|mpich|tcp LARGEST ROUNDS", 2)
    library, largest, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    words = ["-l", "1", "-u", str(largest), "-p", "0", "-o", OUTPUT]
    words += ["-n", str(rounds)] if rounds else []
    if library == "tcp":
        _tcp(words, largest)
    else:
        _mpi(PROGRAMS[library], words, largest)


if __name__ == "__main__":
    main()
