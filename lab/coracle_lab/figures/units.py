"""Units of responses for axes and tables: the name of a response ends with its unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
RATES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
ENDINGS = (
    ("_bytes_per_s", RATES, "B/s"),
    ("bits_per_s", RATES, "bit/s"),
    ("_gb_per_s", ((1.0, ""),), "GB/s"),
    ("_mib_per_s", ((1.0, ""),), "MiB/s"),
    ("_mb_per_s", ((1.0, ""),), "MB/s"),
    ("_per_day", ((1.0, ""),), "per day"),
    ("_per_s", ((1.0, ""),), "per s"),
    ("_s", TIMES, ""),
    ("_bytes", BYTES, ""),
)
NAMES = {
    "gflops": "GFLOPS",
    "gups": "GUPS",
    "wall_s": "wall time",
    "user_s": "user time",
    "system_s": "system time",
    "max_rss_bytes": "memory",
}


@dataclass(frozen=True)
class Unit:
    """A unit's name, and how many of the response's own unit one of it is."""

    name: str
    size: float = 1.0


def unit(response: str, value: float) -> Unit:
    """Returns the unit in which a value of this size is read well."""
    name = response.partition("@")[0]
    for ending, sizes, text in ENDINGS:
        if name.endswith(ending):
            usable = (one for one in sizes if math.isfinite(value) and value >= one[0])
            size, prefix = next(usable, sizes[-1] if value > 0 else sizes[0])
            return Unit(prefix + text, size)
    for ending in ("gflops", "gups"):
        if name.endswith(ending):
            return Unit(NAMES[ending])
    return Unit("")


def title(response: str) -> str:
    """Returns a response's name as it is read: `one_way_s@64` is `one way @ 64`."""
    name, at, key = response.partition("@")
    if name in NAMES:
        text = NAMES[name]
    else:
        ending = next((e for e, _, _ in ENDINGS if name.endswith(e) and name != e), "")
        text = name.removesuffix(ending).replace("_", " ").strip() or name
    return f"{text} @ {key}" if at and key != "*" else text


def label(response: str, value: float) -> tuple[str, float]:
    """Returns the label of an axis, and what its values are divided by."""
    found = unit(response, value)
    return f"{title(response)} ({found.name})" if found.name else title(response), found.size


def amount(response: str, value: float | None) -> str:
    """Returns a value with its unit; `-` for none."""
    if value is None or not math.isfinite(value):
        return "-"
    found = unit(response, abs(value))
    return f"{value / found.size:.4g} {found.name}".strip()
