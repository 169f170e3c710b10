"""A real Slurm with one node on this machine, run by an unprivileged user for that user.

Its authentication, its controller and its node are started in a directory of the user, on free
ports, and are ended by their process ids.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lab_host as hosts

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo")
PATIENCE_S = 30

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/%n
SlurmctldPidFile={at}/controller.pid
SlurmdPidFile={at}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

PREPARE = """
mkdir -p "$1/state" "$1/one"
(umask 377; head -c 256 /dev/urandom > "$1/munge.key")
printf %s "$2" > "$1/slurm.conf"
"""


@contextmanager
def cluster(host: hosts.Host, name: str) -> Iterator[dict[str, str]]:
    """Runs a cluster. Gives the variables that Slurm's commands need."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            hosts.skip(f"{program} is not installed")
    at = host.home / name
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [one.getsockname()[1] for one in bound]
    here = socket.gethostname().split(".")[0]
    user = host.run(["id", "-un"]).stdout.strip()
    text = CONFIGURATION.format(host=here, ports=ports, at=at, user=user)
    made = host.run(["sh", "-e", "-c", PREPARE, "sh", str(at), text])
    assert made.returncode == 0, made.stderr
    variables = {"SLURM_CONF": f"{at}/slurm.conf"}
    with ExitStack() as daemons:
        munge = [f"--{word}={at}/munge.{word.split('-')[0]}" for word in ("key-file", "socket")]
        munge += [f"--{word}-file={at}/munge.{word}" for word in ("pid", "log", "seed")]
        _start(daemons, host, at, ["munged", "-F", *munge], variables)
        _until(lambda: (at / "munge.socket").exists(), "munged")
        _start(daemons, host, at, ["slurmctld", "-D"], variables)
        _start(daemons, host, at, ["slurmd", "-D", "-N", "one"], variables)
        ask = ["sinfo", "-h", "-o", "%D %T"]
        _until(lambda: host.run(ask, variables).stdout.strip() == "1 idle", "the node")
        yield variables


def _start(
    daemons: ExitStack,
    host: hosts.Host,
    at: Path,
    words: Sequence[str],
    variables: dict[str, str],
) -> None:
    log = daemons.enter_context((at / f"{words[0]}.out").open("w"))
    child = subprocess.Popen(
        [*host.prefix(), *words],
        env={"HOME": str(host.home), "PATH": os.pathsep.join(hosts.SYSTEM), **variables},
        cwd=at,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    daemons.callback(_end, child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _until(ready: object, what: str) -> None:
    assert callable(ready)
    end = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < end, f"{what} is not ready"
        time.sleep(0.2)
