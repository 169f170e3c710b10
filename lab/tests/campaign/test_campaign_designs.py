"""The design of a figure on a host: it is made once, and what the host lacks is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coracle_lab.applications import table
from coracle_lab.campaign import designs, needs
from coracle_lab.campaign.designs import Setup
from coracle_lab.campaign.groups import GROUPS, Host
from coracle_lab.campaign.model import Campaign, Figure
from coracle_lab.campaign.parse import parse
from coracle_lab.environments import Probe
from coracle_lab.errors import LabError

TEXT = """title = "T"
paper = "p"
text = "t"
[[figure]]
id = "A"
title = "a figure"
of = "Fig. 1"
layout = "times"
responses = ["wall_s"]
shows_not = "much"
[figure.design]
seed = 1
factors = { environment = ["@native", "@fast", "@peers"], ranks = [1, 2] }
where = [{ leave_out = { environment = "@fast", ranks = 2 }, reason = "short" }]
application = { use = "ep" }
nodes = { count = 2 }
[figure.quick]
replicates = 2
"""


def campaign(text: str = TEXT) -> tuple[Campaign, Figure]:
    made = parse(text, "c.toml", "quick")
    return made, made.figures[0]


def host(*usable: str) -> Host:
    """A host on which these environments can be used."""
    every = {name for names in GROUPS.values() for name in names}
    return Host(
        found={name: Probe(name in usable, "1", "" if name in usable else "no") for name in every}
    )


def test_a_design_that_was_begun_stays_whatever_is_installed_later(tmp_path: Path) -> None:
    first = designs.prepared(*campaign(), tmp_path, Setup(host("coracle:N1", "bwrap"), table()))
    factor = first.store.design.factor("environment")
    assert factor is not None
    assert factor.levels == ("native", "native-again", "coracle:N1", "bwrap")
    assert first.left_out["podman"] == "no"
    assert first.left_out["runc"].startswith("it has no ranks of MPI: ")
    assert {cell.levels["environment"] for cell in first.store.design.left_out} == {"coracle:N1"}
    again = designs.prepared(*campaign(), tmp_path, Setup(host("podman"), table()))
    assert (again.store.digest, list(again.store.rows)) == (
        first.store.digest,
        list(first.store.rows),
    )


def test_nodes_of_a_cluster_take_the_place_of_simulated_ones(tmp_path: Path) -> None:
    setup = Setup(host("coracle:N1"), table())
    assert designs.prepared(*campaign(), tmp_path / "a", setup).store.design.nodes is not None
    cluster = replace(setup, simulates=False)
    assert designs.prepared(*campaign(), tmp_path / "b", cluster).store.design.nodes is None


def test_an_unknown_environment_or_application_leaves_no_directory(tmp_path: Path) -> None:
    for change, message in (
        (('"@peers"', '"bwarp"'), "unknown environment 'bwarp'"),
        (('"ep"', '"epp"'), 'there is no application "epp"'),
    ):
        with pytest.raises(LabError, match=message):
            designs.prepared(
                *campaign(TEXT.replace(*change)), tmp_path / "x", Setup(host(), table())
            )
        assert not (tmp_path / "x").exists()


def test_words_mean_built_in_campaigns_only_where_there_is_no_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("overhead", "overhead.toml", "papers/overhead.toml"):
        assert designs.found(Path(word)) == designs.builtin()[0]
    for word in ("overheat", "other/overhead.toml", "/papers/overhead.toml"):
        assert designs.found(Path(word)) == Path(word)
    Path("overhead.toml").write_text("")
    assert designs.found(Path("overhead.toml")) == Path("overhead.toml")


def test_packages_that_are_not_installed_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dpkg-query"
    program.write_text(
        "#!/bin/sh\necho installed openmpi-bin; echo config-files libgomp1; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert needs.lacking(["openmpi-bin", "libgomp1", "hpcc"]) == ["hpcc", "libgomp1"]
    _, figure = campaign()
    wanted = needs.packages([figure], table())
    assert "mmdebstrap" in wanted
    assert "openmpi-bin" in wanted
    why = needs.why_not(figure, table())
    assert why is not None
    assert why.startswith("not installed: ")
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needs.lacking(["hpcc"]) is None
