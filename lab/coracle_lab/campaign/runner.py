"""Makes the figures of campaigns, one after the other, and goes on after one that cannot be made.

Each figure is a design with records of its own. What is made is not made again; what was stopped
goes on; what could not be made is tried again at the next start. A limit of time stops the figure
that is being measured at whatever it does: its rows so far are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from coracle_lab.applications import Table
from coracle_lab.campaign import designs
from coracle_lab.campaign.designs import Setup
from coracle_lab.campaign.groups import Host
from coracle_lab.campaign.kept import Kept, Outcome
from coracle_lab.campaign.model import Campaign, Figure
from coracle_lab.errors import FAILED, UNTRUSTED, LabError
from coracle_lab.run import records
from coracle_lab.run.session import Late
from coracle_lab.run.store import Store

INTERRUPTED = 130
LEAST_S = 20.0
"""A figure is not begun with less time than this."""

Conduct = Callable[[Store], int]
"""Runs the rows of a store that are still to be run; returns the exit status of the session."""


@dataclass
class Runner:
    """Makes figures into the directory of a campaign."""

    kept: Kept
    known: Table
    conduct: Conduct
    say: Callable[[str], None]
    host_of: Callable[[Campaign], Host]
    deadline: float | None = None
    """When to stop, by the monotonic clock."""
    least_s: float = LEAST_S
    tables: Sequence[Path] = ()
    """The user's own tables of applications."""
    simulates: bool = True
    """Whether [nodes] of a design are simulated; on a cluster there are some."""

    def run(self, figures: Sequence[tuple[Campaign, Figure]]) -> int:
        """Makes what is not made yet. Returns 130 if it was interrupted, else 1 if a figure with a
        design is missing or has failed rows, 3 if A/A does not hold in one, or 0."""
        for campaign, figure in figures:
            before = self.kept.outcomes.get(figure.id)
            self._compare(figure, before)
            if before is not None and before.made and self._has_records(figure):
                continue
            outcome = self._make(campaign, figure, before)
            self.kept.set(figure.id, outcome)
            if outcome.status == INTERRUPTED and not self._is_late():
                return INTERRUPTED
            if outcome.why is not None and figure.design is not None:
                self.say(f"{figure.id}: {outcome.why}")
        there = [self.kept.outcomes[f.id] for _, f in figures if f.design is not None]
        if any(not one.made or one.status == FAILED for one in there):
            return FAILED
        return UNTRUSTED if any(one.status == UNTRUSTED for one in there) else 0

    def _compare(self, figure: Figure, before: Outcome | None) -> None:
        """Tells of a figure whose design in the campaign's file has changed since it was begun."""
        changed = before is not None and before.design not in ("", _digest(figure))
        if changed and self._has_records(figure):
            self.say(
                f"{figure.id}: its design has changed since it was begun, and the old one goes"
                f" on; remove {self.kept.directory(figure.id)} to measure the new one"
            )

    def _has_records(self, figure: Figure) -> bool:
        return (self.kept.directory(figure.id) / "design.toml").exists()

    def _is_late(self) -> bool:
        """Tells whether there is too little time left for another figure."""
        return self.deadline is not None and self.deadline - time.monotonic() < self.least_s

    def _make(self, campaign: Campaign, figure: Figure, before: Outcome | None) -> Outcome:
        """Makes one figure; returns what became of it."""
        outcome = Outcome(design=_digest(figure))
        if before is not None and self._has_records(figure):
            outcome = Outcome(left_out=before.left_out, design=before.design or outcome.design)
        if figure.design is None:
            return Outcome(why=figure.reason)
        if self._is_late():
            return self._unfinished(figure, outcome, INTERRUPTED)
        self.say(f"{figure.id}: {figure.title}")
        try:
            with until(self.deadline):
                setup = Setup(self.host_of(campaign), self.known, self.tables, self.simulates)
                directory = self.kept.directory(figure.id)
                made = designs.prepared(campaign, figure, directory, setup)
                outcome = replace(outcome, left_out=made.left_out or outcome.left_out)
                status = self.conduct(made.store)
        except Late:
            return self._unfinished(figure, outcome, INTERRUPTED)
        except LabError as error:
            return replace(outcome, status=error.status, why=error.message)
        except BrokenPipeError:
            raise
        except Exception as error:
            # A defect of the lab in one figure is not to cost the others of a long campaign.
            traceback.print_exc()
            what = f"coracle-lab itself failed: {type(error).__name__}: {error}"
            return replace(outcome, status=FAILED, why=what)
        if status == INTERRUPTED:
            return self._unfinished(figure, outcome, status)
        later = _later(made.store)
        return replace(outcome, made=later is None, status=status, why=later)

    def _unfinished(self, figure: Figure, outcome: Outcome, status: int) -> Outcome:
        """Returns the outcome of a figure that was stopped, or not begun."""
        rows, done = progress(self.kept.directory(figure.id))
        why = f"{done} of {rows} rows are measured" if done else "it is not measured"
        cause = "the time was over" if self._is_late() else "it was interrupted"
        return replace(outcome, status=status, why=f"{why}: {cause}")


def _digest(figure: Figure) -> str:
    """Returns a digest of a figure's design as the campaign's file has it."""
    return hashlib.sha256((figure.design or "").encode()).hexdigest()[:16]


def _later(made: Store) -> str | None:
    """Returns what is left of a nested design of several sessions, of which a start runs one."""
    if made.design.nested is None:
        return None
    last = max(int(row.levels["session"]) for row in made.rows)
    found = records.read(made.directory / "records.jsonl").records
    done = max((int(one.levels["session"]) for one in found if one.row), default=0)
    if done >= last:
        return None
    return f"{done} of {last} sessions are measured: the same command runs the next one"


def progress(directory: Path) -> tuple[int, int]:
    """Returns the number of rows in a directory of records, and of those that are recorded."""
    try:
        rows = len((directory / "rows.csv").read_text().splitlines()) - 1
    except OSError:
        return 0, 0
    made = records.read(directory / "records.jsonl").records
    return rows, len(records.first_attempts(made))


@contextlib.contextmanager
def until(deadline: float | None) -> Iterator[None]:
    """Raises `Late` at a deadline, if the body is not left before."""
    if deadline is None:
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise Late("the time is over")

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
