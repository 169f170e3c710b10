"""Prints the path of the site file: `reframe -C "$(python3 -m coracle_lab.reframe)" ...`."""

from __future__ import annotations

from pathlib import Path

print(Path(__file__).with_name("site.py"))
