"""Answers what the command line asks of the models: directories of records in, a form out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from coracle_lab.errors import LabError
from coracle_lab.model import form, kernels, law, profile, read, slowest, two_term
from coracle_lab.model.check import told
from coracle_lab.model.messages import interpolation_error
from coracle_lab.model.profile import Plan
from coracle_lab.model.read import Source, Taken
from coracle_lab.model.sample import RESAMPLES, SEED, Sample, Samples
from coracle_lab.run import store

Where = Mapping[str, Mapping[str, str]]
"""Input ("starts", ...; "" for all) → factor → level."""


@dataclass(frozen=True)
class Options:
    """What all models are asked with. `environments` is empty for all that the inputs have."""

    environments: Sequence[str] = ()
    where: Where = field(default_factory=dict)
    seed: int = SEED
    resamples: int = RESAMPLES

    def levels(self, name: str) -> dict[str, str]:
        """Returns the levels that an input is narrowed to."""
        return {**self.where.get("", {}), **self.where.get(name, {})}

    def check(self, sources: Mapping[str, Source]) -> None:
        """Raises `LabError` if a factor of `where` is in no input that it is meant for."""
        for name, levels in self.where.items():
            if name and name not in sources:
                raise LabError(
                    f"--where {name}:... names no input", f"there are: {', '.join(sources)}"
                )
            meant = [sources[name]] if name else list(sources.values())
            for factor in levels:
                if all(one.store.design.factor(factor) is None for one in meant):
                    has = sorted({it.name for one in meant for it in one.store.design.factors})
                    raise LabError(
                        f'--where: no input has a factor "{factor}"', f"there are: {', '.join(has)}"
                    )


@dataclass(frozen=True)
class LawRequest:
    """The inputs of the law. `profile` is a file, a kernel's name, "none", or absent: by name."""

    starts: Path
    work: Path
    ranks: Sequence[int]
    messages: Path | None = None
    profile: str | None = None
    measured: Sequence[Path] = ()
    cores: int | None = None
    start_response: str | None = None
    work_response: str | None = None


def law_of(request: LawRequest, options: Options) -> form.Form:
    """Returns the law's form."""
    sources = {"starts": read.opened(request.starts), "work": read.opened(request.work)}
    if request.messages is not None:
        sources["messages"] = read.opened(request.messages)
    options.check(sources)
    worked = read.work(sources["work"], options.levels("work"), request.work_response)
    started = read.starts(sources["starts"], options.levels("starts"), request.start_response)
    table = None
    if request.messages is not None:
        table = read.messages(sources["messages"], options.levels("messages"))
    by_wall = worked.responses == (read.WALL,)
    outside = None if by_wall else read.outside(sources["work"], options.levels("work"))
    tables = law.Tables(started.samples, worked.samples, table, by_wall)
    if outside is not None:
        tables = replace(tables, outside=outside.samples)
    tables = read.same_environments(tables, options.environments)
    base = sources["work"].store.design.base
    plan = _profile(request.profile, sources["work"], options.levels("work"))
    measured, notes = _measured(request, sources["work"], options)
    made = law.predict(tables, plan, request.ranks, base, measured, options.seed, options.resamples)
    shown = {key: one for key, one in measured.items() if key[0] in tables.starts}
    if tables.messages is not None and not plan.is_silent:
        errors = interpolation_error(tables.messages)
        words = "its error is not known: two sizes were measured"
        if errors:
            words = f"off by at most {told(max(errors.values()))}"
            words += " (each size predicted from its neighbours)"
        notes.append(f"a message between two measured sizes: {words}")
    notes += _mixed(sources)
    parts = {"starts": started, "work": worked}
    if outside is not None:
        parts["outside"] = outside
    inputs = [
        _input(name, sources[name if name in sources else "work"], it, tables.starts)
        for name, it in parts.items()
    ]
    if tables.messages is not None:
        its = Taken(tables.messages.times, ("one_way_s@*",))
        inputs.append(_input("messages", sources["messages"], its, tables.starts))
    return form.law(made, inputs, shown, notes)


