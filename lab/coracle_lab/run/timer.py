# ruff: noqa: PTH100, PTH118, PTH119, PTH120, PTH123, PTH202
# Importing pathlib would double the timer's start.
"""Times a launch line and writes what it saw as one line of JSON.

    python3 timer.py --request FILE -- PROGRAM ARGS

It starts the program in a process group of its own, and reads CLOCK_MONOTONIC_RAW immediately
before the start and after the end. Usage comes from wait4: it contains the descendants that were
waited for, and not those that a daemon started. Everything else (sentinel, pressure, load,
frequencies, the output's hash) is read before and after that.

In between, it sleeps in sigtimedwait and wakes four times a second: for the limits of time and
of output, and for the session's end (its FIFO has no writer any more), at which it ends the
process group and writes nothing: that row has not been run.

A request can ask for several starts of the line, one after the other between one pair of
sentinels: each has a line of its own, and they are written together, after the last one.

Standard library only, Python 3.6 or later: it can be copied to a node, with ``sentinel.py``,
``counters.py`` and ``hardware.py``.

Exit status: 0 the line is written, 1 usage, 74 it cannot be written, 75 the row was ended.
"""

import contextlib
import fcntl
import gc
import hashlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import time
from typing import Any

TICK_S, LOOK_S, REST_S = 0.25, 0.001, 0.02
"""The sentinel uses up this process's share of a busy processor: after a rest it has one again."""
GRACE_S = 1.0
"""How long a process group has between SIGTERM and SIGKILL: less than what ReFrame gives us."""
WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REQUEST = {
    "into": "measured.json",
    "starts": 1,
    "stdout": "output",
    "stderr": "errors",
    "cwd": None,
    "variables": {},
    "timeout_s": None,
    "output_limit_bytes": 64 << 20,
    "cpus": None,
    "sentinel": False,
    "alive": None,
    "boot": None,
    "busy": None,
    "look": None,
}  # type: dict[str, Any]
"""What a request may say, and what holds if it does not."""


class Ended(Exception):
    """The row has to end now, and counts as not run."""


def clock() -> float:
    """Return the seconds of the clock that is neither set nor slewed."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def load(path: str) -> "Any":
    """Import a module by its file, which need not be in a package or on the path."""
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def beside(name: str) -> "Any":
    """Import a module of this file's directory."""
    return load(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))


counters, hardware = beside("counters.py"), beside("hardware.py")


