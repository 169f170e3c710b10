"""Builds, images and places: what decides them, and what is said where they cannot be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coracle_lab import environments
from coracle_lab.applications import builds, images, places
from coracle_lab.applications.places import Places
from coracle_lab.design import Application, Image, Row, parse
from coracle_lab.environments import Setting
from coracle_lab.errors import LabError
from coracle_lab.run import launch


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORACLE_LAB_CACHE", str(tmp_path / "cache"))


def application(**keys: object) -> Application:
    given: dict[str, object] = {
        "command": ("{build}/a", "{size}"),
        "name": "own",
        "build": (("sh", "-c", 'echo "$1" > "$2/a"', "sh", "{size}", "{build}"),),
        "build_in": "host",
        "parameters": {"size": "3"},
    }
    return Application(**{**given, **keys})  # type: ignore[arg-type]


def test_a_build_is_made_once_and_again_only_for_another_one() -> None:
    build = builds.of(application(), {})
    assert build is not None
    builds.make(build)
    (build.directory / "a").write_text("kept")
    builds.make(build)
    assert (build.directory / "a").read_text() == "kept"
    other = builds.of(application(), {"size": "4"})
    assert other is not None
    assert other.directory != build.directory
    builds.make(other)
    assert (other.directory / "a").read_text() == "4\n"
    # A command that the build does not depend on makes no other build.
    assert builds.of(application(command=("true",)), {}) == build


def test_a_build_that_was_cut_off_is_made_anew() -> None:
    build = builds.of(application(), {})
    assert build is not None
    build.directory.mkdir(parents=True)
    (build.directory / "half").touch()
    builds.make(build)
    assert sorted(path.name for path in build.directory.iterdir()) == ["a"]


def test_a_failed_build_names_the_error_and_keeps_what_was_written(tmp_path: Path) -> None:
    said = "cc -c a.c\na.c:1:2: error: no such type\nmake: *** [Makefile:6: a.o] Error 1\n"
    script = 'test -e "$1" || { printf "$2" >&2; echo told; exit 2; }'
    commands = (("sh", "-c", script, "sh", str(tmp_path / "mended"), said),)
    build = builds.of(application(build=commands), {})
    assert build is not None
    with pytest.raises(LabError) as error:
        builds.make(build)
    assert error.value.message.endswith("on the host: a.c:1:2: error: no such type")
    assert str(build.log) in (error.value.hint or "")
    assert build.log.read_text().endswith(f"told\n{said}")
    (tmp_path / "mended").touch()
    builds.make(build)
    assert not build.log.exists()


def test_what_an_images_root_has_given_away_becomes_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tar does it, as root: native rows could not read it, and no later build could remove it."""
    said = tmp_path / "said"
    (tmp_path / "coracle").write_text(
        f'#!/bin/sh\n[ $1 = image ] && exec echo sha256:0\necho "$@" >> {said}\n'
        f"for build in {tmp_path}/cache/apps/own-*[0-9a-f]/; do touch $build/a; done\n"
    )
    (tmp_path / "coracle").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    own = application(build_in="image", image="x", build=(("tar", "xf", "{source}"),))
    build = builds.of(own, {})
    assert build is not None
    builds.make(build)
    assert "chown" not in said.read_text()
    build.whole.unlink()
    said.unlink()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    builds.make(build)
    taken = f"x chown -hR 0:0 {build.directory}"
    words = [line[line.index(" x ") + 1 :] for line in said.read_text().splitlines()]
    assert words == [taken, "x tar xf {source}", taken]


def test_a_source_that_is_not_the_designs_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    own = application(source=str(tmp_path / "src"), source_sha256="0" * 64)
    build = builds.of(own, {})
    assert build is not None
    with pytest.raises(LabError, match="has changed since the design was begun"):
        builds.make(build)


def test_an_application_without_a_build_has_none() -> None:
    assert builds.of(application(build=()), {}) is None


def test_places_are_seen_at_their_paths_and_read_only_where_that_is_possible(
    tmp_path: Path,
) -> None:
    found = Places(source=tmp_path / "s", build=tmp_path / "b", scratch=tmp_path / "c")
    own = application(volumes=("/data/{size}:/data",), workdir="{scratch}")
    volumes = {}
    for name in ("bwrap", "proot", "native"):
        environment = environments.find(name)
        volumes[name] = launch.setting_of(own, environment, {"size": "9"}, found).volumes
    places_in = (f"{tmp_path}/s:{tmp_path}/s", f"{tmp_path}/b:{tmp_path}/b")
    scratch = f"{tmp_path}/c:{tmp_path}/c"
    readonly = tuple(f"{one}:ro" for one in places_in)
    assert volumes["bwrap"] == ("/data/9:/data", *readonly, scratch)
    assert volumes["proot"] == ("/data/9:/data", *places_in, scratch)
    assert volumes["native"] == ("/data/9:/data",)


