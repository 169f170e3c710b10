"""`coracle-lab model`: what the models say, always with their error.

Each line of the tables that is modelled begins with the word model.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coracle_lab.cli.table import amount
from coracle_lab.errors import FAILED, LabError

DIGITS = "+-0123456789"
NUMBERS = ("value", "95 % interval", "99.7 % interval", "ratio")


def numbers(word: str) -> tuple[int, ...]:
    """Returns the numbers of a list like 2,4,8."""
    parts = word.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f'"{word}" is not a list of numbers of 1 or more: 2,4,8')
    return tuple(int(part) for part in parts)


def narrowed(word: str) -> tuple[str, str, str]:
    """Returns (input, factor, level) of [INPUT:]FACTOR=LEVEL."""
    name, equals, level = word.partition("=")
    before, _, factor = name.rpartition(":")
    if not equals or not factor:
        raise argparse.ArgumentTypeError(f'"{word}" is not [INPUT:]FACTOR=LEVEL')
    return before, factor, level


def add(commands: Any) -> None:
    """Adds the command's words."""
    parser = commands.add_parser(
        "model",
        help="models of what was not measured, with their error",
        description="Predicts from records. What is modelled is called a model in every line, and"
        " the error of the same model on measured points stands below.",
    )
    models = parser.add_subparsers(dest="model", metavar="MODEL", required=True)
    _add_law(models)
    tail = models.add_parser("tail", help="the slowest of N starts, measured or extrapolated")
    tail.add_argument("directory", metavar="DIR", type=Path, help="records of starts")
    tail.add_argument(
        "--of", metavar="N", type=numbers, default=(256,), help="ranks (default: 256)"
    )
    tail.add_argument("--response", metavar="NAME", help="the start (default: wall_s)")
    _add_common(tail)
    two = models.add_parser("two-term", help="work / p + communication * the ping-pong ratio")
    two.add_argument("--times", metavar="DIR", type=Path, required=True, help="makespans by ranks")
    two.add_argument("--messages", metavar="DIR", type=Path, required=True, help="ping-pong")
    two.add_argument(
        "--bytes", metavar="N,...", type=numbers, required=True, help="sizes of messages to suppose"
    )
    _add_common(two)


def _add_law(models: Any) -> None:
    law = models.add_parser(
        "law", help="T(p) = launch(p) + work / p + messages * (latency + size / bandwidth)"
    )
    add_argument = law.add_argument
    add_argument("--starts", metavar="DIR", type=Path, required=True, help="records of starts")
    add_argument("--messages", metavar="DIR", type=Path, help="records of a ping-pong")
    add_argument(
        "--work",
        metavar="DIR",
        type=Path,
        required=True,
        help="records of the program with one rank; with more, the law is compared with them",
    )
    add_argument("--profile", metavar="FILE", help="its messages: a file, a kernel's name, or none")
    add_argument("--ranks", metavar="N,...", type=numbers, required=True, help="for example 2,4,8")
    add_argument(
        "--measured",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="further records of the program to compare with; repeat it",
    )
    add_argument("--cores", metavar="N", type=numbers, help="processors that measured ranks had")
    add_argument("--start-response", metavar="NAME", help="what a start is (default: see docs)")
    add_argument("--work-response", metavar="NAME", help="what work is (default: work_s)")
    _add_common(law)


def _add_common(parser: Any) -> None:
    add_argument = parser.add_argument
    add_argument("--env", action="append", default=[], metavar="NAME", help="repeat it")
    add_argument(
        "--where",
        metavar="[INPUT:]FACTOR=LEVEL",
        type=narrowed,
        action="append",
        default=[],
        help="which level of a further factor; repeat it",
    )
    add_argument("--seed", type=int, default=18, help="seed of the bootstrap (default: 18)")
    add_argument(
        "--into",
        metavar="FILE",
        type=Path,
        help="write it, as .json or .csv; repeat it",
        action="append",
        default=[],
    )


def run(options: argparse.Namespace) -> int:
    """Runs a model, prints it, and writes it where that is asked."""
    for path in options.into:
        if path.suffix not in (".json", ".csv"):
            raise LabError(f"{path}: neither .json nor .csv", "--into model.json")
    if options.seed < 0:
        raise LabError(f"the seed is {options.seed}, not 0 or more")
    try:
        from coracle_lab.model import form
    except ImportError as error:
        raise LabError(
            f"models need the statistics: {error}", "pip install 'coracle-lab[report]'", FAILED
        ) from error
    made = _made(options)
    print("\n".join(lines(made)))
    for path in options.into:
        text = form.as_json(made) if path.suffix == ".json" else form.as_csv(made)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise LabError(f"{path}: {error.strerror}", status=FAILED) from error
    return 0


