"""A headless Chromium that sees a page as readers do, and reaches nothing but this process.

All its requests go to a proxy here, which serves the page under a name of its own and writes down
every address that was asked for. What is measured in a page is measured from outside: the page is
a frame of another one, as wide as asked for, whose script looks into it.
"""

from __future__ import annotations

import contextlib
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

HOST = "page.test"
LIMIT_S = 120
OWN = re.compile(r"(^|\.)(google|googleapis|gstatic|gvt1|googleusercontent)\.com$")
"""Where a browser asks for its own sake (updates): its page is not what asks."""

MEASURE = """<!DOCTYPE html><link rel="icon" href="data:,"><body style="margin:0">
<iframe src="PAGE" style="border:0;width:WIDTHpx;height:900px"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const inner = frame.contentDocument, root = inner.documentElement;
  const width = root.clientWidth, out = [], overlaps = [];
  const names = "h1,h2,h3,p,dl,dt,dd,li,figcaption,summary,.figures svg,.wide,"
    + ".cards td,.summary td,.alarm";
  const all = (some) => [...inner.querySelectorAll(some)];
  const style = (one) => frame.contentWindow.getComputedStyle(one);
  const box = (one) => one.getBoundingClientRect();
  const seen = all(names).filter((one) =>
    one.checkVisibility() && box(one).width > 0 && box(one).height > 0
    && style(one).position !== "absolute");
  const name = (one) => one.tagName + " " + one.textContent.trim().slice(0, 40);
  const boxes = seen.map(box);
  seen.forEach((one, at) => {
    const inside = one.closest(".wide") && !one.matches(".wide");
    if (!inside && (boxes[at].right > width + 1 || boxes[at].left < -1)) out.push(name(one));
    for (let next = at + 1; next < seen.length; next++) {
      const other = seen[next];
      if (one.contains(other) || other.contains(one)) continue;
      const a = boxes[at], b = boxes[next];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && tall > 1) overlaps.push(name(one) + " / " + name(other));
    }
  });
  const first = all(".summary .v, .summary li, .summary td")
    .find((one) => /equal|slower|faster|undecided|not made/.test(one.textContent));
  const place = document.createElement("pre");
  place.id = "answer";
  place.textContent = JSON.stringify({
    width, scroll: root.scrollWidth, out, overlaps, boxes: seen.length,
    smallest: Math.min(...all("p,td,li,dd,figcaption")
      .map((one) => parseFloat(style(one).fontSize))),
    first: first ? box(first).bottom : null,
    letters: Math.min(...all(".figures svg")
      .map((one) => box(one).width / one.viewBox.baseVal.width)
      .filter((scale) => scale > 0)), // 0 is in folded details.
  });
  document.body.append(place);
});
</script>
"""


def program() -> str:
    """Returns the browser's path, or skips."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    print("SKIP: chromium is not installed")
    pytest.skip("SKIP: chromium is not installed: the page is not looked at")
    raise AssertionError


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Serves one directory as http://page.test/, and refuses everything else."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        address = urlsplit(self.path)
        server.asked.append(self.path)
        path = server.root / address.path.lstrip("/")
        if address.hostname != HOST or not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_CONNECT(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.asked.append(f"https://{self.path.partition(':')[0]}/")
        self.send_error(403)

    def log_message(self, *words: Any) -> None:
        """Says nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Proxy)
        self.root = root
        self.asked: list[str] = []


@contextlib.contextmanager
def served(root: Path) -> Iterator[_Server]:
    """Runs the proxy while the body runs."""
    server = _Server(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def dump(server: _Server, page: str, width: int) -> str:
    """Returns the page's elements after it was loaded at a width."""
    with tempfile.TemporaryDirectory(prefix="lab-browser-") as profile:
        words = [
            program(), "--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", f"--window-size={width},900",
            f"--proxy-server=127.0.0.1:{server.server_port}", "--proxy-bypass-list=<-loopback>",
            "--virtual-time-budget=10000", "--dump-dom", f"http://{HOST}/{page}",
        ]  # fmt: skip
        if os.geteuid() == 0:
            # Its sandbox refuses root.
            words.insert(1, "--no-sandbox")
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env={**os.environ, "HOME": profile},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measured(into: Path, page: str, width: int) -> dict[str, Any]:
    """Returns what the script finds in a page at a width."""
    with tempfile.TemporaryDirectory(prefix="lab-page-") as name:
        shutil.copy(into / page, Path(name) / page)
        frame = MEASURE.replace("PAGE", page).replace("WIDTH", str(width))
        (Path(name) / "frame.html").write_text(frame)
        with served(Path(name)) as server:
            found = dump(server, "frame.html", max(width, 800))
    answer = re.search(r'<pre id="answer">(.*?)</pre>', found, flags=re.DOTALL)
    assert answer is not None, found[-500:]
    told: dict[str, Any] = json.loads(html.unescape(answer[1]))
    return told


def asked(root: Path, page: str) -> list[str]:
    """Returns the addresses that a page asked for, but its own."""
    with served(root) as server:
        dump(server, page, 1600)
        own = f"http://{HOST}/{page}"
        return [
            one
            for one in server.asked
            if one != own and not OWN.search(urlsplit(one).hostname or "")
        ]