def test_a_row_has_its_words_variables_and_ranks(tmp_path: Path) -> None:
    own = application(
        command=("{build}/a", "{size}", "{ranks}"),
        variables={"OMP_NUM_THREADS": "{size}"},
        parameters={"size": "3", "ranks": "2"},
    )
    row = Row(1, 1, {"environment": "native", "size": "5"})
    limits = launch.Limits(cpus=(0,))
    found = Places(build=tmp_path)
    task = launch.task(row, 1, own, environments.find("native"), limits, tmp_path, found)
    assert task.words == (f"{tmp_path}/a", "5", "2")
    assert task.ranks == 2
    assert task.request["variables"]["OMP_NUM_THREADS"] == "5"
    # Two ranks on one processor are more than Open MPI starts unasked.
    assert task.request["variables"]["OMPI_MCA_rmaps_base_oversubscribe"] == "1"
    enough = launch.Limits(cpus=(0, 1))
    task = launch.task(row, 1, own, environments.find("native"), enough, tmp_path, found)
    assert "OMPI_MCA_rmaps_base_oversubscribe" not in task.request["variables"]
    assert places.ranks(application(), {}) is None


def test_one_preparation_for_each_environment_and_image() -> None:
    design = parse(
        'seed = 1\nreplicates = 1\n[factors]\nenvironment = ["native", "bwrap"]\n'
        'release = ["bookworm", "sid"]\n'
        '[application]\ncommand = ["a"]\nimage = "lab/{release}"\n'
        'variables = { R = "{release}{environment}" }\n',
        "d",
    )
    levels = {"environment": "bwrap", "release": "sid"}
    assert launch.place_of(design, levels) == "bwrap with lab/sid"
    assert launch.is_in(design, levels, "bwrap")
    assert not launch.is_in(design, levels, "bwrap with lab/bookworm")
    assert design.application is not None
    bwrap = environments.find("bwrap")
    one = bwrap.prepared(launch.setting_of(design.application, bwrap, levels, Places()))
    assert one == bwrap.prepared(Setting(image="lab/sid", variables={"A": "b"}))


def test_an_image_needs_mmdebstrap_and_the_message_says_what_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="coracle is not in PATH"):
        images.ensure("x", [])
    (tmp_path / "coracle").write_text(
        "#!/bin/sh\necho 'error: no such image\n  cause: none\n  hint: x' >&2\nexit 1\n"
    )
    (tmp_path / "coracle").chmod(0o755)
    recipe = Image("lab/x", "bookworm", ("gcc",))
    with pytest.raises(LabError) as error:
        images.ensure("lab/x", [recipe])
    assert "mmdebstrap is not in PATH" in error.value.message
    assert "bookworm that has gcc" in (error.value.hint or "")
    with pytest.raises(LabError, match=r"there is no recipe of it: no such image: none$"):
        images.ensure("lab/other", [recipe])
    (tmp_path / "mmdebstrap").write_text(
        "#!/bin/sh\necho 'E: unable to pick chroot mode automatically' >&2\nexit 25\n"
    )
    (tmp_path / "mmdebstrap").chmod(0o755)
    with pytest.raises(LabError) as error:
        images.ensure("lab/x", [recipe])
    assert "unable to pick chroot mode" in error.value.message
    assert "fakechroot" in (error.value.hint or "")
    (tmp_path / "mmdebstrap").write_text(
        "#!/bin/sh\necho 'E: Unable to locate package gc\nE: setup failed' >&2\nexit 25\n"
    )
    with pytest.raises(LabError, match=r"E: Unable to locate package gc$") as error:
        images.ensure("lab/x", [recipe])
    assert "packages of that release" in (error.value.hint or "")
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("fakechroot", [False, True])
def test_the_command_that_makes_an_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fakechroot: bool
) -> None:
    monkeypatch.setattr(images, "_needs_fakechroot", lambda: fakechroot)
    monkeypatch.setattr(images, "MERGED_USR", str(tmp_path))
    recipe = Image("lab/x", "bookworm", ("gcc", "g++"))
    command = images.command("mmdebstrap", recipe, Path("/a/b.tar"))
    assert command[0] == "mmdebstrap"
    assert command[command.index("/a/b.tar") - 1] == "bookworm"
    packages = "gcc,g++,usr-is-merged" if fakechroot else "gcc,g++"
    assert f"--include={packages}" in command
    assert ("--mode=fakechroot" in command) == fakechroot
    old = images.command("mmdebstrap", Image("lab/y", "bullseye"), Path("/a/b.tar"))
    assert not any("merged" in word for word in old)
