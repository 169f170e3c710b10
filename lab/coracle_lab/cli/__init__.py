"""The command `coracle-lab`: turns words into requests, and results into text.

Exit status: 0 measured, 1 rows have failed, 2 usage, 3 measured, but the A/A guard does not
trust it, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from coracle_lab.cli import arguments, compare, doctor, export, model, page, papers, trial
from coracle_lab.errors import FAILED, LabError
from coracle_lab.run.session import Stopped

COMMANDS = {
    "try": trial.run,
    "doctor": doctor.run,
    "plan": papers.plan_file,
    "run": papers.run_file,
    "papers": papers.run,
    "report": page.run,
    "compare": compare.run,
    "export": export.run,
    "model": model.run,
}


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    try:
        options = arguments.parse(sys.argv[1:] if words is None else words)
        return COMMANDS[options.command](options)
    except LabError as error:
        print(error.text(), file=sys.stderr)
        return error.status
    except BrokenPipeError:
        # The reader of the output has gone; what is recorded is recorded.
        sys.stderr.close()
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, Stopped):
        return 130
