"""Measures files by fio in the six phases of iozone, and prints the bytes a second of each.

Words: PLACE MIB RECORD_KIB DIRECT. The file is made in the directory PLACE, and removed. Written
data are on the medium when a phase ends. `reread` may come from the page cache, `read` may not:
its file is dropped from there before, as far as the file system lets fio do that. DIRECT 1
bypasses the cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PHASES = ("write", "rewrite", "read", "reread", "randread", "randwrite")
KINDS = {"rewrite": "write", "reread": "read"}
FILE = "coracle-lab.fio"


def job(place: str, mib: int, record_kib: int, direct: int) -> str:
    """Returns fio's job file."""
    lines = [
        "[global]",
        f"filename={Path(place) / FILE}",
        f"size={mib}m",
        f"bs={record_kib}k",
        f"direct={direct}",
        # Open files by the usual system calls, as iozone does.
        "ioengine=psync",
        "end_fsync=1",
        "overwrite=0",
        "randseed=20",
        "random_generator=lfsr",
        "thread=1",
    ]
    for phase in PHASES:
        kind = KINDS.get(phase, phase)
        lines += [f"[{phase}]", "stonewall", f"rw={kind}"]
        lines += [f"invalidate={int(phase in ('read', 'randread'))}"]
    return "\n".join(lines) + "\n"


def rates(told: dict[str, Any], size: int) -> dict[str, float]:
    """Returns the bytes a second of each phase. Raises `ValueError` if one did not do its work."""
    found: dict[str, float] = {}
    for one in told["jobs"]:
        phase = one["jobname"]
        kind = "read" if phase.endswith("read") else "write"
        part = one[kind]
        if one["error"] != 0:
            raise ValueError(f"{phase} ended with error {one['error']}")
        if part["io_bytes"] != size:
            raise ValueError(f"{phase} moved {part['io_bytes']} of {size} bytes")
        # fio tells the time of a phase, with its fsync, in milliseconds, and that of its
        # transfers in nanoseconds.
        seconds = part["runtime"] * 1e-3
        if kind == "read":
            seconds = part["lat_ns"]["mean"] * part["lat_ns"]["N"] * 1e-9
        if seconds <= 0:
            raise ValueError(f"{phase} took no time: take a larger file")
        found[f"{phase}_bytes_per_s"] = size / seconds
    missing = [phase for phase in PHASES if f"{phase}_bytes_per_s" not in found]
    if missing:
        raise ValueError(f"there is no phase {missing[0]}")
    return found


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 5:
        sys.stderr.write("error: words: PLACE MIB RECORD_KIB DIRECT\n")
        raise SystemExit(2)
    place, (mib, record_kib, direct) = sys.argv[1], map(int, sys.argv[2:])
    if not Path(place).is_dir():
        # fio would make it, perhaps on another file system than the one that is meant.
        sys.stderr.write(f"error: {place} is not a directory\n")
        raise SystemExit(1)
    try:
        done = subprocess.run(
            ["fio", "--output-format=json", "-"],
            input=job(place, mib, record_kib, direct),
            capture_output=True,
            text=True,
            check=False,
        )
        text = done.stdout[done.stdout.find("{") :]
        found = rates(json.loads(text), mib << 20) if done.returncode == 0 else {}
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: fio: {error}\n")
        raise SystemExit(1) from error
    finally:
        (Path(place) / FILE).unlink(missing_ok=True)
    if not found:
        sys.stderr.write(f"error: fio ended with {done.returncode}: {done.stderr.strip()[-500:]}\n")
        raise SystemExit(1)
    print("lab", json.dumps(found))


if __name__ == "__main__":
    main()
