"""Reads the facts of a machine, of its state, and of this process that decide a measurement.

They are read once for each session, with standard interfaces of the kernel; what a kernel does
not offer is None. They are published with the page, so nothing in them names the machine or its
user: no host, user, path, control group or address (`plain`). Values of environment variables can
be secrets: only those of variables that are known to decide how programs run are kept.
"""

from __future__ import annotations

import hashlib
import os
import platform
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coracle_lab.facts import plain
from coracle_lab.facts.commit import commit

SOURCES = Path(__file__).parents[2]
"""Where the package's own sources are, unless it is installed."""
CPU = Path("/sys/devices/system/cpu")
KEPT = ("PATH", "LANG", "TZ", "TMPDIR", "SHELL")
KEPT_PREFIXES = ("LC_", "LD_", "OMP_", "OMPI_", "MPICH_", "UCX_", "MKL_", "OPENBLAS_", "MALLOC_")
LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")


def text(path: str | Path) -> str | None:
    """Returns a small file's text without the white space around it, or None."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def field(path: str, name: str) -> str | None:
    """Returns the first value of a file of lines `name: value`."""
    for line in (text(path) or "").split("\n"):
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return None


def machine() -> dict[str, Any]:
    """Returns what stays the same as long as the machine is the same."""
    flags = (field("/proc/cpuinfo", "flags") or "").split()
    kilobytes = (field("/proc/meminfo", "MemTotal") or "0").split()[0]
    cpu = field("/proc/cpuinfo", "model name") or platform.processor() or None
    # It only tells whether two sessions were on one machine: of no use elsewhere, as machine-id(5)
    # demands. Without that file, machines of one kind are taken for one.
    identity = f"coracle-lab {text('/etc/machine-id') or f'{cpu} {kilobytes}'}"
    return {
        "id": hashlib.sha256(identity.encode()).hexdigest()[:8],
        "cpu": cpu,
        "architecture": platform.machine(),
        "cpus_online": text(CPU / "online"),
        "memory_bytes": int(kilobytes) * 1024,
        "virtual": "hypervisor" in flags,
        "product": text("/sys/class/dmi/id/product_name"),
    }


def _chosen(value: str | None) -> str | None:
    """Returns the bracketed word of a list like `always [madvise] never`."""
    if value and "[" in value:
        return value.partition("[")[2].partition("]")[0]
    return value


def _on_battery() -> bool | None:
    """Tells whether a battery supplies the machine; None if it has none."""
    supplies = Path("/sys/class/power_supply")
    try:
        found = {path.name: text(path / "type") for path in supplies.iterdir()}
    except OSError:
        return None
    batteries = [name for name, kind in found.items() if kind == "Battery"]
    if not batteries:
        return None
    return any(text(supplies / name / "status") == "Discharging" for name in batteries)


def state() -> dict[str, Any]:
    """Returns what the machine's administrator, or a battery, can change between two sessions."""
    governors = {text(path) for path in CPU.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    boost = text(CPU / "cpufreq/boost")
    if (no_turbo := text(CPU / "intel_pstate/no_turbo")) is not None:
        boost = "0" if no_turbo == "1" else "1"
    kernel = "/proc/sys/kernel/"
    return {
        "distribution": _distribution(),
        "kernel": platform.release(),
        "kernel_build": platform.version(),
        "boot": (text(kernel + "random/boot_id") or "")[:8] or None,
        "governors": sorted(value for value in governors if value),
        "boost": boost,
        "on_battery": _on_battery(),
        "smt": text(CPU / "smt/active"),
        "clock": text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "huge_pages": _chosen(text("/sys/kernel/mm/transparent_hugepage/enabled")),
        "huge_pages_reserved": text("/proc/sys/vm/nr_hugepages"),
        "address_randomisation": text(kernel + "randomize_va_space"),
        "perf_event_paranoid": text(kernel + "perf_event_paranoid"),
        "user_namespaces": text("/proc/sys/user/max_user_namespaces"),
        "user_namespaces_unprivileged": text(kernel + "unprivileged_userns_clone"),
        "user_namespaces_apparmor": text(kernel + "apparmor_restrict_unprivileged_userns"),
        "load_1m": os.getloadavg()[0],
    }


def _distribution() -> str | None:
    """Returns the name and version of the distribution."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the variables that decide how programs run, and how many there are."""
    kept = {
        name: value
        for name, value in sorted(environment.items())
        if name in KEPT or name.startswith(KEPT_PREFIXES) or name.endswith("_NUM_THREADS")
    }
    return {"kept": kept, "count": len(environment)}


def process() -> dict[str, Any]:
    """Returns what this process hands down to the programs that it starts."""
    limits = {}
    for name in LIMITS:
        soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        limits[name.lower()] = None if soft == resource.RLIM_INFINITY else soft
    return {
        "affinity": sorted(os.sched_getaffinity(0)),
        "nice": os.nice(0),
        "scheduler": os.sched_getscheduler(0),
        "limits": limits,
        "variables": variables(os.environ),
        "root": os.getuid() == 0,
    }


def filesystem(path: Path) -> dict[str, str | None]:
    """Returns the type of the mount that holds a directory."""
    best, kind = "", None
    for line in (text("/proc/self/mountinfo") or "").split("\n"):
        words = line.split(" ")
        place = words[4] if len(words) > 4 else ""
        inside = place == "/" or f"{path.resolve()}/".startswith(f"{place}/")
        if place and inside and len(place) >= len(best):
            best, kind = place, words[words.index("-") + 1]
    return {"type": kind}


def facts(directory: Path) -> dict[str, Any]:
    """Returns all facts of a session whose records are in `directory`."""
    found: dict[str, Any] = plain.tree({
        "machine": machine(),
        "state": state(),
        "process": process(),
        "filesystem": filesystem(directory),
        "python": platform.python_version(),
        "commit": commit(SOURCES) if (SOURCES / "pyproject.toml").exists() else None,
    })  # fmt: skip
    return found


def other_machine(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Returns how another session's machine is named, if it is not this one."""
    if earlier["machine"]["id"] == now["machine"]["id"]:
        return None
    return f"{earlier['machine']['id']} ({earlier['machine']['cpu']})"


def warnings(found: Mapping[str, Any]) -> list[str]:
    """Returns what in a session's facts makes its times uncertain."""
    state, process = found["state"], found["process"]
    said = []
    bad = [name for name in state["governors"] if name not in ("performance",)]
    if bad:
        said.append(f"the governor is {', '.join(bad)}: frequencies change with the load")
    if state["on_battery"]:
        said.append("the machine runs on its battery: frequencies can be lowered")
    cpus = len(process["affinity"])
    if state["load_1m"] > 0.5 * cpus:
        said.append(f"the load was {state['load_1m']:.1f} on {cpus} processors at the start")
    if found["machine"]["virtual"]:
        said.append("this is a virtual machine: its neighbours are not seen")
    if process["nice"] > 0:
        said.append(f"everything runs at nice {process['nice']}")
    return said
