"""The sentinel's rule looks at sentinels only, and names the same blocks after a resumption."""

from __future__ import annotations

from coracle_lab.run import disturbed
from coracle_lab.run.records import Record


def made(times: list[tuple[int, float]], session: str = "s", attempt: int = 1) -> list[Record]:
    return [
        Record(
            {
                "row": row,
                "block": block,
                "attempt": attempt,
                "session": session,
                "sentinel_before_s": 0.05,
                "sentinel_after_s": time,
            }
        )
        for row, (block, time) in enumerate(times, start=1)
    ]


def test_a_quiet_machine_repeats_nothing() -> None:
    assert disturbed.to_repeat(made([(1, 0.050), (2, 0.051), (3, 0.052)]), 3, 0.10) == []


def test_the_most_disturbed_come_first_and_at_most_a_quarter() -> None:
    times = [(block, 0.05) for block in range(1, 9)]
    times[2], times[5], times[6] = (3, 0.06), (6, 0.09), (7, 0.07)
    assert disturbed.disturbed(made(times), 0.10) == [6, 7, 3]
    assert disturbed.to_repeat(made(times), 8, 0.10) == [6, 7]


def test_a_sentinel_is_compared_within_its_session() -> None:
    slow = [(block, 0.05) for block in range(1, 5)]
    records = made(slow) + [
        Record({**one.fields, "sentinel_before_s": 0.1, "sentinel_after_s": 0.1, "session": "t"})
        for one in made([(5, 0), (6, 0)])
    ]
    assert disturbed.to_repeat(records, 6, 0.10) == []


def test_repetitions_do_not_change_what_is_repeated() -> None:
    times = [(1, 0.05), (2, 0.05), (3, 0.09), (4, 0.05)]
    first = made(times)
    again = made([(3, 0.30)], attempt=2)
    assert disturbed.to_repeat(first, 4, 0.1) == disturbed.to_repeat(first + again, 4, 0.1) == [3]


def test_repetitions_of_earlier_sessions_count() -> None:
    times = [(1, 0.05), (2, 0.05), (3, 0.09), (4, 0.20)]
    begun = made([(3, 0.05)], attempt=2)
    assert disturbed.to_repeat(made(times) + begun, 4, 0.1) == [3]
    assert disturbed.to_repeat(made(times) + begun, 5, 0.1) == [3, 4]


def test_first_runs_and_a_single_block_are_not_repeated() -> None:
    assert disturbed.to_repeat(made([(0, 0.5), (1, 0.05), (2, 0.05)]), 2, 0.1) == []
    assert disturbed.to_repeat(made([(1, 0.05), (1, 0.5)]), 1, 0.1) == []


def test_without_sentinels_nothing_is_said() -> None:
    fields = {"row": 1, "block": 1, "attempt": 1, "session": "s"}
    none = Record({**fields, "sentinel_before_s": None, "sentinel_after_s": None})
    assert disturbed.to_repeat([none, none], 2, 0.1) == []
