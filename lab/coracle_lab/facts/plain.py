"""Words in place of what identifies a machine or its user, in everything that is recorded.

Records are published with the page. What a reader needs stays: model, processors, memory, kernel,
virtualisation. What only names this machine becomes a word that is the same everywhere: `HOME`,
`CACHE`, `STORE`, `TMP`, `USER`, `HOST`, `NODE`, `PROXY`, `ADDRESS`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import socket
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coracle_lab import cache

SHORT = 3
"""A name of fewer letters is in too many words."""
SERVERS = re.compile(r"(^|_)(PROXY|REGISTRY|INDEX_URL|FIND_LINKS|GOPROXY|TRUSTED_HOST)$", re.I)
"""Variables whose values name servers of a site."""
ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}"
    r"|(?:[0-9a-fA-F]*:){2,7}[0-9a-fA-F]+|[0-9a-fA-F:]+::)(?!\.?\w)"
)
"""An address may end a sentence or stand before a colon; a colon before it is not its own."""


def text(given: str) -> str:
    """Returns a text with words in place of this machine's names."""
    for pattern, word in _rules(_names()):
        given = pattern.sub(word, given)
    return ADDRESS.sub(_address, given)


def tree(given: Any) -> Any:
    """Returns a value of JSON whose texts are plain; names of its keys stay."""
    if isinstance(given, str):
        return text(given)
    if isinstance(given, Mapping):
        return {name: tree(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [tree(value) for value in given]
    return given


Names = tuple[tuple[str, str], ...]


def _names() -> Names:
    """Returns the names of this machine and user with their words, paths before parts of them."""
    home = os.path.expanduser("~")  # noqa: PTH111 (a user may have none)
    paths = {
        str(cache.directory()): "CACHE",
        home: "HOME",
        os.environ.get("CORACLE_DIR", ""): "STORE",
        os.environ.get("UDOCKER_DIR", ""): "STORE",
        tempfile.gettempdir(): "TMP",
        os.environ.get("TMPDIR", ""): "TMP",
    }
    # What the kernel tells has no links in it.
    paths = {os.path.realpath(path): word for path, word in paths.items() if path} | paths
    found = [
        (path.rstrip("/"), word)
        for path, word in sorted(paths.items(), key=lambda pair: -len(pair[0]))
        if path.startswith("/") and path not in ("/", "/root")
    ]
    for name, value in sorted(os.environ.items()):
        if SERVERS.search(name):
            for part in value.replace(",", " ").split():
                server = urlsplit(part if "//" in part else f"//{part}").hostname
                if server:
                    found.append((server, "PROXY"))
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = os.environ.get("USER", "")
    host = socket.gethostname()
    found += [(name, "NODE") for name in _nodes() if name not in (host, "localhost")]
    names = ((host, "HOST"), (host.partition(".")[0], "HOST"), (user, "USER"))
    found += [
        (name, word)
        for name, word in names
        if len(name) >= SHORT and name not in ("localhost", "root")
    ]
    return tuple(found)


def _nodes() -> list[str]:
    """Returns the names of the allocation's nodes, by what Slurm, PBS or LSF says of it."""
    names = set(os.environ.get("LSB_HOSTS", "").split())
    given = os.environ.get("SLURM_JOB_NODELIST")
    if given:
        from reframe.utility import nodelist_expand

        names.update(nodelist_expand(given))
    file = os.environ.get("PBS_NODEFILE")
    if file:
        with contextlib.suppress(OSError):
            names.update(Path(file).read_text(errors="replace").split())
    return sorted(names)


@lru_cache
def _rules(names: Names) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (
            # A host's domain names its site.
            re.compile(
                rf"(?<![\w.-]){re.escape(name)}"
                + (r"(?:\.[\w-]+)*" if word in ("HOST", "NODE") else "")
                + r"(?![\w-])"
            ),
            word,
        )
        for name, word in names
    )


def _address(found: re.Match[str]) -> str:
    """Returns ADDRESS for an address of the network; those of one machine stay."""
    try:
        one = ipaddress.ip_address(found[0])
    except ValueError:
        return found[0]
    return found[0] if one.is_loopback or one.is_unspecified else "ADDRESS"
