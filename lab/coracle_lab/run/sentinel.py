"""A fixed computation and a fixed loop of system calls, timed before and after each row.

How long they take tells whether the machine was disturbed while a row ran: the work never
changes, so a longer time is a slower machine. The amount of work is a constant and is not
adapted to the machine, so that the times of two sessions can be compared. Standard library
only, Python 3.6 or later: the file travels with ``timer.py``.
"""

import os
import time

ROUNDS = 700000
"""Steps of a linear congruential generator: about 35 ms on an idle processor of 2020."""
CALLS = 140000
"""System calls: about 15 ms."""


def compute(rounds: int = ROUNDS) -> int:
    """Return the state of a generator after some steps: a result that needs all of them."""
    state = 1
    for _ in range(rounds):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    return state


def call(calls: int = CALLS) -> None:
    """Do a number of system calls that read nothing and that no library caches."""
    ask = os.getppid
    for _ in range(calls):
        ask()


def measure(cpu: "int | None" = None) -> "tuple[float, float]":
    """Do both on one processor; return the seconds of the computation and of the calls.

    The process is allowed its former processors afterwards. Without a processor, the first
    allowed one is taken.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before) if cpu is None else cpu})
    try:
        clock = time.CLOCK_MONOTONIC_RAW
        start = time.clock_gettime(clock)
        compute()
        middle = time.clock_gettime(clock)
        call()
        end = time.clock_gettime(clock)
    finally:
        os.sched_setaffinity(0, before)
    return middle - start, end - middle
