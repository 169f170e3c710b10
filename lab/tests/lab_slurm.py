"""A real Slurm with two nodes on this machine, for the user of a host: `cargo xtask slurm`."""

from __future__ import annotations

import shutil

import lab_host as hosts

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo")


def command(host: hosts.Host) -> list[str]:
    """Returns the words before a command that runs beside a Slurm, which ends with it."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            hosts.skip(f"{program} is not installed")
    copy = host.bin / "xtask"
    if not copy.exists():
        shutil.copy(hosts.built("xtask"), copy)
    return [str(copy), "slurm", "--"]
