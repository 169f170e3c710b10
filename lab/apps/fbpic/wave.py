"""A plasma wave by FBPIC, a particle-in-cell program, compared with its theory.

Words: STEPS. Cold electrons with the velocities of a linear wave oscillate in a periodic box; the
longitudinal field after STEPS steps (118 are a plasma period) is known. FBPIC's own test of this
wave, `test_periodic_plasma_wave.py`, has the formulas; here is its mode 0.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

# One thread in each rank: the lab compares numbers of ranks.
os.environ["FBPIC_DISABLE_THREADING"] = "1"
# Numba keeps compiled functions in a directory that it can write to. With CORACLE_LAB_COMPILED
# they come from there.
_OWN = Path.cwd() / f"numba-{os.environ.get('OMPI_COMM_WORLD_RANK', '0')}"
os.environ["NUMBA_CACHE_DIR"] = str(_OWN)
if "CORACLE_LAB_COMPILED" in os.environ:
    shutil.copytree(os.environ["CORACLE_LAB_COMPILED"], _OWN)

# These read the variables when they are imported.
import numpy as np  # noqa: E402
from fbpic.main import Simulation  # noqa: E402
from scipy.constants import c, e, epsilon_0, m_e  # noqa: E402

CELLS, LENGTH_M = 200, 40e-6
RINGS, RADIUS_M = 64, 20e-6
ELECTRONS_PER_M3 = 2e24
AMPLITUDE, WIDTH_M, WAVES = 0.001, 5e-6, 3
ERROR_WITHIN = 0.08
"""Of the field's amplitude; FBPIC's own test allows 0.1 of a field with more modes."""

K = 2 * np.pi * WAVES / LENGTH_M
OMEGA = float(np.sqrt(ELECTRONS_PER_M3 * e**2 / (m_e * epsilon_0)))


def field(z: np.ndarray, r: np.ndarray, t: float) -> np.ndarray:
    """Returns the longitudinal field of theory, in units of its amplitude."""
    return -np.exp(-(r**2) / WIDTH_M**2) * np.cos(K * z) * np.sin(OMEGA * t)


def start() -> Simulation:
    """Returns the simulation at the beginning of the wave."""
    simulation = Simulation(
        CELLS, LENGTH_M, RINGS, RADIUS_M, 1, LENGTH_M / CELLS / c,
        p_zmin=0.0, p_zmax=LENGTH_M * 1.1, p_rmin=0.0, p_rmax=RADIUS_M * 0.9,
        p_nz=2, p_nr=2, p_nt=4, n_e=ELECTRONS_PER_M3, n_order=16, verbose_level=0,
    )  # fmt: skip
    electrons = simulation.ptcl[0]
    x, y, z = electrons.x, electrons.y, electrons.z
    shape = AMPLITUDE * c / OMEGA * np.exp(-(x**2 + y**2) / WIDTH_M**2)
    electrons.ux = shape * 2 * x / WIDTH_M**2 * np.sin(K * z)
    electrons.uy = shape * 2 * y / WIDTH_M**2 * np.sin(K * z)
    electrons.uz = -shape * K * np.cos(K * z)
    momentum2 = electrons.ux**2 + electrons.uy**2 + electrons.uz**2
    electrons.inv_gamma = 1.0 / np.sqrt(1.0 + momentum2)
    return simulation


def error(simulation: Simulation) -> float | None:
    """Returns by how much field and theory differ at most; None but on rank 0."""
    grid = simulation.comm.gather_grid(simulation.fld.interp[0])
    if simulation.comm.rank != 0:
        return None
    z, r = np.meshgrid(grid.z, grid.r, indexing="ij")
    measured = grid.Ez.real / (AMPLITUDE * m_e * c**2 / e * K)
    return float(np.abs(measured - field(z, r, simulation.time)).max())


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 2:
        sys.stderr.write("error: words: STEPS\n")
        raise SystemExit(2)
    simulation = start()
    began = time.monotonic()
    simulation.step(int(sys.argv[1]), correct_currents=True, show_progress=False)
    steps_s = time.monotonic() - began
    differs = error(simulation)
    if differs is None:
        return
    if not differs <= ERROR_WITHIN:
        sys.stderr.write(f"error: the field differs from theory by {differs} of its amplitude\n")
        raise SystemExit(1)
    print("lab", json.dumps({"steps_s": steps_s, "field_error": differs}))


if __name__ == "__main__":
    main()
