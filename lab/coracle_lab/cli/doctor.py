"""`coracle-lab doctor`: what this host can measure, and how small an effect."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

from coracle_lab import applications, environments
from coracle_lab.cli.progress import clear, show
from coracle_lab.facts import machine
from coracle_lab.run import hardware, sentinel
from coracle_lab.run.session import Progress

SENTINELS = 20


def run(options: argparse.Namespace) -> int:
    """Prints environments, clocks, counters, noise, and what they allow to see."""
    _environments(options)
    _applications(options)
    facts = machine.facts(Path.cwd())
    found, state = facts["machine"], facts["state"]
    print("\nmachine")
    cpus = len(facts["process"]["affinity"])
    print(
        f"  {found['cpu']}, {cpus} processors, {found['memory_bytes'] >> 30} GiB,"
        f" Linux {state['kernel']}"
    )
    resolution = time.clock_getres(time.CLOCK_MONOTONIC_RAW)
    print(f"  clock: {state['clock']}, resolution {resolution * 1e9:.0f} ns")
    pressure = "yes" if os.path.exists("/proc/pressure/cpu") else "no"  # noqa: PTH110
    counters = hardware.Counters()
    counted = [name for name, file in counters.files.items() if file is not None]
    counters.read()
    print(f"  pressure (PSI): {pressure}; hardware counters: {', '.join(counted) or 'none here'}")
    governors = ", ".join(state["governors"]) or "not told by the kernel"
    print(f"  governor: {governors}; huge pages: {state['huge_pages']}")
    for text in machine.warnings(facts):
        print(f"  note: {text}")
    _noise()
    return 0


def _environments(options: argparse.Namespace) -> None:
    """Prints each environment with its version, or why it cannot be used."""
    names = environments.names(options.environments)
    width = max(len(name) for name in names)
    print("environments")
    for number, name in enumerate(names):
        show(Progress(number, len(names), "looks for environments"))
        probe = environments.find(name, options.environments).probe()
        clear()
        print(f"  {name:{width}}  {_said(probe)}")


def _said(probe: environments.Probe) -> str:
    """Returns what is told of an environment."""
    if not probe.usable:
        return f"no: {probe.why}"
    if not probe.tried:
        return f"{probe.version} (not tried: its entry takes an image, and has no probe)".lstrip()
    return probe.version or "usable"


def _applications(options: argparse.Namespace) -> None:
    """Prints each application with what it is."""
    known = applications.table(options.applications).applications
    width = max(map(len, known))
    print("\napplications")
    for name, entry in sorted(known.items()):
        print(f"  {name:{width}}  {entry['text']}")


def _noise() -> None:
    """Prints how much a fixed computation varies here, and how many blocks that takes."""
    times = []
    for number in range(SENTINELS):
        show(Progress(number, SENTINELS, "measures the machine's noise"))
        times.append(sum(sentinel.measure()))
    clear()
    print(
        f"\nnoise: {SENTINELS} runs of the same computation of"
        f" {statistics.median(times) * 1e3:.0f} ms"
    )
    deviation = statistics.stdev(times) / statistics.mean(times)
    print(
        f"  variation {deviation * 100:.1f} % (fastest {min(times) * 1e3:.0f} ms,"
        f" slowest {max(times) * 1e3:.0f} ms)"
    )
    try:
        from coracle_lab import stats
    except ImportError:
        print("  blocks needed: install coracle-lab[report]")
        return
    for margin in (0.01, 0.03, 0.10):
        blocks = stats.blocks_needed(deviation * 2**0.5, margin, 0.95)
        print(f"  to know a ratio to ±{margin * 100:g} % takes about {blocks} blocks")