def tail_of(directory: Path, of: int, options: Options, response: str | None = None) -> form.Form:
    """Returns the form of the slowest of `of` starts."""
    source = read.opened(directory)
    options.check({"starts": source})
    taken = read.starts(source, options.levels("starts"), response or read.WALL)
    samples = _wanted(taken.samples, options.environments, "starts")
    base = source.store.design.base
    made = slowest.tell(samples, of, base, options.seed, options.resamples)
    return form.tail(made, [_input("starts", source, taken, samples)])


def two_term_of(times: Path, messages: Path, sizes: Sequence[int], options: Options) -> form.Form:
    """Returns the form of the two-term model of measured overheads."""
    sources = {"makespans": read.opened(times), "messages": read.opened(messages)}
    options.check(sources)
    source = sources["makespans"]
    spans: dict[int, dict[str, list[float]]] = {}
    measured = read.makespans(source, options.levels("makespans"))
    for (name, ranks), one in measured.items():
        spans.setdefault(ranks, {})[name] = one.values.tolist()
    table = read.messages(sources["messages"], options.levels("messages"))
    cells = {
        size: {name: one.values[:, at].tolist() for name, one in table.times.items()}
        for at, size in enumerate(table.sizes)
    }
    base = source.store.design.base
    made = two_term.split(
        spans, cells, sizes, base=base, seed=options.seed, resamples=options.resamples
    )
    one_rank = {name: one for (name, ranks), one in measured.items() if ranks == 1}
    inputs = [
        _input("makespans", source, Taken(one_rank, (read.WALL,)), one_rank),
        _input("messages", sources["messages"], Taken(table.times, ("one_way_s@*",)), table.times),
    ]
    return form.split(made, inputs)


def _wanted(samples: Samples, names: Sequence[str], what: str) -> dict[str, Sample]:
    for missing in (one for one in names if one not in samples):
        raise LabError(
            f'{what} were not measured in "{missing}"', f"there are: {', '.join(samples)}"
        )
    return {name: one for name, one in samples.items() if not names or name in names}


def _profile(given: str | None, work: Source, where: Mapping[str, str]) -> Plan:
    """Returns the profile of a file, of a kernel, or of the application that was measured."""
    application = work.store.design.application
    assert application is not None  # A store has one.
    if given is not None and Path(given).is_file():
        return profile.parse(store.read_text(Path(given)), given)
    if given is not None and ("/" in given or "." in given):
        raise LabError(f"{given}: there is no such file")
    factors = {one.name: one.levels for one in work.store.design.factors}
    parameters = kernels.parameters_of(application.parameters, factors, where)
    return kernels.known(given or application.name, parameters)


def _measured(
    request: LawRequest, work: Source, options: Options
) -> tuple[dict[tuple[str, int], Sample], list[str]]:
    """Returns what the law is compared with, and what had to be left out of it.

    More ranks than processors take turns, which the law does not describe.
    """
    found: dict[tuple[str, int], Sample] = {}
    left: set[int] = set()
    unknown = False
    for source in [work, *(read.opened(path) for path in request.measured)]:
        where = options.levels("work" if source is work else "measured")
        cores = request.cores or source.cpus()
        unknown = unknown or cores is None
        for (name, ranks), one in read.makespans(source, where).items():
            if ranks == 1:
                continue
            if cores is not None and ranks > cores:
                left.add(ranks)
            else:
                found[name, ranks] = one
    notes = []
    if left:
        notes.append(
            f"measured with {', '.join(map(str, sorted(left)))} ranks on fewer processors"
            " (oversubscribed): not compared; --cores N says how many there were in all nodes"
        )
    if unknown and found:
        notes.append("how many processors the measured ranks had is not recorded")
    return found, notes


def _mixed(sources: Mapping[str, Source]) -> list[str]:
    """Returns a note if the inputs are of different machines."""
    machines = {one for source in sources.values() for one in source.machines()}
    if len(machines) < 2:
        return []
    return ["the inputs were measured on different machines: the law supposes one"]


def _input(name: str, source: Source, taken: Taken, shown: Mapping[str, object]) -> form.Form:
    """Returns what is told about an input: its records, responses and numbers of values."""
    return {
        "name": name,
        "from": str(source.directory),
        "design": source.store.digest,
        "responses": list(taken.responses),
        "counts": {key: one.count for key, one in taken.samples.items() if key in shown},
    }
