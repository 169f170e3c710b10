"""Every environment that is usable here starts a program, as an unprivileged user."""

from __future__ import annotations

import json

import lab_host as hosts
import pytest

from coracle_lab import environments

pytestmark = pytest.mark.real

# What the guest gets and says: directory, file of the host, variable, words.
GUEST = """
import json, subprocess, sys
from coracle_lab.environments import Setting, find
name, image, directory, no_ranks = sys.argv[1:]
environment = find(name)
probe = environment.probe()
if not probe.usable:
    print(json.dumps({"why": probe.why}))
    sys.exit()
setting = Setting(image=image, volumes=(f"{directory}:{directory}",), workdir=directory,
    variables={"WORD": 'of "the\\n\\\\ setting'})
environment.prepare(setting)
script = 'pwd; cat file; printf "%s|" "$WORD" "$@"; touch made; ls -d /in-the-container; exit 7'
words = environment.command(["sh", "-c", script, "sh", "a b", '"q"\\\\', "x\\ny\\t", ""], setting)
done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
ranks = None
if environment.one_rank is None and not no_ranks:
    words = environment.command(["ranks-openmpi"], setting)
    words = ["timeout", "60", "mpirun", "-np", "2", *words]
    ranked = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    ranks = [ranked.returncode, ranked.stdout, ranked.stderr]
environment.clean(setting)
print(json.dumps({"why": "", "done": [done.returncode, done.stdout, done.stderr], "ranks": ranks}))
"""

# Those that start ranks themselves: tests/nodes.
NAMES = [
    name
    for name in environments.names()
    if not name.startswith(("native", "planted")) and not environments.find(name).launches
]
# Its programs are the image's static busybox, which no preloaded library can hold.
STATIC = "fakechroot"
# Each probe of udocker takes a second, and these need its own programs, or namespaces.
OTHERS = ("udocker:F", "udocker:R", "udocker:S")
# It loses words that are empty.
NO_EMPTY_WORDS = "udocker"
# Without ranks of MPI, with the reason.
NO_RANKS = {
    "coracle:R2": "Open MPI 4.1 hangs: no rank can read the memory of another",
    "coracle:R3": "Open MPI 4.1 hangs: no rank can read the memory of another",
}


@pytest.mark.parametrize("name", NAMES)
def test_start(host: hosts.Host, name: str) -> None:
    if name == STATIC:
        hosts.skip(f"{name} cannot hold the static programs of the test's image")
    if host.forbidden and name.startswith(OTHERS):
        hosts.skip(f"{name} is tried where namespaces are allowed")
    directory = host.home / "with space"
    made = host.run(["sh", "-c", 'mkdir -p "$1" && echo text > "$1/file"', "sh", str(directory)])
    assert made.returncode == 0, made.stderr
    no = NO_RANKS.get(name, "")
    done = host.run([host.python(), "-c", GUEST, name, hosts.IMAGE, str(directory), no])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    if said["why"]:
        hosts.skip(f"{name}: {said['why']}")
    status, out, errors = said["done"]
    # native prints no such file; so this shows that the program is in the container.
    last = "" if name.startswith(NO_EMPTY_WORDS) else "|"
    words = f'of "the\n\\ setting|a b|"q"\\|x\ny\t|{last}'
    expected = f"{directory}\ntext\n{words}/in-the-container\n"
    assert (status, out) == (7, expected), errors
    if said["ranks"] is None:
        print(f"{name} has no ranks: {NO_RANKS.get(name, 'its table says why')}")
        return
    status, out, errors = said["ranks"]
    expected = 'ring of 2 ranks: right, in the container: 1, of "the\n\\ setting\n'
    assert (status, out) == (0, expected), errors


def test_forbidden_namespaces_are_seen(host: hosts.Host) -> None:
    """The probe of N1 says what forbids it, and finds it usable elsewhere."""
    code = "from coracle_lab.environments import find; print(find('coracle:N1').probe().why)"
    done = host.run([host.python(), "-c", code])
    assert done.returncode == 0, done.stderr
    assert ("max_user_namespaces" in done.stdout) == host.forbidden, done.stdout
