"""Measures the bandwidth of TCP by iperf3.

Words: up|down SECONDS. Up is from the client to the server. The rate is that at which the
receiver got the bytes.
"""

from __future__ import annotations

import json
import sys

import pair


def received(text: str) -> tuple[float, float]:
    """Returns bits a second and bytes that the receiver got. Raises `ValueError`."""
    told = json.loads(text)
    if "error" in told:
        raise ValueError(told["error"])
    try:
        sums = told["end"]["sum_received"]
        rate, count = float(sums["bits_per_second"]), float(sums["bytes"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"there is no sum of what was received ({error})") from error
    if rate <= 0 or count <= 0:
        raise ValueError("nothing was received")
    return rate, count


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("up", "down"):
        pair.fail("words: up|down SECONDS", 2)
    direction, seconds = sys.argv[1:]

    def client(address: str, port: int) -> None:
        words = ["iperf3", "-c", address, "-p", str(port), "-t", seconds, "-J"]
        words += ["-R"] if direction == "down" else []
        try:
            rate, count = received(pair.output(words))
        except ValueError as error:
            pair.fail(f"iperf3: {error}")
            raise
        print("lab", json.dumps({"bits_per_s": rate, "received_bytes": count}))

    pair.run(lambda _, port: ["iperf3", "-s", "-1", "-p", str(port)], client)


if __name__ == "__main__":
    main()
