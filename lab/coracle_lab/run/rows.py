"""The one ReFrame test: it runs a row under the timer, judges it, and appends its record.

ReFrame imports this file by its path and makes one case of the class for each task of the piece;
`--exec-order=name --exec-policy=serial` runs them in the order of their keys. The launch line is
the partition's launcher and the words of the row's environment; the timer is the launcher's
modifier, so it times exactly that.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import (
    parameter,
    run_after,
    run_before,
    sanity_function,
)
from reframe.core.exceptions import SanityError

from coracle_lab.run import judge, lock, piece, records
from coracle_lab.run.scratch import empty

TASKS = {task.key: task for task in piece.current.tasks} if piece.current else {}
HERE = Path(__file__).parent


@rfm.simple_test
class Row(rfm.RunOnlyRegressionTest):  # type: ignore[misc]
    """One attempt of one row."""

    key = parameter(sorted(TASKS))
    valid_systems = ["*"]  # noqa: RUF012 (a variable of ReFrame's, not an attribute)
    valid_prog_environs = ["*"]  # noqa: RUF012

    @run_after("init")
    def take(self) -> None:
        """Takes the launch line of the task."""
        task = TASKS[self.key]
        first, *others = (shlex.quote(word) for word in task.words)
        self.executable = first
        self.executable_opts = others
        self.num_tasks = task.ranks

    @run_before("run")
    def put_timer(self) -> None:
        """Puts the timer before the launcher."""
        stage = Path(self.stagedir)
        if (scratch := TASKS[self.key].scratch) is not None:
            empty(Path(scratch))
        if TASKS[self.key].launches:
            self.job.launcher = getlauncher("local")()
        if self.job.launcher.registered_name == "srun" and "SLURM_JOB_ID" in os.environ:
            # In an allocation a step has as many tasks as that, if it is not told.
            nodes = min(self.num_tasks, int(os.environ.get("SLURM_JOB_NUM_NODES", "1")))
            self.job.launcher.options = [f"--ntasks={self.num_tasks}", f"--nodes={nodes}"]
        (stage / "request.json").write_text(json.dumps(dict(TASKS[self.key].request)))
        words = [sys.executable, "-S", "-E", "-B", str(HERE / "timer.py")]
        self.job.launcher.modifier = shlex.quote(words[0])
        self.job.launcher.modifier_options = [
            *(shlex.quote(word) for word in words[1:]),
            "--request",
            "request.json",
            "--",
        ]

    @sanity_function
    def judge(self) -> bool:
        """Judges the output, and appends the record whatever the judgement is."""
        current, task, stage = piece.current, TASKS[self.key], Path(self.stagedir)
        assert current is not None
        measured = judge.measured(stage / "measured.json")
        if len(measured) != task.starts:
            # If something has killed the timer, its program may still run beside the next row.
            lock.wait_for_last_row(Path(current.records).parent)
            raise SanityError("the timer wrote nothing: the row has not been run")
        starts = [task.start(at) for at in range(task.starts)]
        found = [
            judge.record(current, starts[at], one, stage, at) for at, one in enumerate(measured)
        ]
        # A launch is recorded whole: one that goes on after an interruption is another launch.
        records.append(Path(current.records), *found)
        for at, record in enumerate(found):
            if record["outcome"] != "ok":
                judge.keep(Path(current.kept), starts[at], stage, at)
        wrong = [record for record in found if record["outcome"] != "ok"]
        if wrong:
            raise SanityError(f"{wrong[0]['outcome']}: {wrong[0]['why']}")
        return True
