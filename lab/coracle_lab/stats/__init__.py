"""Judges measurements: ratios to a base with intervals, tests, effect sizes, and a verdict.

Pure: tables in, tables out. Nothing is read, printed or drawn; equal values and seeds give equal
results. `compare` is the lab's own statistics, `guard` decides from A/A whether to trust them,
`screens` judges the factors of two-level designs, `mixed` fits all cells of a design at once,
`distribution` shows whether the assumptions hold, and `as_in_paper` computes what the papers
printed.

Nothing is invented: where values give no interval (one replicate, equal values, zero, NaN), the
result holds none and says why.
"""

from coracle_lab.stats.change import Change, changes
from coracle_lab.stats.compare import Comparison, compare, compare_cells, precise
from coracle_lab.stats.data import LEVELS, Interval, Values
from coracle_lab.stats.distribution import Distribution, distribution
from coracle_lab.stats.many import Dunnett, dunnett, holm
from coracle_lab.stats.mixed import Effect, Mixed, Observation, mixed
from coracle_lab.stats.paper import Masked, PaperView, as_in_paper
from coracle_lab.stats.screen import MainEffect, Runs, Screen, screens
from coracle_lab.stats.verdict import Guard, blocks_needed, guard

__all__ = [
    "LEVELS",
    "Change",
    "Comparison",
    "Distribution",
    "Dunnett",
    "Effect",
    "Guard",
    "Interval",
    "MainEffect",
    "Masked",
    "Mixed",
    "Observation",
    "PaperView",
    "Runs",
    "Screen",
    "Values",
    "as_in_paper",
    "blocks_needed",
    "changes",
    "compare",
    "compare_cells",
    "distribution",
    "dunnett",
    "guard",
    "holm",
    "mixed",
    "precise",
    "screens",
]
