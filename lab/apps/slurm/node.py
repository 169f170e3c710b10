"""Starts the daemon of a Slurm node in an environment, and waits until the node is idle.

Words: -- COMMAND..., by which the environment starts a program; without them it is the host. The
environment shows the working directory under its own path, and starts programs as root, as it seems
to them.

Authentication (`munged`) and the controller (`slurmctld`) run on the host as the user who calls, on
free ports, and are there before anything is timed. Then `slurmd` is started by COMMAND. `idle_s`
is the time from that until the controller says that the node is idle; before it has to say
"unknown".
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

LIMIT_S = 60.0
PAUSE_S = 0.002
NODE = "node"
BEFORE, AFTER = "unknown", "idle"
# Nothing that needs root, and no plugin of another package.
CONFIGURATION = """ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={node_user}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/controller.pid
SlurmdPidFile={place}/node.pid
TmpFS={place}/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Failed(Exception):
    """Something does not start, or ends too early."""


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback. All are looked for at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


def configuration(place: Path, in_container: bool) -> str:
    """Returns slurm.conf(5) for one node on this host."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return CONFIGURATION.format(
        place=place,
        host=socket.gethostname().partition(".")[0],
        user=user,
        node_user="root" if in_container else user,
        node=NODE,
        ports=free_ports(2),
    )


def set_up(place: Path, in_container: bool) -> dict[str, str]:
    """Fills the directory of a cluster; returns the variables of its programs."""
    for name in ("state", "spool", "tmp"):
        (place / name).mkdir()
    key = place / "munge.key"
    key.write_bytes(os.urandom(256))
    key.chmod(0o400)
    (place / "slurm.conf").write_text(configuration(place, in_container))
    # Debian has the daemons where users do not look.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return {**os.environ, "SLURM_CONF": str(place / "slurm.conf"), "PATH": path}


@contextlib.contextmanager
def daemon(
    words: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    end: signal.Signals = signal.SIGTERM,
) -> Iterator[Callable[[], None]]:
    """Runs a program meanwhile. What is yielded raises `Failed` if it has ended."""
    with log.open("w") as out:
        try:
            child = subprocess.Popen(words, stdout=out, stderr=out, env=dict(variables))
        except OSError as error:
            raise Failed(f"{words[0]}: {error.strerror}") from error

    def look() -> None:
        if child.poll() is not None:
            said = log.read_text(errors="replace").strip()[-500:]
            raise Failed(f"{words[0]} ended with {child.returncode}: {said}")

    try:
        yield look
    finally:
        child.send_signal(end)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait(done: Callable[[], bool], what: str, *looks: Callable[[], None]) -> None:
    """Waits until something is so, while some daemons live."""
    until = time.monotonic() + LIMIT_S
    while not done():
        for look in looks:
            look()
        if time.monotonic() > until:
            raise Failed(f"after {LIMIT_S:g} s {what}")
        time.sleep(PAUSE_S)


def state(variables: Mapping[str, str]) -> str:
    """Returns what the controller says of the node; nothing if it does not answer."""
    words = ["sinfo", "--noheader", "--format=%T"]
    said = subprocess.run(words, env=dict(variables), capture_output=True, text=True, check=False)
    return said.stdout.strip()


def measure(place: Path, command: Sequence[str]) -> float:
    """Returns the time from the start of the node's daemon until the node is idle."""
    variables = set_up(place, bool(command))
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
    munge = [f"--{option}={place}/munge.{name}" for option, name in files.items()]
    # --force: the directory need not be open to other users, for only this one calls.
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        munged = enter(
            daemon(["munged", "--foreground", "--force", *munge], place / "munged.out", variables)
        )
        wait((place / "munge.socket").is_socket, "munged has no socket", munged)
        words = ["slurmctld", "-D"]
        # It takes a second to end by itself, and what it would write is not needed.
        controller = enter(daemon(words, place / "slurmctld.out", variables, signal.SIGKILL))
        wait(lambda: state(variables) == BEFORE, "slurmctld does not answer", munged, controller)
        words = [*command, "slurmd", "-D", "-f", f"{place}/slurm.conf", "-N", NODE]
        began = time.monotonic()
        node = enter(daemon(words, place / "slurmd.out", variables))
        wait(lambda: state(variables) == AFTER, "the node is not idle", munged, controller, node)
        return time.monotonic() - began


def main() -> None:
    """Runs as the words say."""
    words = sys.argv[1:]
    if words[:1] != ["--"]:
        sys.stderr.write("error: words: -- COMMAND...\n")
        raise SystemExit(2)
    # What is started here ends also when the caller is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print("lab", json.dumps({"idle_s": measure(Path.cwd(), words[1:])}))
    except Failed as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
