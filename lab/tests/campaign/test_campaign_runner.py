"""The runner: it goes on after what cannot be made, where it was, and stops at its time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coracle_lab.applications import table
from coracle_lab.campaign import kept
from coracle_lab.campaign.groups import Host
from coracle_lab.campaign.kept import Kept, Outcome
from coracle_lab.campaign.parse import parse
from coracle_lab.campaign.runner import INTERRUPTED, Runner
from coracle_lab.cli import experiment
from coracle_lab.errors import LabError
from coracle_lab.run import packed, store
from coracle_lab.run.session import Late, Session, Stopped
from coracle_lab.run.store import Store

pytestmark = pytest.mark.long

TEXT = 'title = "T"\npaper = "p"\ntext = "t"\n' + "".join(
    f"""[[figure]]
id = "{name}"
title = "figure {name}"
of = "Fig. 1"
layout = "times"
responses = ["wall_s"]
shows_not = "much"
[figure.design]
seed = {seed}
factors = {{ environment = ["@native"] }}
application = {{ command = ["true"] }}
[figure.quick]
replicates = 2
"""
    for seed, name in enumerate(("A", "B", "C"), start=1)
)
CAMPAIGN = parse(TEXT, "c.toml", "quick")


def runner(own: Kept, conduct: Callable[[Store], int]) -> Runner:
    host = Host()
    return Runner(own, table(), conduct, lambda text: None, lambda campaign: host)


def run(into: Path, conduct: Callable[[Store], int], deadline: float | None = None) -> int:
    own = kept.opened(into, "quick")
    made = runner(own, conduct)
    made.deadline = deadline
    return made.run([(CAMPAIGN, figure) for figure in CAMPAIGN.figures])


def outcomes(into: Path) -> dict[str, Outcome]:
    found = kept.read(into)
    assert found is not None
    return found.outcomes


def test_it_goes_on_after_a_figure_that_cannot_be_made_and_tries_it_again(tmp_path: Path) -> None:
    tried: list[str] = []
    broken = {"B"}

    def conduct(made: Store) -> int:
        tried.append(made.directory.name)
        if made.directory.name in broken:
            raise LabError("hpcc is not installed")
        return 0

    assert run(tmp_path, conduct) == 1
    assert tried == ["A", "B", "C"]
    assert outcomes(tmp_path)["B"].why == "hpcc is not installed"
    before = (tmp_path / "records/B/design.toml").read_bytes()
    broken.clear()
    assert run(tmp_path, conduct) == 0
    assert tried == ["A", "B", "C", "B"]
    assert (tmp_path / "records/B/design.toml").read_bytes() == before
    assert all(one.made for one in outcomes(tmp_path).values())


def test_a_defect_of_the_lab_in_one_figure_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def conduct(made: Store) -> int:
        if made.directory.name == "B":
            raise TypeError("no such thing")
        return 0

    assert run(tmp_path, conduct) == 1
    why = {name: one.why for name, one in outcomes(tmp_path).items()}
    assert why == {
        "A": None,
        "B": "coracle-lab itself failed: TypeError: no such thing",
        "C": None,
    }
    assert "in conduct" in capsys.readouterr().err
    assert run(tmp_path, lambda made: 0) == 0


def test_a_design_that_has_changed_is_told(tmp_path: Path) -> None:
    run(tmp_path, lambda made: 0)
    changed = parse(TEXT.replace("replicates = 2", "replicates = 3"), "c.toml", "quick")
    said: list[str] = []
    own = kept.opened(tmp_path, "quick")
    made = Runner(own, table(), lambda made: 0, said.append, lambda campaign: Host())
    made.run([(CAMPAIGN, figure) for figure in CAMPAIGN.figures])
    assert said == []
    made.run([(changed, figure) for figure in changed.figures])
    assert len(said) == 3
    assert said[0].startswith("A: its design has changed since it was begun")


def test_statuses_are_told_by_the_worst(tmp_path: Path) -> None:
    assert run(tmp_path / "a", lambda made: 3 if made.directory.name == "B" else 0) == 3
    assert run(tmp_path / "b", lambda made: {"A": 3, "B": 1}.get(made.directory.name, 0)) == 1


def test_an_interrupted_campaign_stops_and_goes_on_with_the_same_figure(tmp_path: Path) -> None:
    tried: list[str] = []

    def conduct(made: Store) -> int:
        tried.append(made.directory.name)
        return INTERRUPTED if tried == ["A", "B"] else 0

    assert run(tmp_path, conduct) == INTERRUPTED
    assert tried == ["A", "B"]
    assert not outcomes(tmp_path)["B"].made
    assert "interrupted" in (outcomes(tmp_path)["B"].why or "")
    assert run(tmp_path, conduct) == 0
    assert tried == ["A", "B", "B", "C"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stopped])
def test_what_interrupts_before_a_session_is_not_taken_for_a_result(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def conduct(made: Store) -> int:
        raise error

    with pytest.raises(error):
        run(tmp_path, conduct)
    assert kept.read(tmp_path) is None or "A" not in outcomes(tmp_path)


def test_it_stops_at_its_time_in_the_middle_of_a_figure_and_lists_the_rest(tmp_path: Path) -> None:
    tried: list[str] = []

    def conduct(made: Store) -> int:
        tried.append(made.directory.name)
        if len(tried) == 2:
            time.sleep(60)
        return 0

    begun = time.monotonic()
    own = kept.opened(tmp_path, "quick")
    made = runner(own, conduct)
    made.deadline, made.least_s = begun + 2, 0.5
    assert made.run([(CAMPAIGN, figure) for figure in CAMPAIGN.figures]) == 1
    assert tried == ["A", "B"]
    found = outcomes(tmp_path)
    assert found["A"].made
    assert found["B"].why == found["C"].why == "it is not measured: the time was over"
    assert run(tmp_path, lambda made: 0) == 0


@pytest.mark.parametrize(("measured", "made"), [(True, True), (False, False)])
def test_a_figure_whose_rows_are_measured_is_made_without_all_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool, made: bool
) -> None:
    """The time can be over before all disturbed blocks are repeated."""

    def late(found: Store, session: Session, versions: object) -> None:
        session.measured = measured
        raise Late("the time is over")

    monkeypatch.setattr(experiment, "_run", late)
    monkeypatch.setattr(experiment.report, "show", lambda found, ended: 0)
    run(tmp_path, lambda found: experiment.conduct(found, 1 << 20))
    assert {one.made for one in outcomes(tmp_path).values()} == {made}


def test_records_of_another_size_are_refused(tmp_path: Path) -> None:
    run(tmp_path, lambda made: 0)
    with pytest.raises(LabError, match="its records are of size quick") as caught:
        kept.opened(tmp_path, "day")
    assert "--size quick" in (caught.value.hint or "")


def test_what_is_kept_is_whole_or_refused(tmp_path: Path) -> None:
    run(tmp_path, lambda made: 0)
    path = tmp_path / "records/campaign.json"
    text = path.read_text()
    path.write_text(text[:-9])
    with pytest.raises(LabError, match="it cannot be read"):
        kept.opened(tmp_path, "quick")
    path.write_text(json.dumps({**json.loads(text), "schema": 99}))
    with pytest.raises(LabError, match="its schema is 99"):
        kept.opened(tmp_path, "quick")


def test_the_page_has_all_that_a_figure_goes_on_with(tmp_path: Path) -> None:
    run(tmp_path, lambda made: 0)
    own = kept.read(tmp_path)
    assert own is not None
    directory, page = own.directory("A"), tmp_path / "A"
    (directory / "records.jsonl").write_text("")
    (directory / "facts.jsonl").write_text("")
    page.mkdir()
    for name in ("design.toml", "facts.jsonl"):
        (page / name).write_bytes((directory / name).read_bytes())
    (page / packed.NAME).write_bytes(packed.packed(b""))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert not own.unpack("A", None)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert own.unpack("A", None)
    # The rows follow from the design.
    store.create(directory, (directory / "design.toml").read_text(), "A")
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    (page / packed.NAME).write_bytes(b"not that")
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    with pytest.raises(LabError, match="it cannot be unpacked"):
        own.unpack("A", None)
    assert not directory.exists()
