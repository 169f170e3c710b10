"""`python -m coracle_lab.cli` is `coracle-lab`."""

import sys

from coracle_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
