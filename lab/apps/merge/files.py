"""Makes SQLite files, as jobs of a sampling leave them, or merges them with a histogram.

Words: make DIRECTORY FILES ROWS, or merge DIRECTORY FILES ROWS. The samples follow from their
number by integer arithmetic alone, so that the merged result is known and the same everywhere.
The merged file is made in the working directory.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

BINS = 50
LARGEST = 1 << 32
MERGED = "merged.sqlite"


def samples(file: int, rows: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the rows of a file: their key, and three numbers below `LARGEST`."""
    state = 20260101 + file
    for row in range(rows):
        values = []
        for _ in range(3):
            # Knuth's linear congruential generator.
            state = (6364136223846793005 * state + 1442695040888963407) % (1 << 64)
            values.append(state >> 32)
        yield file * rows + row, values[0], values[1], values[2]


def path(directory: Path, file: int) -> Path:
    """Returns where a file is."""
    return directory / f"samples-{file}.sqlite"


def make(directory: Path, files: int, rows: int) -> None:
    """Makes the files."""
    for file in range(files):
        path(directory, file).unlink(missing_ok=True)
        base = sqlite3.connect(path(directory, file))
        base.execute("CREATE TABLE samples (key INTEGER PRIMARY KEY, a INT, b INT, c INT)")
        base.executemany("INSERT INTO samples VALUES (?, ?, ?, ?)", samples(file, rows))
        base.commit()
        base.close()


def merge(directory: Path, files: int, rows: int) -> str:
    """Merges the files, and returns what the merged one holds as text. Raises `ValueError`."""
    Path(MERGED).unlink(missing_ok=True)
    base = sqlite3.connect(MERGED)
    base.execute("CREATE TABLE samples (key INTEGER PRIMARY KEY, a INT, b INT, c INT)")
    base.execute("CREATE INDEX by_a ON samples (a)")
    for file in range(files):
        base.execute("ATTACH ? AS part", (f"file:{path(directory, file)}?immutable=1",))
        base.execute("INSERT INTO samples SELECT * FROM part.samples")
        base.commit()
        base.execute("DETACH part")
    if base.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
        raise ValueError("the merged file is damaged")
    histogram = base.execute(
        f"SELECT a * {BINS} / {LARGEST}, count(*), sum(b), max(c) FROM samples"
        " GROUP BY 1 ORDER BY 1"
    ).fetchall()
    base.close()
    count = sum(row[1] for row in histogram)
    if count != files * rows:
        raise ValueError(f"{count} samples were merged of {files * rows}")
    return json.dumps(histogram)


def expected(files: int, rows: int) -> str:
    """Returns the histogram that follows from the samples themselves."""
    found: dict[int, list[int]] = {}
    for file in range(files):
        for _, a, b, c in samples(file, rows):
            one = found.setdefault(a * BINS // LARGEST, [0, 0, 0])
            one[0], one[1], one[2] = one[0] + 1, one[1] + b, max(one[2], c)
    return json.dumps([[number, *one] for number, one in sorted(found.items())])


def digest(text: str) -> str:
    """Returns the SHA-256 of a histogram."""
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    """Runs as the words say."""
    if len(sys.argv) != 5 or sys.argv[1] not in ("make", "merge"):
        sys.stderr.write("error: words: make|merge DIRECTORY FILES ROWS\n")
        raise SystemExit(2)
    directory, (files, rows) = Path(sys.argv[2]), map(int, sys.argv[3:])
    right = directory / "expected"
    try:
        if sys.argv[1] == "make":
            make(directory, files, rows)
            right.write_text(digest(expected(files, rows)))
            return
        told = digest(merge(directory, files, rows))
        if told != right.read_text():
            raise ValueError("the histogram is not that of the samples")
    except (OSError, ValueError, sqlite3.Error) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from error
    print(f"histogram {told}")


if __name__ == "__main__":
    main()
