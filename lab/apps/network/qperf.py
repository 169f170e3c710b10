"""Measures bandwidth and latency of TCP by qperf, and of RDMA where there is a device.

Words: SECONDS. Without a device of RDMA the program says so, and measures nothing in its place.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pair

UNITS = {
    "bytes/sec": 1.0,
    "KB/sec": 1e3,
    "MB/sec": 1e6,
    "GB/sec": 1e9,
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "sec": 1.0,
}
TCP = {"tcp_bw": "bandwidth_bytes_per_s", "tcp_lat": "latency_s"}
RDMA = {
    "rc_rdma_write_bw": "rdma_write_bytes_per_s",
    "rc_rdma_read_bw": "rdma_read_bytes_per_s",
    "rc_lat": "rdma_latency_s",
}
DEVICES = Path("/sys/class/infiniband")


def results(text: str, names: dict[str, str]) -> dict[str, float]:
    """Returns the results of tests in bytes a second and seconds. Raises `ValueError`."""
    found: dict[str, float] = {}
    test = None
    for line in text.splitlines():
        if re.fullmatch(r"\w+:", line):
            test = names.get(line[:-1])
        value = re.fullmatch(r"\s+(?:bw|latency)\s+=\s+([\d.,]+)\s+(\S+)", line)
        if value and test:
            found[test] = float(value[1].replace(",", "")) * UNITS[value[2]]
    missing = [test for test, name in names.items() if found.get(name, 0.0) <= 0]
    if missing:
        raise ValueError(f"no result of {', '.join(missing)}")
    return found


def has_rdma(devices: Path = DEVICES) -> bool:
    """Tells whether this host has a device of RDMA."""
    return devices.is_dir() and any(devices.iterdir())


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 2:
        pair.fail("words: SECONDS", 2)

    def client(address: str, port: int) -> None:
        names = {**TCP, **RDMA} if has_rdma() else TCP
        words = ["qperf", "-lp", str(port), address]
        try:
            told = results(pair.output([*words, "-t", sys.argv[1], "-uu", *names]), names)
        except (KeyError, ValueError) as error:
            pair.fail(f"qperf: {error}")
            raise
        if not has_rdma():
            print("no device of RDMA here: rc_rdma_* is not measured")
        print("lab", json.dumps(told))
        pair.output([*words, "quit"])

    pair.run(lambda _, port: ["qperf", "-lp", str(port)], client)


if __name__ == "__main__":
    main()
