"""Orders things at random by a kept seed, equally on every machine and Python.

`random.shuffle` and NumPy's generators may change between versions. So the order comes from a
hash: position `i` of a list has the key SHA-256 of

    coracle-lab order 1 / SEED / LABEL / i

(decimal numbers, parts joined by "/" without spaces), and the list is sorted by its keys. SHA-256
has no ties in practice and no structure that a permutation would show; anybody can recompute an
order with a shell. `LABEL` names the thing that is ordered ("block 3"), so each block has an order
of its own that depends on no other block.
"""

from __future__ import annotations

import hashlib

VERSION = "coracle-lab order 1"


def key(seed: int, label: str, position: int) -> bytes:
    """Returns the key by which `position` is sorted."""
    return hashlib.sha256(f"{VERSION}/{seed}/{label}/{position}".encode()).digest()


def permuted(positions: list[int], seed: int, label: str) -> list[int]:
    """Returns `positions` in the random order that seed and label decide.

    The order of two positions depends on these two alone: leaving a third one out does not change
    it.
    """
    return sorted(positions, key=lambda position: key(seed, label, position))
