"""An environment: how a program is started in it, whether it is usable, and what it needs before.

`command` is pure but for the look-up of the program in `PATH`. `prepare` and `clean` run the
commands of the table; they are never within the timed part of a row.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coracle_lab import cache
from coracle_lab.environments import trees
from coracle_lab.environments.process import run
from coracle_lab.environments.setting import Setting, values, volumes
from coracle_lab.environments.table import Entry, Takes
from coracle_lab.environments.template import (
    WORDS,
    Item,
    Values,
    fill,
    fill_each,
    placeholders,
)
from coracle_lab.errors import LabError

LIMIT_S = 60
"""How long a probe may take."""
PREPARE_LIMIT_S = 1800


@dataclass(frozen=True)
class Probe:
    """Whether an environment is usable here, the version of its program, and if not, why.

    `tried` is false if nothing was started in it: what runs it first finds out.
    """

    usable: bool
    version: str
    why: str
    tried: bool = True


class Environment:
    """One environment by its name."""

    def __init__(self, name: str, entry: Entry, value: str | None = None) -> None:
        """Takes the entry that has the name, and what stands for `{value}` in it."""
        self.name = name
        self.entry = entry
        self.value = value
        self.text = entry.text.replace("{value}", value or "")
        self.takes: Takes = entry.takes

    @property
    def one_rank(self) -> str | None:
        """Why ranks of MPI cannot be in this environment, if they cannot."""
        return self.entry.one_rank

    @property
    def launches(self) -> bool:
        """Whether its command starts the ranks itself, so that no launcher stands before it."""
        return self.entry.launches

    @property
    def has_readonly_volumes(self) -> bool:
        """Whether a volume can be read-only in the environment."""
        used = placeholders(self.entry.command) | placeholders(self.entry.prepare)
        return bool(used & {"volume", "ro_source"})

    @property
    def passes_no_variables(self) -> bool:
        """Whether a program in it has none of the caller's variables but those that are named."""
        return "passed" in placeholders(self.entry.command)

    @property
    def has_options(self) -> bool:
        """Whether words of a design's options can be put into its command."""
        return "option" in placeholders(self.entry.command)

    def probe(self) -> Probe:
        """Finds out whether the environment is usable, by starting something in it."""
        entry = self.entry
        if entry.root and os.geteuid() != 0:
            return Probe(False, "", f"{self.name} needs root")
        if entry.program is not None and shutil.which(entry.program) is None:
            return Probe(False, "", f"{entry.program} is not in PATH")
        # Some versions can only be asked when something has been prepared.
        why = self._own_probe() if entry.probe else self._try_program()
        version = ""
        if entry.version:
            said = run(fill(entry.version, values(Setting(), self._single(Setting()))), LIMIT_S)
            why, version = why or said.why, said.version()
        return Probe(not why, version, why, self._can_be_tried)

    @property
    def _can_be_tried(self) -> bool:
        """Whether something can be started in it without an image of the user's."""
        entry = self.entry
        return (
            bool(entry.probe) or entry.takes != "image" or "rootfs" in placeholders(entry.command)
        )

    def _own_probe(self) -> str:
        single = self._single(Setting())
        Path(single["scratch"] or "").mkdir(parents=True, exist_ok=True)
        if "probe_tree" in placeholders(self.entry.probe):
            single["probe_tree"] = str(trees.probe_tree())
        return run(fill(self.entry.probe, values(Setting(), single)), LIMIT_S).why

    def _try_program(self) -> str:
        """Starts a program of the host, in a tree that has nothing else. Returns what failed."""
        if self.takes == "host":
            return run(self.command(["true"], Setting()), LIMIT_S).why
        if not self._can_be_tried:
            return ""
        try:
            setting = Setting(rootfs=trees.probe_tree())
            self.prepare(setting)
            try:
                return run(self.command(["/bin/true"], setting), LIMIT_S).why
            finally:
                self.clean(setting)
        except LabError as error:
            return error.message

    def prepare(self, setting: Setting) -> None:
        """Makes all that `command` needs: the tree of the image, the image in the form taken."""
        self._check(setting)
        if self.takes == "tree" and setting.rootfs is None:
            trees.make(setting.image or "")
        single = self._single(setting)
        Path(single["scratch"] or "").mkdir(parents=True, exist_ok=True)
        self._run_all("prepared", self.entry.prepare, values(setting, single))

    def prepared(self, setting: Setting) -> Setting:
        """Returns the part of a setting that `prepare` depends on: rows of equal parts share
        what was prepared."""
        if "variable" in placeholders([*self.entry.prepare, *self.entry.clean]):
            return replace(setting, ranks=1, options=())
        return replace(setting, variables={}, ranks=1, options=())

    def clean(self, setting: Setting) -> None:
        """Undoes what `prepare` has done, but for trees and images, which are kept."""
        single = self._single(setting)
        self._run_all("cleaned", self.entry.clean, values(setting, single))
        shutil.rmtree(single["scratch"] or "", ignore_errors=True)

    def command(self, words: Sequence[str], setting: Setting) -> list[str]:
        """Returns the command that runs the words in this environment."""
        self._check(setting)
        filled = fill(self.entry.command, values(setting, self._single(setting)))
        if WORDS not in filled:
            return [*filled, *words]
        at = filled.index(WORDS)
        return [*filled[:at], *words, *filled[at + 1 :]]

    def _run_all(self, what: str, commands: Sequence[Sequence[Item]], given: Values) -> None:
        for template in commands:
            for command in fill_each(template, given):
                said = run(command, PREPARE_LIMIT_S)
                if said.why:
                    raise LabError(
                        f"{self.name} cannot be {what}: {said.why}",
                        f"the command was: {shlex.join(command)}",
                    )

    def _single(self, setting: Setting) -> dict[str, str | None]:
        program = self.entry.program
        single: dict[str, str | None] = {
            "program": (shutil.which(program) or program) if program is not None else None,
            "value": self.value,
            "image": setting.image,
            "rootfs": None,
            "tree": None,
        }
        if setting.rootfs is not None:
            single["rootfs"] = None if setting.image else str(setting.rootfs.absolute())
        if self.takes == "tree" and (setting.rootfs is not None or setting.image is not None):
            root = setting.rootfs or trees.place(setting.image or "")
            single["tree"] = str(root.absolute())
        scratch = trees.scratch(self.name, self.prepared(setting))
        single["scratch"] = str(scratch)
        single["cache"] = str(cache.directory())
        single["id"] = scratch.name
        return single

    def _check(self, setting: Setting) -> None:
        """Raises an error for what the environment cannot do, so that nothing is ignored."""
        used = placeholders(self.entry.command) | placeholders(self.entry.prepare)
        self._check_root(setting, used)
        self._check_gpus(setting, used)
        mounted = volumes(setting)
        if self.takes == "host":
            for one in mounted:
                if one.source != one.target:
                    raise LabError(
                        f"{self.name} cannot show {one.source} as {one.target}",
                        "name a path of the host that is the same in the container",
                    )
        elif any(not one.readonly for one in mounted) and not used & {"volume", "source"}:
            raise LabError(f"{self.name} has no volumes")
        elif any(one.readonly for one in mounted) and not used & {"volume", "ro_source"}:
            raise LabError(f"{self.name} has no read-only volumes")
        if setting.workdir is not None and "workdir" not in used:
            raise LabError(f"{self.name} cannot choose the working directory")
        if setting.variables and "variable" not in used:
            raise LabError(f"{self.name} cannot set variables")
        if setting.options and not self.has_options:
            raise LabError(
                f"{self.name} takes no options of a design",
                'an entry that takes them has the group ["{option}"] in its command',
            )

    def _check_gpus(self, setting: Setting, used: set[str]) -> None:
        if setting.gpus is None:
            return
        if self.entry.all_gpus and setting.gpus != "all":
            raise LabError(f"{self.name} cannot choose GPUs", 'gpus can only be "all"')
        if not self.entry.all_gpus and "gpus" not in used:
            raise LabError(
                f"{self.name} has no way of its own to give GPUs",
                "give the driver's libraries as volumes, in place of gpus",
            )

    def _check_root(self, setting: Setting, used: set[str]) -> None:
        if self.takes == "tree" and setting.rootfs is None and setting.image is None:
            raise LabError(f"{self.name} needs a directory tree, or an image to make one of")
        if self.takes == "tree" and setting.rootfs is not None and not setting.rootfs.is_dir():
            raise LabError(f"{setting.rootfs} is not a directory")
        if self.takes == "image" and setting.image is None:
            if setting.rootfs is None:
                raise LabError(f"{self.name} needs an image")
            if "rootfs" not in used:
                raise LabError(f"{self.name} needs an image, and cannot use a directory tree")