def _made(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the form of the model that is asked for."""
    from coracle_lab.model import asked

    where: dict[str, dict[str, str]] = {}
    for name, factor, level in options.where:
        where.setdefault(name, {})[factor] = level
    common = asked.Options(options.env, where, options.seed)
    if options.model == "tail":
        if len(options.of) != 1:
            raise LabError("--of takes one number", "--of 256")
        return asked.tail_of(options.directory, options.of[0], common, options.response)
    if options.model == "two-term":
        return asked.two_term_of(options.times, options.messages, options.bytes, common)
    request = asked.LawRequest(
        starts=options.starts,
        work=options.work,
        ranks=options.ranks,
        messages=options.messages,
        profile=options.profile,
        measured=options.measured,
        cores=options.cores[0] if options.cores else None,
        start_response=options.start_response,
        work_response=options.work_response,
    )
    return asked.law_of(request, common)


def lines(form: Mapping[str, Any]) -> list[str]:
    """Returns what the terminal shows of a form."""
    head, rows = {"law": _law, "tail": _tail, "two-term": _two_term}[form["model"]](form)
    found = [_title(form), *_aligned(head, rows)]
    found.append(form["error"]["words"])
    found += [f"note: {text}" for text in form["words"]]
    return found


def _title(form: Mapping[str, Any]) -> str:
    inputs = "; ".join(
        f"{one['name']} {' + '.join(one['responses'])}"
        f" ({', '.join(f'{key} {count}' for key, count in one['counts'].items())})"
        for one in form["inputs"]
    )
    messages = f"; messages of {form['profile']}" if form["model"] == "law" else ""
    return f"model {form['model']}: {inputs}{messages}; seed {form['seed']}"


def _span(point: Mapping[str, Any], level: str, show: Any) -> str:
    low, high = point[f"low{level}"], point[f"high{level}"]
    return "-" if low is None or high is None else f"{show(low)} to {show(high)}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else amount(value, "wall_s")


def _ratio(value: float) -> str:
    return f"{value:.4f}"


def _overhead(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:+.1f} %"


Rows = list[list[str]]


def _law(form: Mapping[str, Any]) -> tuple[list[str], Rows]:
    head = ["", "environment", "ranks", "time", "95 % interval", "launch", "work", "messages"]
    head += ["ratio", "95 % interval", ""]
    effects = {(one["environment"], one["x"]): one for one in form["effects"]}
    rows = []
    for point in form["points"]:
        name, ranks = point["environment"], point["x"]
        row = [point["kind"], name, str(ranks), _seconds(point["y"])]
        if point["kind"] == "measured":
            rows.append([*row, "", "", "", "", "", "", ""])
            continue
        row.append(_span(point, "95", _seconds))
        row += [_seconds(point["parts"][part]) for part in ("launch_s", "work_s", "messages_s")]
        effect = effects.get((name, ranks))
        if effect is None:
            row += ["1", "", ""]
        else:
            row += [_ratio(effect["y"]), _span(effect, "95", _ratio), effect["words"]]
        rows.append(row)
    return head, rows


def _tail(form: Mapping[str, Any]) -> tuple[list[str], Rows]:
    of = max((point["x"] for point in form["points"]), default=0)
    head = ["", "environment", "draws", f"slowest of {of}", "value", *NUMBERS[1:3], ""]
    rows = [
        [
            point["kind"],
            point["environment"],
            str(point["draws"]),
            point["what"],
            _seconds(point["y"]),
            _span(point, "95", _seconds),
            _span(point, "997", _seconds),
            point["words"],
        ]
        for point in form["points"]
    ]
    modelled = {one["environment"] for one in form["points"] if one["kind"] == "model"}
    for one in form["effects"]:
        is_model = modelled & {one["environment"], form["base"]}
        spans = [_span(one, level, _ratio) for level in ("95", "997")]
        kind, what = "model" if is_model else "measured", f"ratio to {form['base']}"
        rows.append([kind, one["environment"], "", what, _ratio(one["y"]), *spans, one["words"]])
    return head, rows


def _two_term(form: Mapping[str, Any]) -> tuple[list[str], Rows]:
    head = ["", "environment", "ranks", "bytes", "overhead", *NUMBERS[1:3], ""]
    rows = [
        [
            point["kind"],
            point["environment"],
            str(point["x"]),
            str(point.get("bytes", "")),
            _overhead(point["y"]),
            _span(point, "95", _overhead),
            _span(point, "997", _overhead),
            point.get("words", ""),
        ]
        for point in form["points"]
    ]
    return head, rows


def _aligned(head: Sequence[str], rows: Rows) -> list[str]:
    """Returns rows as lines of aligned columns; what begins like a number stands at the right."""
    table = [list(head), *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(head))]
    right = [any(row[at][:1] in DIGITS and row[at] for row in rows) for at in range(len(head) - 1)]
    right.append(False)
    made = []
    for row in table:
        parts = [
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(row, widths, right, strict=True)
        ]
        made.append("  ".join(parts).rstrip())
    return made
