"""Devito's elastic wave in three dimensions, by the solver of its own examples.

Words: POINTS STEPS, or check. Each run prints the norms of both receivers and of the field, to
four digits, which the order of a sum does not change. `check` runs Devito's own test case, whose
norms its developers publish, and a small case of what is measured, so that the compiled operators
are in the cache. Environment: CORACLE_LAB_OPERATORS is the directory of the compiled operators,
which `check` alone writes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

PUBLISHED = {"receiver": 19.9367, "divergence": 0.6689}
"""Of `test_elastic` in Devito's `elastic_example.py`, within 1e-3."""
SPACING_M = 15.0
LOCKED, LOADED = "devito-codepy-uid0", "devito-jitcache-uid0"
"""Devito's directories."""


def prepare(checks: bool) -> None:
    """Sets Devito's variables, before it is imported."""
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
    # Devito keeps its operators below the directory of temporary files.
    operators = Path(os.environ.get("CORACLE_LAB_OPERATORS", "."))
    os.environ["TMPDIR"] = str(operators if checks else own(operators))
    # The directory has the user's number in its name, which is another one in most containers:
    # with it, a container would compile what natively is compiled already.
    os.getuid = lambda: 0
    os.environ.update(DEVITO_LOGGING="ERROR", DEVITO_LANGUAGE="C")
    if ranks > 1:
        os.environ["DEVITO_MPI"] = "1"


def own(operators: Path) -> Path:
    """Returns a directory of this rank's own with the compiled operators.

    Devito locks an operator before it loads it, by a file beside it. Where the directory is
    read-only, as in a container, it would try for seconds.
    """
    made = Path(tempfile.mkdtemp(dir="."))
    shutil.copytree(operators / LOCKED, made / LOCKED)
    (made / LOADED).symlink_to((operators / LOADED).resolve())
    return made.resolve()


def published() -> dict[str, float]:
    """Runs Devito's test case."""
    from devito import norm
    from examples.seismic.elastic.elastic_example import run

    first, second, *_ = run()[-1]
    return {"receiver": float(norm(first)), "divergence": float(norm(second))}


def wave(points: int, steps: int) -> tuple[dict[str, float], float]:
    """Runs the wave; returns norms, and the seconds of the operator alone."""
    from devito import norm
    from examples.seismic import demo_model, setup_geometry
    from examples.seismic.elastic import ElasticWaveSolver

    shape, spacing = (points,) * 3, (SPACING_M,) * 3
    model = demo_model("layers-elastic", space_order=4, shape=shape, nbl=8, spacing=spacing)
    geometry = setup_geometry(model, steps * float(model.critical_dt))
    solver = ElasticWaveSolver(model, geometry, space_order=4)
    receiver, divergence, velocity, _, summary = solver.forward(autotune=False)
    norms = {
        "receiver": float(norm(receiver)),
        "divergence": float(norm(divergence)),
        "velocity": float(norm(velocity[2])),
    }
    return norms, float(sum(summary.timings.values()))


def main() -> None:
    """Runs as the words say."""
    words = sys.argv[1:]
    prepare(checks=words == ["check"])
    if words == ["check"]:
        found = published()
        for name, right in PUBLISHED.items():
            if not abs(found[name] - right) <= 1e-3:
                sys.stderr.write(f"error: the norm {name} is {found[name]}, and not {right}\n")
                raise SystemExit(1)
        wave(16, 2)
        return
    if len(words) != 2:
        sys.stderr.write("error: words: POINTS STEPS, or check\n")
        raise SystemExit(2)
    norms, seconds = wave(int(words[0]), int(words[1]))
    if not all(math.isfinite(value) and value > 0 for value in norms.values()):
        sys.stderr.write(f"error: the norms are {norms}\n")
        raise SystemExit(1)
    if int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))) == 0:
        print("norms", " ".join(f"{value:.3e}" for value in norms.values()))
        print("lab", json.dumps({"operator_s": seconds}))


if __name__ == "__main__":
    main()
