"""Starts the two sides of a network benchmark: a server, and a client that measures.

One process starts both, and they talk over the loopback. As two ranks of a job each starts one:
rank 0 the server, whose address and port it writes into the working directory, and rank 1 the
client. So the two sides can be on different nodes, and in containers of their own.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LIMIT_S = 600.0
_STEP_S = 0.002
_MEETING = Path("server")
_SIOCGIFADDR = 0x8915
_LISTENS = "0A"
RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

Words = Callable[[str, int], Sequence[str]]
"""Makes a command for an address and a port."""


def fail(what: str, status: int = 1) -> None:
    """Ends with a message."""
    sys.stderr.write(f"error: {what}\n")
    raise SystemExit(status)


def _number(names: Sequence[str], otherwise: int) -> int:
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)


def rank() -> int:
    """Returns the rank of this process; 0 if no launcher started it."""
    return _number(RANK, 0)


def ranks() -> int:
    """Returns the number of ranks; 1 if no launcher started this process."""
    return _number(SIZE, 1)


def _address() -> str:
    """Returns an address of this node that others can reach; that of the loopback if none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            if name == "lo":
                continue
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(one.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            return socket.inet_ntoa(answer[20:24])
    return "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


def _listens(port: int) -> bool:
    """Tells whether a socket of this network listens at the port. It makes no connection."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTENS and words[1].endswith(f":{port:04X}"):
                return True
    return False


def _serve(words: Words) -> tuple[subprocess.Popen[str], int]:
    """Starts the server, and returns when it listens."""
    port = _free_port()
    command = list(words("", port))
    try:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")
        raise
    until = time.monotonic() + LIMIT_S
    while not _listens(port):
        if server.poll() is not None or time.monotonic() > until:
            server.kill()
            said = server.communicate()[0].strip()
            fail(f"the server of {command[0]} does not listen: {said}")
        time.sleep(_STEP_S)
    return server, port


def _end(server: subprocess.Popen[str]) -> None:
    """Waits for a server that ends when its client has."""
    try:
        said = server.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        server.kill()
        fail("the server does not end")
        raise
    if server.returncode != 0:
        fail(f"the server ended with status {server.returncode}: {said.strip()}")


def _meet() -> tuple[str, int]:
    """Returns where the server of rank 0 is."""
    until = time.monotonic() + LIMIT_S
    while not _MEETING.exists():
        if time.monotonic() > until:
            fail("rank 0 does not say where its server is")
        time.sleep(_STEP_S)
    address, port = _MEETING.read_text().split()
    return address, int(port)


def run(server: Words, client: Callable[[str, int], None]) -> None:
    """Runs both sides, or that of this rank."""
    if ranks() > 2:
        fail("it has two sides: start it as one rank, or as two", 2)
    if ranks() == 1:
        started, port = _serve(server)
        try:
            client("127.0.0.1", port)
        except SystemExit:
            started.kill()
            started.wait()
            raise
        _end(started)
    elif rank() == 0:
        started, port = _serve(server)
        # The name appears when the content is there.
        made = _MEETING.with_suffix(".new")
        made.write_text(f"{_address()} {port}\n")
        made.rename(_MEETING)
        _end(started)
    else:
        client(*_meet())


def output(words: Sequence[str]) -> str:
    """Runs a client, and returns what it printed."""
    try:
        done = subprocess.run(
            list(words), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except OSError as error:
        fail(f"{words[0]}: {error.strerror}")
        raise
    except subprocess.TimeoutExpired:
        fail(f"{words[0]} does not end")
        raise
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        fail(f"{words[0]} ended with status {done.returncode}: {said}")
    return done.stdout
