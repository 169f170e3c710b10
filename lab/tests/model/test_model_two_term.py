"""The two-term model of the overhead study's own measurements."""

from __future__ import annotations

import pytest
from model_inputs import study

from coracle_lab.errors import LabError
from coracle_lab.model import form, two_term

TIMES = {1: {"native": [32.0, 32.2], "x": [32.1, 32.0]}, 8: {"native": [5.0, 5.1]}}
MESSAGES = {65536: {"native": [1.0, 1.1], "x": [2.0, 2.1]}}
KIB = 1024


def test_the_overhead_studys_decomposition() -> None:
    """Messages of 128 and 256 KiB: +31..33 % and +48..51 % for +33.6 and +53.4 % of Docker."""
    made = two_term.split(
        study("ondes3d.csv", "parallelism"), study("ping-pong.csv", "size"), [128 * KIB, 256 * KIB]
    )
    docker = {
        (one.ranks, one.bytes // KIB): one for one in made.terms if one.environment == "docker"
    }
    modelled = {key: f"{one.modelled * 100:.1f}" for key, one in docker.items()}
    assert {key: modelled[key] for key in modelled if key[0] > 4} == {
        (8, 128): "31.1",
        (8, 256): "33.2",
        (16, 128): "48.1",
        (16, 256): "51.4",
    }
    measured = {ranks: f"{(one.measured or 0) * 100:.2f}" for (ranks, _), one in docker.items()}
    assert (measured[8], measured[16]) == ("33.55", "53.42")
    for ranks in (8, 16):
        one = docker[ranks, 256]
        assert one.intervals[0.95].holds(one.measured or 0)
        assert one.words.endswith("less than the effect")


def test_where_the_model_cannot_tell_it_says_so() -> None:
    """Four ranks of one node do not use the network; Singularity's overhead is not that of it."""
    made = two_term.split(
        study("ondes3d.csv", "parallelism"), study("ping-pong.csv", "size"), [256 * KIB]
    )
    words = {(one.environment, one.ranks): one.words for one in made.terms}
    assert words["docker", 4] == "model cannot tell: measured +1.3 %, model +11.1 %"
    for ranks in (8, 16):
        assert words["singularity", ranks].startswith("model cannot tell")
    assert "of ratios to native: at most 9.6 %" in made.error.words("native")


def test_the_form_holds_what_a_figure_needs() -> None:
    made = two_term.split(
        study("ondes3d.csv", "parallelism"), study("ping-pong.csv", "size"), [128 * KIB]
    )
    kept = form.read(form.as_json(form.split(made, [])), "f")
    kinds = {(one["kind"], one["environment"], one["x"]) for one in kept["points"]}
    assert ("measured", "docker", 16) in kinds
    assert ("model", "docker", 16) in kinds
    assert kept["unit"] == "1"
    assert all(one["bytes"] == 128 * KIB for one in kept["points"] if one["kind"] == "model")


def test_a_planted_network_is_recovered() -> None:
    """Messages that take twice as long: work/8 stays, communication doubles."""
    noise = [0.99, 1.0, 1.01] * 4
    times = {
        1: {"native": [80 * n for n in noise], "x": [80 * n for n in noise]},
        8: {"native": [12 * n for n in noise], "x": [14 * n for n in noise]},
    }
    messages = {8: {"native": list(noise), "x": [2 * n for n in noise]}}
    (one,) = two_term.split(times, messages, [8]).terms
    assert (one.work_s, one.communication_s) == pytest.approx((10, 2))
    assert one.modelled == pytest.approx(2 / 12)
    assert one.error == pytest.approx(0, abs=1e-9)
    assert one.intervals[0.95].holds(2 / 12)


def test_an_overhead_that_no_message_explains_is_not_told_as_explained() -> None:
    """x is 10 % slower at 8 ranks, and its messages take as long as native's."""
    noise = [0.97, 1.0, 1.03] * 4
    times = {
        1: {"native": [80 * n for n in noise], "x": [80 * n for n in noise]},
        8: {"native": [12 * n for n in noise], "x": [13.2 * n for n in noise]},
    }
    messages = {8: {"native": list(noise), "x": [1.001 * n for n in noise]}}
    (one,) = two_term.split(times, messages, [8]).terms
    assert one.words == "model cannot tell: measured +10.0 %, model +0.0 %"


def test_an_environment_that_was_not_measured_has_an_unknown_error() -> None:
    (one,) = two_term.split(TIMES, MESSAGES, [65536]).terms
    assert one.measured is None
    assert one.words == "model cannot tell: its error is unknown"


def test_bad_inputs() -> None:
    with pytest.raises(LabError, match="messages of 8 bytes were not measured"):
        two_term.split(TIMES, MESSAGES, [8])
    with pytest.raises(LabError, match="no makespan of one rank"):
        two_term.split({8: TIMES[8]}, MESSAGES, [65536])
    with pytest.raises(LabError, match="no makespan of 16 ranks"):
        two_term.split(TIMES, MESSAGES, [65536], ranks=[16])
    with pytest.raises(LabError, match="no environment besides native is in both"):
        two_term.split(TIMES, {65536: {"native": [1.0, 1.1]}}, [65536])
    with pytest.raises(LabError, match="makespans of x at 1: one value"):
        two_term.split({**TIMES, 1: {"native": [1.0, 2.0], "x": [1.0]}}, MESSAGES, [65536])
