"""The scheme of apps/wave in NumPy: the whole box at once, one derivative at a time.

It is an oracle for the C program's norms. `python3 lab_wave.py KIND POINTS STEPS` prints them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import numpy as np

SPACING_M = 100.0
PEAK_HZ = 2.0
AXES = "xyz"
STRESSES = ("xx", "yy", "zz", "xy", "xz", "yz")
STRENGTH = {"xx": 1.0, "yy": 0.5, "zz": 0.2, "xy": 0.7, "xz": 0.3, "yz": 0.4}
CENTRE = (0.45, 0.55, 0.5)
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def stress(one: str, other: str) -> str:
    return "".join(sorted(one + other))


@dataclass
class Medium:
    """Two rocks, the softer one in the first third in z; `_half` is what lies half a step on."""

    points: int
    layers: int
    courant: float = 0.8
    step_s: float = field(init=False)

    def __post_init__(self) -> None:
        soft = np.arange(self.points + 1) < self.points // 3
        speed = np.where(soft, 3000.0, 5000.0)
        density = np.where(soft, 2200.0, 2700.0)
        shear = density * (speed / np.sqrt(3)) ** 2
        self.lame = (density * speed**2 - 2 * shear)[:-1]
        self.shear, self.shear_half = shear[:-1], 2 / (1 / shear[:-1] + 1 / shear[1:])
        self.light, self.light_half = 1 / density[:-1], 2 / (density[:-1] + density[1:])
        self.fastest = speed.max()
        stable = SPACING_M / (self.fastest * np.sqrt(3) * (9 / 8 + 1 / 24))
        self.step_s = self.courant * stable

    def factors(self, half: bool) -> tuple[Array, Array]:
        """Returns by what a derivative's memory is multiplied, and what of it is remembered."""
        if self.layers == 0:
            return np.zeros(self.points), np.zeros(self.points)
        at = np.arange(self.points) + 0.5 * half
        depth = np.maximum(np.maximum(self.layers - at, at - (self.points - self.layers)), 0)
        depth = depth / self.layers
        damping = 1.5 * self.fastest * np.log(1e3) / (self.layers * SPACING_M) * depth**2
        shift = np.pi * PEAK_HZ * (1 - depth)
        keep = np.exp(-(damping + shift) * self.step_s)
        return keep, np.where(depth > 0, damping / (damping + shift) * (keep - 1), 0)


class Wave:
    """The nine fields, and the memories of the 18 derivatives."""

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        n = medium.points
        self.fields: dict[str, Array] = {name: np.zeros((n, n, n)) for name in AXES}
        for name in STRESSES:
            self.fields[name] = self.pulse(name)
        self.memory: dict[tuple[str, str, str], Array] = {}

    def pulse(self, name: str) -> Array:
        """A Gaussian around a point that is not the middle."""
        n = self.medium.points
        square = np.zeros((n, n, n))
        for axis, letter in enumerate(AXES):
            is_half = name.count(letter) == 1
            at = (np.arange(n) + 0.5 * is_half - CENTRE[axis] * n) / 3
            square += (at**2).reshape([n if one == axis else 1 for one in range(3)])
        return 1e6 * STRENGTH[name] * np.exp(-square)

    def derivative(self, name: str, letter: str, half: bool, line: str) -> Array:
        axis = AXES.index(letter)
        n = self.medium.points
        padded = np.pad(self.fields[name], [(2, 2) if one == axis else (0, 0) for one in range(3)])

        def moved(by: int) -> Array:
            begin = 2 + by - (0 if half else 1)
            return np.take(padded, range(begin, begin + n), axis=axis)

        slope = 9 / 8 * (moved(1) - moved(0)) - 1 / 24 * (moved(2) - moved(-1))
        slope /= SPACING_M
        if self.medium.layers == 0:
            return slope
        keep, take = (
            one.reshape([n if at == axis else 1 for at in range(3)])
            for one in self.medium.factors(half)
        )
        key = (line, name, letter)
        self.memory[key] = keep * self.memory.get(key, np.zeros_like(slope)) + take * slope
        return slope + self.memory[key]

    def step(self) -> None:
        medium, fields = self.medium, self.fields
        change = {}
        for one in AXES:
            light = medium.light_half if one == "z" else medium.light
            force = sum(self.derivative(stress(one, axis), axis, axis == one, one) for axis in AXES)
            change[one] = medium.step_s * light * force
        for one in AXES:
            fields[one] += change[one]
        slope = {
            (one, axis): self.derivative(one, axis, axis != one, "stress")
            for one in AXES
            for axis in AXES
        }
        spread = sum(slope[one, one] for one in AXES)
        for one in AXES:
            fields[one + one] += medium.step_s * (
                medium.lame * spread + 2 * medium.shear * slope[one, one]
            )
        for pair in ("xy", "xz", "yz"):
            shear = medium.shear_half if "z" in pair else medium.shear
            fields[pair] += (
                medium.step_s * shear * (slope[pair[0], pair[1]] + slope[pair[1], pair[0]])
            )

    def norms(self) -> tuple[float, float]:
        """Returns the roots of the sums of squares of velocities and of the six stresses."""
        square = {name: float(np.sum(one**2)) for name, one in self.fields.items()}
        velocity = sum(square[name] for name in AXES)
        return float(np.sqrt(velocity)), float(np.sqrt(sum(square[name] for name in STRESSES)))


def norms(kind: str, points: int, steps: int) -> tuple[float, float]:
    layers = min(10, points // 6) if kind == "source" else 0
    wave = Wave(Medium(points, layers))
    for _ in range(steps):
        wave.step()
    return wave.norms()


if __name__ == "__main__":
    print("{:.12e} {:.12e}".format(*norms(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
