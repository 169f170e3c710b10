"""What the kernel counts beside a program: stolen time, pressure, load and frequency.

A counter that the kernel does not offer is None. Python 3.6, as `timer.py`, which loads this file.
"""

# ruff: noqa: PTH123, B905
# Python 3.6 knows no zip(strict=...), and importing pathlib would double the timer's start.

import os


def words_of(path: str) -> "list[str]":
    """Return a file's words, or none if the kernel does not offer the file."""
    try:
        with open(path) as file:
            return file.read().split()
    except (OSError, UnicodeDecodeError):
        return []


def frequency_mhz() -> "float | None":
    """Return the mean frequency of the processors that this process may use."""
    place = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    found = [words_of(place.format(cpu)) for cpu in sorted(os.sched_getaffinity(0))]
    values = [int(words[0]) / 1000.0 for words in found if words]
    return sum(values) / len(values) if values else None


def throttled() -> "tuple[float | None, float | None]":
    """Return how often and how many seconds the control group's limit has stopped it."""
    for group in words_of("/proc/self/cgroup"):
        for root in ("", "/unified", "/cpu", "/cpu,cpuacct"):
            words = words_of("/sys/fs/cgroup" + root + group.split(":", 2)[2] + "/cpu.stat")
            told = dict(zip(words[::2], words[1::2]))
            if "nr_throttled" in told:
                usec, nsec = told.get("throttled_usec", 0), told.get("throttled_time", 0)
                return int(told["nr_throttled"]), int(usec) / 1e6 + int(nsec) / 1e9
    return None, None


def readings() -> "dict[str, float | None]":
    """Return the counters whose growth during a row is recorded; None: not offered here."""
    ticks = words_of("/proc/stat")
    periods, seconds = throttled()
    found = {
        "steal_ticks": int(ticks[8]) if len(ticks) > 8 else None,
        "throttled_periods": periods,
        "throttled_s": seconds,
    }  # type: dict[str, float | None]
    for kind in ("cpu", "io", "memory"):
        totals = [word[6:] for word in words_of("/proc/pressure/" + kind) if "total=" in word]
        found[f"pressure_{kind}_us"] = int(totals[0]) if totals else None
    return found


def growth(
    before: "dict[str, float | None]", after: "dict[str, float | None]"
) -> "dict[str, float | None]":
    """Return the differences; None where the kernel does not offer the counter."""
    pairs = [(name, first, after[name]) for name, first in before.items()]
    return {name: None if a is None or b is None else b - a for name, a, b in pairs}
