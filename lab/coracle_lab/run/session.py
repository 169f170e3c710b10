"""Runs the rows that have no record yet, in pieces, and ends well whenever it is stopped.

The records are the only memory: a row that has a record is done, everything else is still to be
done, in the order of the design. So a run that is interrupted, killed, or out of disk goes on
with the same command. One session:

1. takes the lock, waits for a row of a killed predecessor, checks design, rows and records;
2. prepares the environments (untimed) and runs the program once in each, thrown away but
   recorded (row 0): caches get warm, and the timer looks which files are executed. An
   environment that does not start is left out and listed, at the second failure;
3. starts ReFrame with up to `PIECE` rows, again and again (`piece`, `rows`);
4. repeats the blocks that the sentinel's rule names (`disturbed`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from coracle_lab import nodes
from coracle_lab.design import Application, Design, Row
from coracle_lab.environments import Environment
from coracle_lab.errors import FAILED, LabError
from coracle_lab.run import (
    disturbed,
    launch,
    lock,
    piece,
    prepare,
    records,
    reframe_site,
    scratch,
)
from coracle_lab.run.piece import Piece, Task

PROGRAM = Path(piece.__file__)
PIECE = 100
"""So many rows, or launches of several, are run by one start of ReFrame, at most."""
TRIES = 2
"""So often a row is started that leaves no record."""


class Stopped(BaseException):
    """The user or the system ends the session; what is recorded stays."""


class Late(Stopped):
    """The time that a campaign was given is over."""


@dataclass(frozen=True)
class Progress:
    """What is said while rows run."""

    done: int
    total: int
    what: str
    left_s: float | None = None


@dataclass
class Session:
    """One start of the lab on one directory of records."""

    directory: Path
    design: Design
    digest: str
    rows: Sequence[Row]
    environments: Mapping[str, Environment]
    limits: launch.Limits
    site: reframe_site.Site = field(default_factory=reframe_site.Site)
    tell: Callable[[Progress], None] = lambda progress: None
    name: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    not_run: list[int] = field(default_factory=list)
    measured: bool = False
    """Whether all rows are, and what is left are repetitions of disturbed blocks."""
    void: dict[str, str] = field(default_factory=dict)
    texts: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = field(default_factory=dict)
    prepared: prepare.Prepared = field(default_factory=prepare.Prepared)
    simulated: nodes.Nodes | None = None
    _lock: int = -1
    _alive_file: int = -1

    def __post_init__(self) -> None:
        """Names the session, so that its records find their facts."""
        self.directory = self.directory.resolve()
        if not self.name:
            now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            self.name = f"{now}-{secrets.token_hex(3)}"

    @property
    def application(self) -> Application:
        """The design's application, which it has: `store` has looked."""
        assert self.design.application is not None
        return self.design.application

    @property
    def records_path(self) -> Path:
        """The file of records."""
        return self.directory / "records.jsonl"

    def read(self) -> records.Read:
        """Returns all records of the design."""
        return records.read(self.records_path, self.digest)

    def environment_of(self, levels: Mapping[str, str]) -> str:
        """Returns the name of a row's environment."""
        return levels.get(launch.FACTOR, "native")

    def tasks(self, rows: Sequence[Sequence[Row]], attempt: int) -> list[Task]:
        """Returns one attempt of each of some launches."""
        return [self.task(some[0], attempt, len(some)) for some in rows]

    def task(self, row: Row, attempt: int, starts: int = 1) -> Task:
        """Returns one attempt of a row, or of a launch whose first row it is."""
        made = launch.task(
            row,
            attempt,
            self.application,
            self.environments[self.environment_of(row.levels)],
            self.limits,
            self.directory,
            prepare.places_of(self, row.levels),
            self.simulated,
            starts,
            self.design.option_words(row.levels),
        )
        return replace(made, texts=prepare.texts_of(self, row.levels))

    # The steps, in their order.

    @contextlib.contextmanager
    def opened(self) -> Iterator[Session]:
        """Holds the directory and the simulated nodes, if the design has some, and turns the
        signals that end a process into `Stopped`."""
        with (
            lock.held(self.directory) as self._lock,
            _signals(),
            nodes.wanted(self.design.nodes, self.directory) as self.simulated,
        ):
            lock.wait_for_last_row(self.directory)
            yield self

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        """Keeps a FIFO open for writing: the timer of a row sees when this process is gone."""
        path = self.directory / "alive"
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        self._alive_file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield
        finally:
            self._let_go()
            path.unlink(missing_ok=True)

    def _let_go(self) -> None:
        """Closes the FIFO, at which the timer ends its program."""
        if self._alive_file >= 0:
            os.close(self._alive_file)
            self._alive_file = -1

    def make(self, rows: Sequence[Row]) -> None:
        """Makes all that some rows need: images, builds, environments."""
        prepare.make(self, self.unfinished(rows))

    def first_runs(self, rows: Sequence[Row]) -> None:
        """Runs the program once in each environment of some rows, thrown away."""
        prepare.first_runs(self, rows)

    def clean(self) -> list[str]:
        """Undoes what `make` did, but for images, trees and builds, which are kept.

        Returns in words what could not be undone.
        """
        said = prepare.clean(self)
        with contextlib.suppress(LabError):
            scratch.remove(self.directory / "scratch")
        return said

    def say(self, what: str) -> None:
        """Tells what is done now."""
        self.tell(Progress(0, len(self.rows), what))

    def why_left_out(self, levels: Mapping[str, str]) -> str | None:
        """Returns why rows with these levels are left out; None if they are not."""
        found = (
            w for place, w in self.left_out.items() if launch.is_in(self.design, levels, place)
        )
        return next(found, None)

    def gone(self) -> dict[str, str]:
        """Returns the environments that are left out with all of their rows, and why."""
        found: dict[str, str] = {}
        kept = set()
        for row in self.rows:
            name, why = self.environment_of(row.levels), self.why_left_out(row.levels)
            if why is None:
                kept.add(name)
            else:
                found.setdefault(name, why)
        return {name: why for name, why in found.items() if name not in kept}

    def unfinished(self, rows: Sequence[Row] | None = None) -> list[Row]:
        """Returns the rows without a record whose environment is not left out."""
        done = records.first_attempts(self.read().records)
        return [
            row
            for row in (self.rows if rows is None else rows)
            if row.number not in done
            and self.why_left_out(row.levels) is None
            and row.number not in self.not_run
        ]

    def run(self, rows: Sequence[Row] | None = None) -> None:
        """Runs what has no record yet of some rows, or of all."""
        tries: dict[int, int] = {}
        for row in self.unfinished(rows) if self.void else ():
            if (place := launch.place_of(self.design, row.levels)) in self.void:
                prepare.append_void(self, row, self.void[place])
        while pending := self.unfinished(rows):
            begun = launch.launches(self.design, pending)[:PIECE]
            self.run_piece(self.tasks(begun, 1), "rows")
            some = [row for each in begun for row in each]
            done = records.first_attempts(self.read().records)
            # Rows after the last recorded one were not begun: ReFrame itself was ended.
            last = max((at for at, row in enumerate(some) if row.number in done), default=0)
            for row in some[:last]:
                if row.number not in done:
                    tries[row.number] = tries.get(row.number, 0) + 1
            given_up = [number for number, count in tries.items() if count >= TRIES]
            self.not_run.extend(sorted(set(given_up) - set(done) - set(self.not_run)))

    def repeat(self) -> list[int]:
        """Repeats the blocks that the sentinel's rule names; returns their numbers."""
        made = self.read().records
        last = max((row.block for row in self.rows), default=0)
        begun = {record.block for record in made if record.block}
        blocks = disturbed.to_repeat(made, min(last, len(begun)), self.design.sentinel_above)
        again = {record.row for record in made if record.attempt > 1}
        measured = {record.row for record in made} - again
        rows = [
            row
            for block in blocks
            for row in self.rows
            if row.block == block and row.number in measured
        ]
        rows = [
            row
            for row in rows
            if self.why_left_out(row.levels) is None
            and launch.place_of(self.design, row.levels) not in self.void
        ]
        prepare.make(self, rows)
        every = launch.launches(self.design, rows)
        for start in range(0, len(every), PIECE):
            some = every[start : start + PIECE]
            self.run_piece(self.tasks(some, 2), "disturbed blocks again")
        return blocks

    # One start of ReFrame.

    def piece(self, tasks: Sequence[Task]) -> Piece:
        """Returns the piece that has these tasks."""
        return Piece(
            design=self.digest,
            session=self.name,
            records=str(self.records_path),
            kept=str(self.directory / "failed"),
            success=self.application.success,
            responses=self.application.responses,
            reads=self.application.reads,
            series=self.application.series,
            texts=self.application.texts,
            tasks=tuple(tasks),
        )

    def run_piece(self, tasks: Sequence[Task], what: str) -> None:
        """Runs tasks in ReFrame; returns when all have a record or ReFrame has ended."""
        content = self.piece(tasks)
        with reframe_site.work(self.directory) as work:
            self._start(content, work, what)

    def _start(self, content: Piece, work: Path, what: str) -> None:
        """Starts ReFrame in its working directory, and waits for its end.

        Raises `LabError` with ReFrame's last words if not one of the tasks got a record.
        """
        content.write(work / "piece.json")
        before, begin = len(self.read().records), records.size(self.records_path)
        arguments = reframe_site.arguments(work, self.site)
        with (self.directory / "reframe.log").open("ab") as log, self._alive():
            child = subprocess.Popen(
                [sys.executable, PROGRAM, work / "piece.json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[self._lock],
                env=self.site.environment(),
            )
            try:
                self._watch(child, begin, sum(task.starts for task in content.tasks), what)
            finally:
                self._end(child)
                # What matters of a row is in its record, and what it printed in `failed`.
                for part in ("output", "stage"):
                    shutil.rmtree(work / part, ignore_errors=True)
        if len(self.read().records) == before:
            reason = _reason(self.directory / "reframe.log")
            if child.returncode < 0:
                reason = "something has killed it"
            raise LabError(
                f"ReFrame has run no row (exit status {child.returncode}): {reason}",
                f"its whole text is in {self.directory / 'reframe.log'}",
                FAILED,
            )

    def _watch(self, child: subprocess.Popen[bytes], begin: int, total: int, what: str) -> None:
        """Tells the progress until ReFrame ends; the file of records was `begin` bytes long.

        It works beside the rows that are measured: once a second it counts new lines.
        """
        start, told, done = time.monotonic(), -1, 0
        while not _has_ended(child, 1.0):
            new = records.lines(self.records_path, begin)
            begin, done = begin + len(new), done + new.count(b"\n")
            if done != told:
                told = done
                left = (time.monotonic() - start) / done * (total - done) if done else None
                self.tell(Progress(done, total, what, left))

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Ends ReFrame if it still runs: its timer ends the program, then it ends itself."""
        if child.poll() is not None:
            return
        self._let_go()
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _has_ended(child: subprocess.Popen[bytes], within_s: float) -> bool:
    """Waits for so long for a child's end; asleep, where `Popen.wait` looks each 50 ms."""
    try:
        end = os.pidfd_open(child.pid)
    except OSError:
        # Linux before 5.3.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(within_s)
    else:
        try:
            select.select([end], [], [], within_s)
        finally:
            os.close(end)
    return child.poll() is not None


def _reason(log: Path) -> str:
    """Returns the line of ReFrame's text that tells best why nothing was run."""
    lines = [line.strip() for line in log.read_text(errors="replace").split("\n")[-200:]]
    for mark in ("No space left", "timer: ", "ERROR", "rror: ", "Reason: "):
        for line in reversed(lines):
            if mark in line:
                return line
    return next((line for line in reversed(lines) if line), "it said nothing")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Raises `Stopped` at the first signal that ends a process, and ignores the next ones."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
