"""Adds a known cost to a program, so that a measurement can be checked: it must find this cost.

    python3 -I -S planted.py work PERCENT PROGRAM [ARGUMENT...]
    python3 -I -S planted.py start MILLISECONDS PROGRAM [ARGUMENT...]

`work` runs the program, then computes for PERCENT of the CPU time that the program and the children
that it has waited for have used. `start` waits, then becomes the program.

The interpreter's own start takes some 10 ms of CPU time. It counts as a part of the planted cost,
so that the cost is what was asked for as long as it is larger than that. This file imports little
for the same reason, and nothing of the package.
"""

import os
import signal
import sys
import time

NOT_FOUND = 127


def work(percent: float, words: list[str]) -> int:
    """Runs the program, then burns CPU time. Returns the status to end with, negative: a signal."""
    try:
        child = os.posix_spawnp(words[0], words, os.environ)
    except OSError as error:
        print(f"error: {words[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND

    def forward(number: int, _frame: object) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    _, status, usage = os.wait4(child, 0)
    goal = percent / 100 * (usage.ru_utime + usage.ru_stime)
    while time.process_time() < goal:
        pass
    return os.waitstatus_to_exitcode(status)


def start(milliseconds: float, words: list[str]) -> int:
    """Waits, then becomes the program. Returns only if there is none."""
    rest = milliseconds / 1000 - time.process_time()
    if rest > 0:
        time.sleep(rest)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"error: {words[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


def main(words: list[str]) -> int:
    """Does what the command line says."""
    kinds = {"work": work, "start": start}
    if len(words) < 3 or words[0] not in kinds:
        print("error: usage: planted.py work|start NUMBER PROGRAM [ARGUMENT...]", file=sys.stderr)
        return 2
    return kinds[words[0]](float(words[1]), words[2:])


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    sys.exit(ended)
