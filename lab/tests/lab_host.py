"""A host as a user has it, for tests: a home, Coracle, an image, and user namespaces or none.

Tests run as the user who starts them, and as an unprivileged one if that is root. What is missing
is a skip that says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[1]
REPOSITORY = LAB.parent
TARGET = REPOSITORY / "target/x86_64-unknown-linux-gnu"
GUESTS = REPOSITORY / "suites/src/hosts/guests"
IMAGE = "lab/mpi:1"
USER = 1001
LIMIT_S = 300
SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
MORE = [path for path in os.environ.get("CORACLE_LAB_TEST_PATH", "").split(":") if path]
"""Directories of further peers."""
LINKS = ("cat", "printf", "env", "pwd", "ls", "touch", "echo")
"""Programs of the image, which are all busybox."""
PEERS = ("udocker", "proot")
"""Programs that are installed beside this Python."""


def skip(why: str) -> None:
    """Skips a test, and says why on the terminal too."""
    print(f"SKIP: {why}")
    pytest.skip(why)


def built(name: str) -> Path:
    """Returns a program of this repository: what CORACLE_BIN says, or the newest that was built."""
    told = os.environ.get("CORACLE_BIN")
    if told and Path(told).name == name:
        return Path(told)
    found = [path for path in TARGET.glob(f"*/{name}") if os.access(path, os.X_OK)]
    if not found:
        skip(f"{name} is not built (cargo build --workspace)")
    return max(found, key=lambda path: path.stat().st_mtime)


class Host:
    """Runs commands as an unprivileged user, with user namespaces allowed or forbidden."""

    def __init__(self, directory: Path, forbidden: bool) -> None:
        """Takes a directory that the user may enter, for the home and for programs."""
        self.home = directory / "home"
        self.bin = directory / "bin"
        self.lab = directory / "lab"
        self.tree = directory / "mpi"
        self.forbidden = forbidden

    def prefix(self) -> list[str]:
        """Returns the words before a command."""
        words = []
        if self.forbidden:
            if os.geteuid() != 0:
                skip("only root can forbid user namespaces for others")
            words.append(str(built("nouserns")))
        if os.geteuid() == 0:
            words += ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return words

    def run(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        site = next(path for path in sys.path if (Path(path) / "reframe").is_dir())
        environment = {
            "HOME": str(self.home),
            "USER": "user",
            "LANG": "C.UTF-8",
            "PATH": ":".join([str(self.bin), f"{self.tree}-host", *MORE, *SYSTEM]),
            "PYTHONPATH": f"{self.lab}:{site}",
            **(variables or {}),
        }
        try:
            return subprocess.run(
                [*self.prefix(), *words],
                env=environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            # The last lines say where it hangs; the exception itself shows the first ones.
            said = b"\n".join(text for text in (error.stdout, error.stderr) if text)
            told = said.decode(errors="replace")[-4000:]
            raise AssertionError(f"{words} had not ended after {LIMIT_S} s:\n{told}") from None

    def python(self) -> str:
        """Returns a Python that the user may start, with ReFrame."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for program in (sys.executable, f"/usr/bin/{version}"):
            # By a shell, which has the user's rights only when it looks the program up.
            if self.run(["sh", "-c", '"$1" -c "import reframe"', "sh", program]).returncode == 0:
                return program
        skip(f"the unprivileged user can start no {version} that has ReFrame")
        raise AssertionError


def make(directory: Path) -> None:
    """Fills a directory: Coracle, the package, a tree with ranks of MPI, a home that has it."""
    for program in ("mpicc.openmpi", "mpicc.mpich", "busybox", "mpirun"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed")
    directory.chmod(0o755)
    host = Host(directory, forbidden=False)
    for path in (host.home, host.bin):
        path.mkdir()
    shutil.copy(built("coracle"), host.bin / "coracle")
    (host.bin / "docker").symlink_to("coracle")
    for peer in (Path(sys.executable).with_name(name) for name in PEERS):
        if peer.exists():
            (host.bin / peer.name).symlink_to(peer)
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for part in ("coracle_lab", "apps"):
        shutil.copytree(LAB / part, host.lab / part, ignore=ignore)
    shutil.copytree(LAB / "tests/reframe/suite", host.lab / "suite", ignore=ignore)
    script = ["sh", str(GUESTS / "tree.sh"), str(host.tree), str(GUESTS / "ranks.c")]
    subprocess.run(script, check=True, capture_output=True)
    for link in LINKS:
        (host.tree / "usr/bin" / link).symlink_to("busybox")
    archive = directory / "image.tar"
    subprocess.run(["tar", "-C", str(host.tree), "-cf", str(archive), "."], check=True)
    # Natively the ranks are the same files.
    native = Path(f"{host.tree}-host")
    native.mkdir()
    shutil.copy(host.tree / "usr/bin/ranks-openmpi", native)
    if os.geteuid() == 0:
        for path in (host.home, host.tree):
            subprocess.run(["chown", "-R", f"{USER}:{USER}", str(path)], check=True)
    done = host.run(["coracle", "import", "-q", str(archive), IMAGE])
    assert done.returncode == 0, done.stderr
