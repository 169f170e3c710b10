"""How placeholders and groups become words."""

from __future__ import annotations

import pytest

from coracle_lab.environments.setting import Setting, values
from coracle_lab.environments.template import check, fill
from coracle_lab.errors import LabError

SETTING = Setting(
    volumes=("/a b:/c", "/d:/e:ro"), variables={"X": "1 2", "Y": ""}, workdir="/w", passed=("P",)
)


def words(*template: object, setting: Setting = SETTING, **single: str | None) -> list[str]:
    """Fills a template."""
    check(list(template), "test")  # type: ignore[arg-type]
    return fill(list(template), values(setting, single))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (["-v", "{volume}"], ["-v", "/a b:/c", "-v", "/d:/e:ro"]),
        (["-b", "{source}:{target}"], ["-b", "/a b:/c"]),
        (["-r", "{ro_source}", "{ro_target}"], ["-r", "/d", "/e"]),
        (["-e", "{variable}"], ["-e", "X=1 2", "-e", "Y="]),
        (["-w", "{workdir}"], ["-w", "/w"]),
        (["--gpus", "{gpus}"], []),
        ([["env", ["{gpus}"]]], []),
        (["env", ["{variable}"]], ["env", "X=1 2", "Y="]),
        (["--nv", "{gpus?}"], []),
        (["--in", "{workdir?}"], ["--in"]),
        (["x{gpus|}y"], ["xy"]),
        (["{{}}"], ["{}"]),
    ],
)
def test_groups(template: list[object], expected: list[str]) -> None:
    assert words("a", template, "z") == ["a", *expected, "z"]


def test_missing_value_outside_of_a_group() -> None:
    with pytest.raises(LabError, match="image is needed"):
        words("{image}")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (["{imgae}"], "unknown placeholder"),
        (["{"], "single '{'"),
        (["a}"], "single '}'"),
        ([["{volume}", "{variable}"]], "one group cannot be repeated"),
    ],
)
def test_wrong_templates(template: list[object], message: str) -> None:
    with pytest.raises(LabError, match=message):
        words(*template)


@pytest.mark.parametrize("volume", ["/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:z"])
def test_wrong_volumes(volume: str) -> None:
    with pytest.raises(LabError, match="volume"):
        words("x", setting=Setting(volumes=(volume,)))
