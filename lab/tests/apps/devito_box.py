"""The elastic wave of apps/wave's kind `box`, by devito: an oracle that has another author's code.

`python3 devito_box.py POINTS STEPS` prints the norms of velocities and stresses. The medium, the
first stresses and the time step are those of lab_wave.py; derivatives and time loop are devito's.
"""

from __future__ import annotations

import sys

import devito
import numpy as np
from devito import Eq, Function, Grid, Operator, TimeFunction
from lab_wave import AXES, SPACING_M, STRESSES, Medium, Wave, stress


def norms(points: int, steps: int) -> tuple[float, float]:
    medium = Medium(points, layers=0)
    first = Wave(medium).fields
    extent = (points - 1) * SPACING_M
    grid = Grid(shape=(points,) * 3, extent=(extent,) * 3, dtype=np.float64)
    at = dict(zip(AXES, grid.dimensions, strict=True))

    def halves(name: str) -> tuple[object, ...] | object:
        found = tuple(at[letter] for letter in AXES if name.count(letter) == 1)
        return found or devito.NODE

    fields = {
        name: TimeFunction(name=f"f{name}", grid=grid, space_order=4, staggered=halves(name))
        for name in (*AXES, *STRESSES)
    }
    for name in STRESSES:
        fields[name].data[0] = first[name]

    def layered(name: str, values: np.ndarray, place: str) -> Function:
        made = Function(name=name, grid=grid, space_order=4, staggered=halves(place))
        made.data[:] = values
        return made

    light = {
        one: layered(f"b{one}", medium.light_half if one == "z" else medium.light, one)
        for one in AXES
    }
    shear = {
        pair: layered(f"m{pair}", medium.shear_half if "z" in pair else medium.shear, pair)
        for pair in ("xy", "xz", "yz")
    }
    lame, rigid = layered("l", medium.lame, ""), layered("m", medium.shear, "")
    dt = grid.stepping_dim.spacing

    def slope(field: object, letter: str) -> object:
        return getattr(field, f"d{letter}")

    equations = [
        Eq(
            fields[one].forward,
            fields[one]
            + dt * light[one] * sum(slope(fields[stress(one, axis)], axis) for axis in AXES),
        )
        for one in AXES
    ]
    new = {one: fields[one].forward for one in AXES}
    spread = sum(slope(new[one], one) for one in AXES)
    for one in AXES:
        field = fields[one + one]
        rate = lame * spread + 2 * rigid * slope(new[one], one)
        equations.append(Eq(field.forward, field + dt * rate))
    for pair in ("xy", "xz", "yz"):
        rate = shear[pair] * (slope(new[pair[0]], pair[1]) + slope(new[pair[1]], pair[0]))
        equations.append(Eq(fields[pair].forward, fields[pair] + dt * rate))
    Operator(equations).apply(time_m=0, time_M=steps - 1, dt=medium.step_s)
    last = {name: field.data[steps % 2] for name, field in fields.items()}
    square = {name: float(np.sum(np.asarray(one) ** 2)) for name, one in last.items()}
    velocity = sum(square[name] for name in AXES)
    return float(np.sqrt(velocity)), float(np.sqrt(sum(square[name] for name in STRESSES)))


if __name__ == "__main__":
    devito.configuration["log-level"] = "WARNING"
    print("{:.12e} {:.12e}".format(*norms(int(sys.argv[1]), int(sys.argv[2]))))
