"""Builds a package as its users do: a wheel of Cython and C by pip, a C++ library by make.

Words: wheel|cpp CACHE SOURCE OPTIMISATION. CACHE is warm or cold. Before a cold build the files of
compiler, Python and source are dropped from the page cache, as far as they are not in use: no
privilege is needed for that. `build_s` is the time of the build alone. What was built is loaded
and used. Everything is made in the working directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

COMPILER = ("/usr/lib/gcc", "/usr/include", "/usr/libexec/gcc", "/usr/lib/python3", "/usr/bin/as")
USE_WHEEL = """
import sys
sys.path.insert(0, "unpacked")
from msgpack import _cmsgpack
value = {"a": [1, 2.5, None, "text"], "b": b"x" * 1000}
assert _cmsgpack.unpackb(_cmsgpack.Packer().pack(value)) == value
"""
USE_LIBRARY = """
import ctypes, json
lib = ctypes.CDLL("./libjsonnet.so")
lib.jsonnet_make.restype = ctypes.c_void_p
lib.jsonnet_evaluate_snippet.restype = ctypes.c_char_p
vm, failed = ctypes.c_void_p(lib.jsonnet_make()), ctypes.c_int()
text = b"{ a: std.foldl(function(s, x) s + x, std.range(1, 100), 0) }"
told = lib.jsonnet_evaluate_snippet(vm, b"x", text, ctypes.byref(failed))
assert not failed.value and json.loads(told) == {"a": 5050}, told
"""


def fail(what: str, status: int = 1) -> None:
    """Ends with a message."""
    sys.stderr.write(f"error: {what}\n")
    raise SystemExit(status)


def drop(paths: Sequence[str | Path]) -> int:
    """Drops files from the page cache; returns how many."""
    count = 0
    for top in paths:
        top = Path(top)
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
            count += 1
    return count


def run(words: Sequence[str], directory: Path) -> None:
    """Runs a command; its last lines are told if it fails."""
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{words[0]} ended with {done.returncode}: {(done.stderr + done.stdout)[-800:]}")


def unpacked(source: Path) -> Path:
    """Returns the directory of a source package, unpacked here."""
    run(["tar", "-xzf", str(source)], Path.cwd())
    return Path(source.name.removesuffix(".tar.gz"))


def wheel(source: Path, optimisation: str) -> None:
    """Builds a wheel."""
    os.environ["CFLAGS"] = optimisation
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    words += ["--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check"]
    run([*words, "--wheel-dir", ".", str(unpacked(source).absolute())], Path.cwd())


def library(source: Path, optimisation: str) -> None:
    """Builds a C++ library."""
    directory = unpacked(source)
    # The package leaves out the program that makes this header: the bytes of a file as numbers.
    header = directory / "core/std.jsonnet.h"
    text = (directory / "stdlib/std.jsonnet").read_bytes()
    header.write_text(",".join(map(str, text)) + ",0\n")
    words = ["make", "--silent", "-o", "core/std.jsonnet.h", f"OPT={optimisation}"]
    run([*words, "libjsonnet.so"], directory)


def use(kind: str, source: Path) -> None:
    """Uses what was built. Raises `OSError` if there is nothing."""
    if kind == "wheel":
        built = next(Path().glob("*.whl"), None)
        if built is None:
            fail("there is no wheel")
            raise AssertionError
        with zipfile.ZipFile(built) as archive:
            archive.extractall("unpacked")
        run([sys.executable, "-c", USE_WHEEL], Path.cwd())
    else:
        directory = Path(source.name.removesuffix(".tar.gz"))
        run([sys.executable, "-c", USE_LIBRARY], directory)


def main() -> None:
    """Runs as the words say."""
    words = sys.argv[1:]
    if len(words) != 4 or words[0] not in ("wheel", "cpp") or words[1] not in ("warm", "cold"):
        fail("words: wheel|cpp warm|cold SOURCE OPTIMISATION", 2)
    kind, cache, where, optimisation = words
    source = next(Path(where).glob("*.tar.gz"), None)
    if source is None:
        fail(f"{where}: there is no source package")
        raise AssertionError
    dropped = drop([*COMPILER, sys.prefix, source]) if cache == "cold" else 0
    began = time.monotonic()
    (wheel if kind == "wheel" else library)(source, optimisation)
    build_s = time.monotonic() - began
    use(kind, source)
    print("lab", json.dumps({"build_s": build_s, "dropped_files": dropped}))
    print("right: what was built works")


if __name__ == "__main__":
    main()
