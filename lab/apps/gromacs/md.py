"""Runs molecular dynamics of water by GROMACS, and checks its energies.

Words: INPUT STEPS THREADS. A box of SPC/E at 300 K has about -46.6 kJ/mol of potential energy for
each molecule; the mean of a right run is within 2 kJ/mol of that, its temperature within 15 K of
300, and what the thermostat conserves stays within 0.05 kJ/mol for each atom.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

POTENTIAL, POTENTIAL_WITHIN = -46.6, 2.0
TEMPERATURE, TEMPERATURE_WITHIN = 300.0, 15.0
DRIFT_WITHIN = 0.05
COLUMN = 15
"""Width of a column of energies in the log."""


def table(lines: list[str]) -> dict[str, float]:
    """Returns the energies that begin at the first line of a table."""
    found: dict[str, float] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if not names.strip() or not values.strip():
            break
        for at in range(0, len(values.rstrip()), COLUMN):
            found[names[at : at + COLUMN].strip()] = float(values[at : at + COLUMN])
    return found


def tables(text: str) -> list[dict[str, float]]:
    """Returns all energies of a log: of its steps, and at the end the averages."""
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.strip() == "Energies (kJ/mol)"]
    return [table(lines[at + 1 :]) for at in starts]


def judge(text: str) -> dict[str, float]:
    """Returns the results of a log. Raises `ValueError` if the run is not right."""
    found = tables(text)
    rate = re.search(r"^Performance:\s+(\S+)", text, re.MULTILINE)
    atoms = re.search(r"^There are: (\d+) Atoms", text, re.MULTILINE)
    if len(found) < 3 or rate is None or atoms is None or "A V E R A G E S" not in text:
        raise ValueError("the log has no averages: the run did not end")
    first, last, mean = found[0], found[-2], found[-1]
    potential = mean["Potential"] / (int(atoms[1]) / 3)
    drift = (last["Conserved En."] - first["Conserved En."]) / int(atoms[1])
    checks = (
        ("potential energy", potential, POTENTIAL, POTENTIAL_WITHIN),
        ("temperature", mean["Temperature"], TEMPERATURE, TEMPERATURE_WITHIN),
        ("drift of the conserved energy", drift, 0.0, DRIFT_WITHIN),
    )
    for what, value, right, within in checks:
        if not abs(value - right) <= within:
            raise ValueError(f"the {what} is {value:.4g}, and not {right} ± {within}")
    return {
        "ns_per_day": float(rate[1]),
        "potential_kj_per_mol": potential,
        "temperature_k": mean["Temperature"],
    }


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 4:
        sys.stderr.write("error: words: INPUT STEPS THREADS\n")
        raise SystemExit(2)
    run, steps, threads = sys.argv[1:]
    words = ["gmx", "-quiet", "-nobackup", "mdrun", "-s", run, "-nsteps", steps, "-ntmpi", "1"]
    words += ["-ntomp", threads, "-pin", "off", "-deffnm", "md"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"it ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        print("lab", json.dumps(judge(Path("md.log").read_text())))
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: gmx mdrun: {error}\n")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
