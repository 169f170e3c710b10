"""A plug-in for ReFrame: suites that know nothing of containers run in each of them, unedited.

Importing this package registers with ReFrame

- a launcher for each environment (`launchers.py`), so that a container is a partition of the site;
- container platforms (`platforms.py`) for tests that name one.

`site.py` is a site file with a partition for each environment that is usable here, and
`partitions.py` makes such partitions of one that a site has already. docs/lab-reframe.md says how
they are used.
"""

from __future__ import annotations

from coracle_lab.reframe import launchers, platforms
from coracle_lab.reframe.partitions import partitions

__all__ = ["partitions"]

launchers.register()
platforms.register()
