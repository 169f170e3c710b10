"""A site file for ReFrame with a partition for each environment that is usable on this host.

    reframe -C "$(python3 -m coracle_lab.reframe)" -c SUITE -r

docs/lab-reframe.md says what can be chosen by variables CORACLE_LAB_*.
"""

import os
import sys
from pathlib import Path

# The file is usable from a checkout too.
if (package := str(Path(__file__).resolve().parents[2])) not in sys.path:
    sys.path.append(package)

from reframe.core.exceptions import ConfigError

from coracle_lab.errors import LabError
from coracle_lab.reframe.partitions import launcher, partitions

try:
    made = partitions({"scheduler": "local", "launcher": launcher(), "environs": ["builtin"]})
    if not made:
        raise LabError("no environment is usable here", "the lines above say why")
except LabError as error:
    raise ConfigError(error.text()) from None

site_configuration = {
    "systems": [
        {
            "name": os.environ.get("CORACLE_LAB_SYSTEM") or "lab",
            "descr": "this host, in each environment",
            "hostnames": [".*"],
            "partitions": made,
        }
    ]
}
