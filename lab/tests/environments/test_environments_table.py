"""Tables of environments: the built-in one, the user's, and wrong ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coracle_lab import environments
from coracle_lab.environments import Setting
from coracle_lab.errors import LabError

CONTRACT = (
    "native",
    "native-again",
    "chroot",
    "coracle",
    "coracle:N1",
    "coracle:I1",
    "coracle:I2",
    "coracle:P1",
    "coracle:P2",
    "coracle:F1",
    "coracle:F2",
    "coracle:R1",
    "coracle:R2",
    "coracle:R3",
    "coracle:S1",
    "bwrap",
    "podman",
    "docker",
    "apptainer",
    "singularity",
    "charliecloud",
    "runc",
    "crun",
    "proot",
    "fakechroot",
    "udocker:P1",
    "planted:work=3%",
    "planted:start=20ms",
    "planted:message=30us",
)
"""The names that other parts count on."""

ENTRY = """
[[environment]]
name = "timed"
text = "native, below time"
takes = "host"
program = "env"
command = ["{program}", ["{variable}"]]
"""


def test_options_of_a_design_stand_before_the_image() -> None:
    setting = Setting(image="x", options=("--init", "--volume=/a:/b"))
    words = environments.find("coracle:I1").command(["true"], setting)
    at = words.index("--execmode=I1")
    assert words[at + 1 : at + 3] == ["--init", "--volume=/a:/b"]
    assert words[-2:] == ["x", "true"]
    plain = environments.find("coracle:I1")
    assert plain.prepared(setting) == plain.prepared(Setting(image="x"))
    with pytest.raises(LabError, match="native takes no options of a design"):
        environments.find("native").command(["true"], Setting(options=("--init",)))


def table(directory: Path, text: str) -> list[Path]:
    """Writes a table."""
    path = directory / "mine.toml"
    path.write_text(text)
    return [path]


def test_names() -> None:
    assert not set(CONTRACT) - set(environments.names())


@pytest.mark.parametrize("name", environments.names())
def test_every_name_is_found(name: str) -> None:
    assert environments.find(name).name == name


def test_unknown_name_says_what_there_is() -> None:
    with pytest.raises(LabError) as error:
        environments.find("coracle:N2")
    assert "coracle:N1" in error.value.text()


@pytest.mark.parametrize("name", ["planted:work=0.5%", "planted:start=10ms", "planted:work=12%"])
def test_any_number(name: str) -> None:
    assert environments.find(name).name == name


@pytest.mark.parametrize(
    "name", ["planted:work=%", "planted:work=-3%", "planted:work=1e3%", "planted:start=9ms"]
)
def test_wrong_numbers(name: str) -> None:
    with pytest.raises(LabError):
        environments.find(name)


def test_own_entry(tmp_path: Path) -> None:
    more = table(tmp_path, ENTRY)
    found = environments.find("timed", more)
    assert found.probe().usable
    setting = Setting(variables={"A": "b c"})
    assert found.command(["x"], setting)[1:] == ["A=b c", "x"]
    assert "timed" in environments.names(more)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "timed"', 'name = "native"', "the name is taken"),
        ('name = "timed"', "", "'name' is missing"),
        ('takes = "host"', 'takes = "hosts"', "takes must be one of"),
        ('text = "native, below time"', "text = 3", "text must be a text"),
        ('takes = "host"', 'takes = "host"\nroot = 1', "root must be true or false"),
        ('takes = "host"', 'takes = "host"\ncolour = 1', "unknown key 'colour'"),
        ('takes = "host"', 'takes = "host"\nprepare = ["x"]', "prepare is not a list of commands"),
        ('["{program}", ["{variable}"]]', "[]", "command is not a list of words"),
        ('["{program}", ["{variable}"]]', '["{programme}"]', "unknown placeholder"),
        ('program = "env"', "", "'program' is missing"),
        ('name = "timed"', 'name = "timed:{value}"', "'values' is missing"),
        ('takes = "host"', 'takes = "host"\nvalues = ["a"]', "need {value} in the name"),
        ("[[environment]]", "[environment]", "not a list of tables"),
        ("[[environment]]", "[[environments]]", "unknown key 'environments'"),
        ("[[environment]]", "[[environment", "mine.toml: "),
    ],
)
def test_wrong_tables(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ENTRY
    more = table(tmp_path, ENTRY.replace(old, new, 1))
    with pytest.raises(LabError) as error:
        environments.names(more)
    assert message in error.value.text()
    assert "mine.toml" in error.value.text()


def test_missing_table(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"none\.toml: No such file"):
        environments.names([tmp_path / "none.toml"])


def test_what_takes_an_image_is_usable_untried(tmp_path: Path) -> None:
    image = ENTRY.replace('takes = "host"', 'takes = "image"', 1).replace(
        '"{program}",', '"{program}", "{image}",'
    )
    assert not environments.find("timed", table(tmp_path, image)).probe().tried
    probed = image.replace('program = "env"', 'program = "env"\nprobe = ["true"]', 1)
    assert environments.find("timed", table(tmp_path, probed)).probe().tried


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ('program = "no-such-program"', "no-such-program is not in PATH"),
        (
            'probe = ["sh", "-c", "echo so; echo error: that is it >&2; exit 3"]',
            "that is it",
        ),
        ('probe = ["false"]', "false ended with status 1"),
        ('probe = ["sh", "-c", "kill -9 $$"]', "sh was ended by SIGKILL"),
        ('probe = ["/no/such"]', "/no/such: No such file or directory"),
    ],
)
def test_unusable_says_why(tmp_path: Path, probe: str, why: str) -> None:
    more = table(
        tmp_path,
        ENTRY.replace('program = "env"', f'program = "env"\n{probe}', 1)
        if not probe.startswith("program")
        else ENTRY.replace('program = "env"', probe),
    )
    found = environments.find("timed", more).probe()
    assert (found.usable, found.why) == (False, why)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("coracle", Setting(), "coracle needs an image"),
        ("docker", Setting(rootfs=Path("/")), "cannot use a directory tree"),
        ("bwrap", Setting(), "bwrap needs a directory tree, or an image"),
        ("bwrap", Setting(rootfs=Path("/no/such")), "/no/such is not a directory"),
        ("bwrap", Setting(rootfs=Path("/"), gpus="all"), "no way of its own to give GPUs"),
        ("proot", Setting(rootfs=Path("/"), volumes=("/a:/b:ro",)), "has no read-only volumes"),
        ("native", Setting(volumes=("/a:/b",)), "native cannot show /a as /b"),
        ("native", Setting(gpus="1"), "native cannot choose GPUs"),
    ],
)
def test_what_an_environment_cannot_do(name: str, setting: Setting, message: str) -> None:
    with pytest.raises(LabError) as error:
        environments.find(name).command(["true"], setting)
    assert message in error.value.text()


def test_failed_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORACLE_LAB_CACHE", str(tmp_path))
    text = ENTRY.replace('program = "env"', 'program = "env"\nprepare = [["ls", "/no/such"]]')
    with pytest.raises(LabError) as error:
        environments.find("timed", table(tmp_path, text)).prepare(Setting())
    assert "timed cannot be prepared: ls: cannot access '/no/such'" in error.value.text()


def test_native_is_the_program_itself() -> None:
    assert environments.find("native").command(["a", "b c"], Setting()) == ["a", "b c"]


def test_planted_uses_this_python() -> None:
    assert environments.find("planted:work=3%").command(["a"], Setting())[0] == sys.executable
