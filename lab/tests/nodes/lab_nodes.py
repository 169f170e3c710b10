"""Programs that the tests of simulated nodes run as the unprivileged user."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import lab_host as hosts

IMAGE = "lab/launcher:1"
"""The image of `lab_host` with Open MPI's launcher."""

RINGS = """
import json, subprocess, sys
from pathlib import Path
from coracle_lab import environments, nodes
from coracle_lab.environments import Setting

image, names = sys.argv[1], sys.argv[2:]
with nodes.made(2, None, Path.cwd()) as some:
    for name in names:
        environment = environments.find(name)
        on_host = environment.takes == "host"
        setting = Setting(image=None if on_host else image)
        environment.prepare(setting)
        before = [some.sent(node) for node in (1, 2)]
        words = [*some.launcher(2), *environment.command(["ranks-openmpi"], setting)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        sent = [some.sent(node) - was for node, was in zip((1, 2), before)]
        print(json.dumps([name, done.returncode, sent, done.stdout, done.stderr]), flush=True)
"""
"""Prints for each environment the status of a ring of two ranks, and the bytes on the links."""

CUT = """
import subprocess, sys
from pathlib import Path
from coracle_lab import nodes

with nodes.made(2, None, Path.cwd()) as some:
    some.cut(2)
    words = [*some.launcher(2), "ranks-openmpi"]
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        print("ended", child.wait(4))
    except subprocess.TimeoutExpired:
        child.kill()
        print("hangs")
    print(child.communicate()[0])
    some.cut(2, False)
    print(subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout)
"""
"""Runs a ring over a link that is cut, which cannot end, and one over the same link joined."""

RATE = """
import re, subprocess, sys
from pathlib import Path
from coracle_lab import nodes

with nodes.made(2, sys.argv[1], Path.cwd()) as some:
    print(some.facts())
    subprocess.run([*some.launcher(2), "ranks-openmpi"], stdin=subprocess.DEVNULL, check=True)
    for process in some.processes:
        enter = ["nsenter", "--preserve-credentials", f"--user=/proc/{process}/ns/user"]
        show = ["/usr/sbin/tc", "-s", "qdisc", "show", "dev", "eth0"]
        words = [*enter, f"--net=/proc/{process}/ns/net", *show]
        print(subprocess.run(words, capture_output=True, text=True).stdout)
"""
"""Prints what the queueing disciplines of limited links have counted."""

KILLED = """
import subprocess, sys, time
from pathlib import Path
from coracle_lab import nodes

with nodes.made(2, None, Path.cwd()) as some:
    words = [*some.launcher(2), "sleep", "600"]
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    print(child.pid, *some.processes, flush=True)
    time.sleep(600)
"""
"""Starts ranks that sleep, and waits to be killed."""


def with_launcher(host: hosts.Host, directory: Path) -> None:
    """Imports an image with `mpirun` and its daemon into the user's store."""
    tree = directory / "launcher"
    shutil.copytree(host.tree, tree, symlinks=True)
    programs = [Path("/usr/bin", name) for name in ("mpirun.openmpi", "orted")]
    for program in programs:
        if not program.exists():
            hosts.skip(f"{program} is not installed")
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    words = (line.split() for line in said.splitlines())
    libraries = {Path(line[2]) for line in words if len(line) > 3 and line[1] == "=>"}
    for path in [*programs, *sorted(libraries)]:
        target = tree / path.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    (tree / "usr/bin/mpirun").symlink_to("mpirun.openmpi")
    archive = directory / "launcher.tar"
    subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True)
    done = host.run(["coracle", "import", "-q", str(archive), IMAGE])
    assert done.returncode == 0, done.stderr


def without_line(host: hosts.Host, path: Path, number: int) -> None:
    """Takes a line out of a file of the user."""
    lines = path.read_text().splitlines(keepends=True)
    del lines[number]
    write = ["sh", "-c", 'printf %s "$2" > "$1"', "sh", str(path), "".join(lines)]
    assert host.run(write).returncode == 0
