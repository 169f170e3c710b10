"""Makes an `Application` of the table [application] of a design, and checks its words.

Placeholders are `{NAME}`: a factor, a parameter, or one of `PLACES`. Anything else in braces that
looks like a placeholder is an error, because it would reach the program as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coracle_lab.design.check import Source, near, spelled
from coracle_lab.design.model import Application, Factor, Image

PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)\}")
PLACES = ("source", "build", "scratch")
"""Directories of an application: its source, what was built of it, and one that is empty."""
RANKS = "ranks"
FILLED = ("command", "build", "variables", "image", "rootfs", "volumes", "workdir")
"""Keys whose words may have placeholders."""


def level_text(level: str | int | float | bool) -> str:
    """Returns a level as text: booleans as TOML writes them, numbers in their shortest form."""
    return str(level).lower() if isinstance(level, bool) else str(level)


def words(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yields every text in a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from words(inner, (*path, key))
    elif isinstance(value, Sequence):
        for at, inner in enumerate(value):
            yield from words(inner, (*path, at))


def application(
    source: Source, given: Mapping[str, Any] | None, factors: tuple[Factor, ...]
) -> Application | None:
    """Returns the application of a design, checked; None if the design has none."""
    if given is None:
        return None
    path = ("application",)
    if "command" not in given:
        if "use" in given:
            source.fail(
                (*path, "use"),
                f'the application "{given["use"]}" of the table is not put in yet',
                "coracle-lab run, plan and papers do that",
            )
        source.fail(path, 'application has no "command"', 'add command = ["PROGRAM", ...]')
    _placeholders(source, given, [factor.name for factor in factors])
    _patterns(source, given)
    _places(source, given)
    image = given.get("image")
    return Application(
        command=tuple(given["command"]),
        name=given.get("name", given["command"][0].rsplit("/", 1)[-1]),
        success=given.get("success"),
        responses=dict(given.get("responses", {})),
        timeout_s=given.get("timeout_s"),
        image=image,
        rootfs=given.get("rootfs"),
        volumes=tuple(given.get("volumes", ())),
        workdir=given.get("workdir"),
        variables=dict(given.get("variables", {})),
        gpus=given.get("gpus"),
        text=given.get("text", ""),
        source=given.get("source"),
        source_sha256=given.get("source_sha256"),
        build=tuple(tuple(command) for command in given.get("build", ())),
        # Without a build it does not matter where, and digests of earlier designs stay.
        build_in="image" if not given.get("build") else _build_in(given),
        host=tuple(given.get("host", ())),
        launcher=given.get("launcher"),
        parameters={key: level_text(v) for key, v in given.get("parameters", {}).items()},
        reads=given.get("reads"),
        series=given.get("series"),
        texts=dict(given.get("texts", {})),
        rates=tuple(given.get("rates", ())),
    )


def _build_in(given: Mapping[str, Any]) -> Any:
    return given.get("build_in", "image" if "image" in given else "host")


def images(given: Sequence[Mapping[str, Any]]) -> tuple[Image, ...]:
    """Returns the recipes of images that a design has."""
    return tuple(
        Image(
            entry["name"],
            entry["release"],
            tuple(entry.get("packages", ())),
            entry.get("layers", 1),
        )
        for entry in given
    )


def _placeholders(source: Source, given: Mapping[str, Any], factors: list[str]) -> None:
    """Refuses a placeholder that nothing stands for."""
    parameters = list(given.get("parameters", {}))
    for name in parameters:
        if name in PLACES:
            source.fail(
                ("application", "parameters", name),
                f'"{{{name}}}" is a directory of the lab',
                "rename the parameter",
            )
    known = [*factors, *parameters, RANKS, *PLACES]
    for key in FILLED:
        for path, word in words(given.get(key, ()), ("application", key)):
            for used in PLACEHOLDER.findall(word):
                if used in known:
                    continue
                what = "the command" if key == "command" else spelled(path)
                source.fail(
                    path,
                    f'"{{{used}}}" of {what} is not a factor, a parameter or a place',
                    near(used, known),
                )


def _patterns(source: Source, given: Mapping[str, Any]) -> None:
    """Compiles all regular expressions; those of responses and texts have to have a group."""
    patterns: dict[tuple[str, ...], str] = {}
    if "success" in given:
        patterns[("success",)] = given["success"]
    for table in ("responses", "texts"):
        patterns |= {(table, key): text for key, text in given.get(table, {}).items()}
    for key, pattern in patterns.items():
        path = ("application", *key)
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            what = f"{spelled(path)} is not a regular expression: {error}"
            source.fail(path, what, "backslashes: use '...'")
        if len(key) > 1 and groups < 1:
            what = "the number" if key[0] == "responses" else "the text"
            source.fail(path, f"{spelled(path)} has no group", f"put (...) around {what}")


def _places(source: Source, given: Mapping[str, Any]) -> None:
    """Refuses keys that need another key which is not there."""
    used = {name for _, word in words(given, ()) for name in PLACEHOLDER.findall(word)}
    needs = (
        ("series" in given and "reads" not in given, "series", 'add reads = "lab"'),
        ("source" in used and "source" not in given, "source", "{source} is used: add source"),
        ("build" in used and "build" not in given, "build", "{build} is used: add build"),
        (
            bool(given.get("build")) and given.get("build_in") == "image" and "image" not in given,
            "build_in",
            'name an image, or write build_in = "host"',
        ),
    )
    for is_wrong, key, hint in needs:
        if is_wrong:
            what = f'application has no "{key}"'
            if key in given:
                what = f"application.{key} has nothing to refer to"
            source.fail(("application", key), what, hint)