class Run:
    """One program: started, waited for, ended."""

    def __init__(
        self, words: "list[str]", request: "dict[str, Any]", number: int, busy: "int | None"
    ) -> None:
        """Open the files of the output and find the program; nothing is started.

        `number` is the start's, from 0: the files of a later one have it in their names.
        """
        self.request = request
        self.busy = busy
        self.words = words
        self.environment = dict(os.environ)
        self.environment.update(request["variables"])
        search = self.environment.get("PATH", os.defpath)
        self.program = shutil.which(words[0], path=search) or ""
        self.limit = request["output_limit_bytes"]
        self.too_long = f"it printed more than {self.limit} bytes"
        beside = f".{number}" if number else ""
        self.printed = [request[name] + beside for name in ("stdout", "stderr")]
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self.files = [os.open(path, flags, 0o644) for path in self.printed]
        self.pid, self.floor, self.status = 0, 0, 127
        self.why = None  # type: str | None
        self.outcome = "ok"
        self.started = self.ended = 0.0
        self.signal = None  # type: int | None
        self.usage = resource.struct_rusage([0] * 16)
        self.looker = None  # type: Any

    def spawn(self) -> None:
        """Start the program in a process group of its own, with the default signals."""
        null = os.open(os.devnull, os.O_RDONLY)
        reset = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
        files = list(enumerate([null, *self.files]))
        if hasattr(os, "posix_spawn"):
            actions = [(os.POSIX_SPAWN_DUP2, old, new) for new, old in files]
            told = {"setpgroup": 0, "setsigmask": (), "setsigdef": reset}  # type: dict[str, Any]
            self.started = clock()
            self.pid = os.posix_spawn(
                self.program, self.words, self.environment, file_actions=actions, **told
            )
        else:
            self.started = clock()
            self.pid = os.fork()
            if self.pid == 0:
                self.become(files, reset)
        os.close(null)

    def become(self, files: "list[tuple[int, int]]", reset: "tuple[int, ...]") -> None:
        """Turn the forked child into the program: Python before 3.8 has no posix_spawn."""
        try:
            os.setpgid(0, 0)
            for number in reset:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for new, old in files:
                os.dup2(old, new)
            os.execve(self.program, self.words, self.environment)
        except OSError as error:
            os.write(2, f"timer: {self.program}: {error}\n".encode())
        finally:
            os._exit(127)

    def end(self, number: int) -> None:
        """Send a signal to the group; its leader is not reaped yet, so the number is its own."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def is_over(self) -> bool:
        """Tell whether the program has ended, without reaping it."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def stop(self, outcome: str, why: str) -> None:
        """End the process group: SIGTERM, some time, SIGKILL."""
        self.outcome, self.why = outcome, why
        self.end(signal.SIGTERM)
        limit = clock() + GRACE_S
        while not self.is_over():
            if clock() > limit:
                self.end(signal.SIGKILL)
            signal.sigtimedwait((signal.SIGCHLD,), 0.05)

    def is_too_long(self) -> bool:
        """Tell whether the program has written more than it may."""
        return any(os.fstat(file).st_size > self.limit for file in self.files)

    def check(self, alive: "int | None") -> bool:
        """Look at the limits; return whether the program had to be ended."""
        if self.busy is not None:
            # A later session has to end this process, should this timer be killed.
            started = " ".join(counters.words_of(f"/proc/{self.pid}/stat"))
            started = started.rpartition(")")[2].split()[19]
            os.ftruncate(self.busy, 0)
            os.pwrite(self.busy, f"{self.pid} {started}\n".encode(), 0)
            self.busy = None
        if alive is not None and has_no_writer(alive):
            raise Ended("the session has ended")
        timeout = self.request["timeout_s"]
        if timeout is not None and clock() - self.started > timeout:
            self.stop("late", f"it ran longer than {timeout:g} s")
        elif self.is_too_long():
            self.stop("failed", self.too_long)
        return self.outcome != "ok"

    def wait(self, alive: "int | None") -> None:
        """Sleep until the program ends; the time is read first of all."""
        tick = TICK_S if self.looker is None else LOOK_S
        tick = min(tick, self.request["timeout_s"] or tick)
        if self.looker is not None:
            self.looker.look()
        while True:
            info = signal.sigtimedwait(WATCHED, tick)
            self.ended = clock()
            if info is None:
                if self.looker is not None:
                    self.looker.look()
                if self.check(alive):
                    self.ended = clock()
                    return
            elif info.si_signo != signal.SIGCHLD:
                raise Ended(f"signal {info.si_signo}")
            elif self.is_over():
                return

    def reap(self) -> None:
        """Collect status and usage, and end what the program left in its group."""
        self.end(signal.SIGKILL)
        _, status, self.usage = os.wait4(self.pid, 0)
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            self.status = 128 + self.signal
        else:
            self.status = os.WEXITSTATUS(status)
        if self.outcome == "ok" and self.is_too_long():
            self.outcome, self.why = "failed", self.too_long

    def run(self, alive: "int | None") -> None:
        """Start the program and wait for its end; a program that is not there has failed."""
        if not self.program:
            self.outcome, self.why = "failed", f"{self.words[0]}: there is no such program"
            return
        if self.request["look"] is not None:
            self.looker = load(self.request["look"]).Looker()
        self.floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        gc.disable()
        time.sleep(REST_S)
        try:
            self.spawn()
        except OSError as error:
            self.outcome, self.why = "failed", f"{self.program}: {error.strerror}"
            return
        try:
            self.wait(alive)
        except Ended:
            self.stop("void", "ended")
            self.end(signal.SIGKILL)
            os.wait4(self.pid, 0)
            raise
        self.reap()

    def close(self) -> None:
        """Close the files of the output: a launch can have more starts than a process files."""
        for file in self.files:
            os.close(file)

    def digest(self) -> str:
        """Cut the output to its limit, and return the SHA-256 of what remains."""
        for path in self.printed:
            os.truncate(path, min(self.limit, os.path.getsize(path)))
        result = hashlib.sha256()
        with open(self.printed[0], "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                result.update(block)
        return result.hexdigest()


def has_no_writer(file: int) -> bool:
    """Tell whether a FIFO that is open for reading has lost its last writer."""
    try:
        return os.read(file, 64) == b""
    except BlockingIOError:
        return False


def usage_of(run: Run) -> "dict[str, object]":
    """Return the program's usage as a record names it."""
    usage = run.usage
    return {
        "user_s": round(usage.ru_utime, 6),
        "system_s": round(usage.ru_stime, 6),
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "max_rss_floor_bytes": run.floor * 1024,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
    }


def measure(words: "list[str]", request: "dict[str, Any]") -> "list[dict[str, object]]":
    """Run the program between two sentinels; return all fields of the line of each start."""
    alive = busy = None
    boot = "".join(counters.words_of("/proc/sys/kernel/random/boot_id"))[:8]
    if request["alive"] is not None and request["boot"] in (None, boot):  # a FIFO is of one host
        alive = os.open(request["alive"], os.O_RDONLY | os.O_NONBLOCK)
    if request["busy"] is not None:
        # A later session waits for this lock before it starts programs of its own.
        busy = os.open(request["busy"], os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(busy, fcntl.LOCK_EX)
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    cpus = request["cpus"]
    pinned = min(cpus) if cpus else None
    sentinel = beside("sentinel.py") if request["sentinel"] else None
    common = {"load_1m": os.getloadavg()[0], "boot": boot}  # type: dict[str, object]
    if sentinel is not None:
        work, calls = sentinel.measure(pinned)
        common.update(rounded(before=(work + calls, calls)))
    if cpus:
        os.sched_setaffinity(0, cpus)
    seen = []
    for number in range(request["starts"]):
        if alive is not None and has_no_writer(alive):
            raise Ended("the session has ended")
        seen.append(start(Run(words, request, number, busy), alive))
    if sentinel is not None:
        work, calls = sentinel.measure(pinned)
        common.update(rounded(after=(work + calls, calls)))
    # The outputs are read after the last start: the next one finds the caches as they were.
    return [dict(common, **fields_of(run, fields)) for run, fields in seen]


def start(run: Run, alive: "int | None") -> "tuple[Run, dict[str, object]]":
    """Run the program once; return what the clocks and counters said, and the run itself."""
    counted = hardware.Counters()
    before, civil, raw = counters.readings(), time.time(), clock()
    result = {"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(civil))}  # type: dict[str, object]
    run.run(alive)
    result.update(counted.read())
    run.close()
    # Below a microsecond is the time between the two looks.
    result["clock_step_s"] = round((time.time() - civil) - (clock() - raw), 6)
    result.update(counters.growth(before, counters.readings()))
    result["frequency_mhz"] = counters.frequency_mhz()
    return run, result


def rounded(**times: "tuple[float, float]") -> "dict[str, object]":
    """Return a sentinel's times as a record names them: a tenth of a microsecond is enough."""
    found = {}  # type: dict[str, object]
    for when, (whole, calls) in times.items():
        found[f"sentinel_{when}_s"] = round(whole, 7)
        found[f"sentinel_calls_{when}_s"] = round(calls, 7)
    return found


def fields_of(run: Run, fields: "dict[str, object]") -> "dict[str, object]":
    """Return all fields of a start's own."""
    result = dict(fields)
    result.update(usage_of(run))
    wall_s = round(run.ended - run.started, 9)
    result.update(clock_start_s=run.started, clock_end_s=run.ended, wall_s=wall_s)
    result.update(outcome=run.outcome, why=run.why, exit_status=run.status, signal=run.signal)
    result["output_sha256"] = run.digest()
    if run.looker is not None:
        result["mapped"] = run.looker.files()
    return result


def append(path: str, lines: "list[dict[str, object]]") -> None:
    """Append lines with one write, and have them on the disk."""
    data = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines).encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def main(arguments: "list[str]") -> int:
    """Read the request, measure, write the lines."""
    if len(arguments) < 4 or arguments[0] != "--request" or arguments[2] != "--":
        sys.exit("usage: timer.py --request FILE -- PROGRAM ARGS")
    with open(arguments[1]) as file:
        told = json.load(file)
    request = dict(REQUEST, **told)
    if len(request) != len(REQUEST):
        sys.exit(f"timer: {arguments[1]}: a key is unknown")
    for name in ("into", "stdout", "stderr"):
        request[name] = os.path.abspath(request[name])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        append(request["into"], measure(arguments[3:], request))
        return 0
    except Ended as reason:
        sys.stderr.write(f"timer: the row is not run: {reason}\n")
        return 75
    except OSError as error:
        sys.stderr.write(f"timer: {error}\n")
        return 74


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
