"""Groups of environments: what they stand for on a host, and what is said of the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coracle_lab import environments
from coracle_lab.campaign.groups import GROUPS, Host, expanded, without_levels
from coracle_lab.environments import Probe

EVERY = sorted({name for names in GROUPS.values() for name in names})


def ask(usable: set[str]):  # type: ignore[no-untyped-def]
    return lambda name: Probe(name in usable, "1", "" if name in usable else f"{name} is broken")


def test_each_member_of_a_group_is_an_environment() -> None:
    assert set(EVERY) <= set(environments.names())
    modes = [name for name in environments.names() if name.startswith("coracle:")]
    assert list(GROUPS["@modes"]) == modes
    assert set(GROUPS["@fast"]) < set(modes)


@given(
    st.lists(st.sampled_from([*GROUPS, *EVERY, "mine"]), min_size=1),
    st.sets(st.sampled_from(EVERY)),
)
def test_groups_are_what_is_usable_and_the_rest_has_a_reason(
    levels: list[str], usable: set[str]
) -> None:
    found = expanded(levels, ask(usable), {})
    assert len(set(found.levels)) == len(found.levels)
    for level in levels:
        if level not in GROUPS:
            assert level in found.levels
            continue
        for name in GROUPS[level]:
            is_control = name in GROUPS["@native"]
            assert (name in found.levels) != (name in found.left_out)
            if name in usable or is_control:
                assert name in found.levels
            elif name not in levels:
                assert found.left_out[name] == f"{name} is broken"


def test_one_that_has_no_ranks_is_left_out_and_not_asked() -> None:
    asked: list[str] = []

    def note(name: str) -> Probe:
        asked.append(name)
        return Probe(True, "1", "")

    found = expanded(["@native", "@peers"], note, {"runc": "no ranks"})
    assert found.left_out == {"runc": "no ranks"}
    assert "runc" not in asked
    assert "crun" in asked


def test_a_rule_loses_levels_that_are_not_there_and_is_dropped_when_none_is_left() -> None:
    entries = [
        {"leave_out": {"environment": ["@fast", "bwrap"], "ranks": 2}, "reason": "one"},
        {"leave_out": {"environment": "podman"}, "reason": "two"},
        {"leave_out": {"ranks": 4}, "reason": "three"},
    ]
    kept = without_levels(entries, "environment", ["native", "coracle:P1", "bwrap"])
    assert kept == [
        {"leave_out": {"environment": ["coracle:P1", "bwrap"], "ranks": 2}, "reason": "one"},
        {"leave_out": {"ranks": 4}, "reason": "three"},
    ]


def test_an_environment_is_probed_once() -> None:
    host = Host()
    first = host.probe("native")
    assert first.usable
    host.found["native"] = Probe(False, "", "changed")
    assert host.probe("native").why == "changed"
