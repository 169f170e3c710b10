"""Hardware counters of a program and of its descendants, by perf_event_open(2).

They are opened in the process that starts the program, switched off: what it starts inherits
them, and exec switches them on. So they count the program alone, in user mode, and a process that
has ended has added its count. Python 3.6, as `timer.py`, which loads this file.
"""

# ruff: noqa: PTH110
# Importing pathlib would double the timer's start.

import ctypes
import os
import struct

HARDWARE = 0
"""PERF_TYPE_HARDWARE."""
COUNTED = {"cycles": 0, "instructions": 1, "cache_misses": 3, "branch_misses": 5}
"""What is recorded, with its number there."""
CALL = {"x86_64": 298, "aarch64": 241}
INHERIT, DISABLED, NO_KERNEL, NO_HYPERVISOR, ON_EXEC = 1 << 1, 1, 1 << 5, 1 << 6, 1 << 12
TIMES = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING: processors have fewer counters than are asked."""
CLOSE_ON_EXEC = 8


class Counters:
    """Counters of what this process starts from now on. Those that it cannot have are None."""

    def __init__(self, counted: "dict[str, int]" = COUNTED, kind: int = HARDWARE) -> None:
        """Open them."""
        self.files = {name: opened(kind, number) for name, number in counted.items()}

    def read(self) -> "dict[str, float | None]":
        """Return what was counted, and close them."""
        found = {}  # type: dict[str, float | None]
        for name, file in self.files.items():
            found[name] = None
            if file is None:
                continue
            try:
                count, enabled, running = struct.unpack("QQQ", os.read(file, 24))
                # One that had to share its register is scaled, as perf does.
                found[name] = round(count * enabled / running) if running else None
            except (OSError, struct.error):
                pass
            os.close(file)
        return found


def opened(kind: int, number: int) -> "int | None":
    """Return the file of a counter; None if the kernel, its settings or the machine have none."""
    call = CALL.get(os.uname().machine)
    if call is None or not os.path.exists("/proc/sys/kernel/perf_event_paranoid"):
        return None
    flags = INHERIT | DISABLED | NO_KERNEL | NO_HYPERVISOR | ON_EXEC
    # struct perf_event_attr in its first size: type, size, config, sample_period, sample_type,
    # read_format, flags, wakeup_events, bp_type, config1.
    attributes = struct.pack("IIQQQQQIIQ", kind, 64, number, 0, 0, TIMES, flags, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, 64)
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(
        ctypes.c_long(call), buffer, ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1),
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )  # fmt: skip
    return file if file >= 0 else None
