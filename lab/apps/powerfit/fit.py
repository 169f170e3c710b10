"""Fits a model of atoms into a density by PowerFit on OpenCL, and looks whether it is found again.

Words: make DIRECTORY, or fit DIRECTORY ANGLE DEVICE. `make` writes a chain of atoms that is bent
without symmetry, and the density of the same chain, turned and moved. `fit` searches rotations
ANGLE degrees apart on the OpenCL DEVICE (platform:device): the best fit has to lie on the chain
that the density is of.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESOLUTION_A = 8.0
ATOMS = 120
TURN = (0.9, 0.5, -0.7)
MOVE_A = (7.0, -4.0, 5.0)
RMSD_WITHIN_A = 8.0
"""Some 10 degrees at an end of the chain, 20 Å from its middle, and a voxel of 4 Å."""


def chain() -> np.ndarray:
    """Returns the atoms of the chain: a helix whose axis bends."""
    t = np.linspace(0.0, 1.0, ATOMS)
    axis = np.stack([40 * t, 18 * np.sin(2.5 * t), 12 * t**3], axis=1)
    turns = 2 * math.pi * 8 * t
    radius = 4 + 5 * t
    return axis + np.stack([0 * t, radius * np.cos(turns), radius * np.sin(turns)], axis=1)


def turned(atoms: np.ndarray) -> np.ndarray:
    """Returns the atoms where the density has them."""
    rotation = np.eye(3)
    for at, angle in enumerate(TURN):
        one = np.eye(3)
        a, b = (at + 1) % 3, (at + 2) % 3
        one[a, a] = one[b, b] = math.cos(angle)
        one[a, b], one[b, a] = -math.sin(angle), math.sin(angle)
        rotation = one @ rotation
    middle = atoms.mean(axis=0)
    return np.asarray((atoms - middle) @ rotation.T + middle + np.array(MOVE_A))


def written(atoms: np.ndarray) -> str:
    """Returns atoms as a PDB file."""
    lines = [
        f"ATOM  {at + 1:5d}  CA  ALA A{at + 1:4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        "  1.00  0.00           C"
        for at, (x, y, z) in enumerate(atoms)
    ]
    return "\n".join([*lines, "END", ""])


def read(text: str) -> np.ndarray:
    """Returns the atoms of a PDB file."""
    rows = [line for line in text.splitlines() if line.startswith("ATOM")]
    return np.array([[float(row[at : at + 8]) for at in (30, 38, 46)] for row in rows])


def make(directory: Path) -> None:
    """Writes template and density."""
    from powerfit_em.volume import structure_to_shape, to_mrc

    atoms = chain()
    (directory / "template.pdb").write_text(written(atoms))
    weights = np.full(ATOMS, 6.0)
    density = structure_to_shape(turned(atoms).T, RESOLUTION_A, weights=weights)
    to_mrc(str(directory / "target.mrc"), density)


def rmsd(text: str) -> float:
    """Returns how far the atoms of a fit are from where they belong, in Ångström."""
    found, right = read(text), turned(chain())
    if found.shape != right.shape:
        raise ValueError(f"the fit has {len(found)} atoms, and not {ATOMS}")
    return float(np.sqrt(((found - right) ** 2).sum(axis=1).mean()))


def fit(directory: Path, angle: str, device: str) -> None:
    """Runs PowerFit, and judges its best fit. Raises `ValueError`."""
    program = str(Path(sys.executable).with_name("powerfit"))
    target, template = str(directory / "target.mrc"), str(directory / "template.pdb")
    words = [program, target, str(RESOLUTION_A), template, "-a", angle, "-n", "1", "-d", "fits"]
    began = time.monotonic()
    done = subprocess.run([*words, "--gpu", device], capture_output=True, text=True, check=False)
    search_s = time.monotonic() - began
    if done.returncode != 0:
        raise ValueError(f"powerfit ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    if not re.search(r"OpenCL", done.stdout + done.stderr + _log(), re.IGNORECASE):
        raise ValueError("powerfit did not use OpenCL")
    differs = rmsd(Path("fits/fit_1.pdb").read_text())
    if not differs <= RMSD_WITHIN_A:
        raise ValueError(f"the best fit is {differs:.2f} Å away from the right one")
    print("lab", json.dumps({"search_s": search_s, "rmsd_angstrom": differs}))


def _log() -> str:
    path = Path("fits/powerfit.log")
    return path.read_text() if path.exists() else ""


def main() -> None:
    """Runs as the words say."""
    words = sys.argv[1:]
    try:
        if len(words) == 2 and words[0] == "make":
            make(Path(words[1]))
        elif len(words) == 4 and words[0] == "fit":
            fit(Path(words[1]), *words[2:])
        else:
            sys.stderr.write("error: words: make DIRECTORY, or fit DIRECTORY ANGLE DEVICE\n")
            raise SystemExit(2)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
