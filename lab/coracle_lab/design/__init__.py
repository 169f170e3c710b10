"""Turns a design file (TOML) into the rows of an experiment, in their order.

`parse` checks the text against `schema.json` and returns a `Design`; `expand` returns its rows.
Both are pure: no file is read but the schema, no clock, no random state. Equal designs have equal
rows on every machine and every version of Python (`order` says how).

This package does not know which environments exist on a host, and starts nothing. Rows need
nothing but the standard library; NumPy and `pydoe` are imported for fractional and
Plackett-Burman designs alone.
"""

from coracle_lab.design.fractions import aliases
from coracle_lab.design.model import (
    Application,
    Design,
    Factor,
    Image,
    LeftOut,
    Nested,
    Nodes,
    Precision,
    Row,
)
from coracle_lab.design.parse import parse
from coracle_lab.design.rows import block_rows, cells, digest, expand, remaining
from coracle_lab.design.table import from_csv, to_csv

__all__ = [
    "Application",
    "Design",
    "Factor",
    "Image",
    "LeftOut",
    "Nested",
    "Nodes",
    "Precision",
    "Row",
    "aliases",
    "block_rows",
    "cells",
    "digest",
    "expand",
    "from_csv",
    "parse",
    "remaining",
    "to_csv",
]
