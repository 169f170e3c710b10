"""Designs that use an application of the table: what their text becomes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coracle_lab import applications, data
from coracle_lab.applications import toml
from coracle_lab.applications.table import builtin
from coracle_lab.design import digest, parse
from coracle_lab.design.check import Source
from coracle_lab.design.parse import read
from coracle_lab.errors import LabError

HEAD = 'seed = 1\nreplicates = 2\n[factors]\nenvironment = ["native", "native-again"]\n'
TABLE = """
[[image]]
name = "mine:bookworm"
release = "bookworm"
packages = ["gcc"]
[[image]]
name = "mine:trixie"
release = "trixie"
[[application]]
name = "own"
text = "a program of the test"
source = "src"
build = [["cc", "{source}/a.c", "-o", "{build}/a"]]
build_in = "host"
parameters = { size = 3, kind = "x" }
command = ["{build}/a", "{size}", "{kind}"]
success = 'right'
responses = { speed = '([0-9]+) per s' }
rates = ["speed"]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_text("int main(void) { return 0; }\n")
    path = tmp_path / "own.toml"
    path.write_text(TABLE)
    return path


def resolved(text: str, *files: Path) -> str:
    return applications.resolve(HEAD + text, "d.toml", files)


def test_every_entry_of_the_built_in_table_can_be_used() -> None:
    known = applications.table().applications
    assert {"ep", "pingpong"} <= set(known)
    for name, entry in known.items():
        free = {"ranks", *entry.get("parameters", {})}
        text = resolved(f'[application]\nuse = "{name}"\n')
        design = parse(text, "d.toml")
        assert design.application is not None, free
        assert design.application.name == name
        # Resolving is done once: the records' own design is taken as it is.
        assert applications.resolve(text, "d.toml") == text


def test_the_users_lines_stay_and_the_application_is_whole(own: Path) -> None:
    more = (
        '# mine\n[application]\nuse = "own"\nparameters = { size = 7 }\n[sentinel]\nabove = 2.0\n'
    )
    text = resolved(more, own)
    assert text.startswith(HEAD + "# mine\n# [application]\n# use = ")
    assert "\n[sentinel]\nabove = 2.0\n" in text
    application = parse(text, "d.toml").application
    assert application is not None
    assert application.parameters == {"size": "7", "kind": "x"}
    assert application.build[0][1] == "{source}/a.c"
    assert application.source == str(own.parent / "src")
    assert application.source_sha256 is not None
    assert application.is_rate("speed")
    assert application.is_rate("speed@8")
    assert not application.is_rate("wall_s")


@pytest.mark.parametrize(
    "more",
    [
        'application.use = "own"\n',
        'application = { use = "own", parameters = { size = 7 } }\n',
        '[application]\nuse = "own"\n[application.parameters]\nsize = 7\n',
    ],
)
def test_an_application_can_be_written_in_any_form(own: Path, more: str) -> None:
    inline = more.startswith("application")
    text = f"{more}{HEAD}" if inline else f"{HEAD}{more}"
    made = parse(applications.resolve(text, "d.toml", [own]), "d.toml")
    assert made.application is not None
    assert made.application.command[0] == "{build}/a"


def test_a_changed_source_is_another_design(own: Path) -> None:
    text = '[application]\nuse = "own"\n'
    before = digest(parse(resolved(text, own), "d"))
    assert digest(parse(resolved(text, own), "d")) == before
    (own.parent / "src" / "a.c").write_text("int main(void) { return 1; }\n")
    assert digest(parse(resolved(text, own), "d")) != before
    # A header beside the source is a part of it.
    between = digest(parse(resolved(text, own), "d"))
    (own.parent / "b.h").write_text("")
    assert digest(parse(resolved(text, own), "d")) != between


def test_recipes_of_the_images_come_along(own: Path) -> None:
    more = (
        'release = ["bookworm", "trixie", "sid"]\n[application]\nuse = "own"\n'
        'image = "mine:{release}"\nbuild_in = "image"\n'
    )
    design = parse(resolved(more, own), "d.toml")
    assert [(one.name, one.release) for one in design.images] == [
        ("mine:bookworm", "bookworm"),
        ("mine:trixie", "trixie"),
    ]
    plain = resolved('[application]\ncommand = ["true"]\nimage = "lab/bookworm"\n')
    assert [one.name for one in parse(plain, "d").images] == ["lab/bookworm"]


def test_a_design_without_the_table_stays_byte_for_byte() -> None:
    text = HEAD + '[application]\ncommand = ["true"]  # nothing\n'
    assert applications.resolve(text, "d.toml") == text


def test_new_keys_do_not_change_the_digests_of_earlier_designs() -> None:
    text = 'seed = 1\nreplicates = 2\n[factors]\nenvironment = ["native"]\n'
    text += '[application]\ncommand = ["true"]\nsuccess = "x"\n'
    # Computed by the version that had none of build, parameters, texts, nodes and same.
    known = "22da8bbbb16ede89"
    assert digest(parse(text, "d")).startswith(known)


@pytest.mark.parametrize(
    ("more", "line", "said"),
    [
        ('[application]\nuse = "epp"\n', 6, 'there is no application "epp"'),
        ('[application]\nuse = "ep"\ncommand = ["{clas}"]\n', 7, '"{clas}" of the command'),
        ('[application]\nuse = "ep"\nvariables = { A = "{b}" }\n', 7, '"{b}" of application.var'),
        ('[application]\nuse = "ep"\nspeed = 3\n', 7, 'unknown key "speed"'),
        ('[application]\nuse = "ep"\nreads = "json"\n', 7, "reads = 'json' is unknown"),
        ('[application]\ncommand = ["{build}/a"]\n', 5, 'application has no "build"'),
        ('[application]\ncommand = ["{source}"]\n', 5, 'application has no "source"'),
        ('[application]\ncommand = ["a"]\nseries = "n"\n', 7, "has nothing to refer to"),
        ('[application]\ncommand = ["a"]\ntexts = { e = "x" }\n', 7, "has no group"),
        ('[application]\ncommand = ["a"]\nsource = "nowhere"\n', None, "source is not there"),
        ('[application]\ncommand = ["a"]\nrates = ["a_s"]\n', 7, 'unknown response "a_s"'),
        ("[application]\nparameters = { scratch = 3 }\ncommand = ['a']\n", 6, "directory of the"),
        (
            '[application]\ncommand = ["a"]\nbuild = [["b"]]\nbuild_in = "image"\n',
            8,
            "build_in has nothing to refer to",
        ),
        ('[application]\nimage = "x"\n', 5, 'application has no "command"'),
        ("[nodes]\nrate = '1gbit'\n", 5, 'nodes has no "count"'),
        ("[nodes]\ncount = 2\nrate = 'fast'\n", 7, "is not of the form"),
    ],
)
def test_errors_name_the_users_line(more: str, line: int | None, said: str) -> None:
    with pytest.raises(LabError) as error:
        resolved(more)
    assert said in error.value.message
    if line is not None:
        assert error.value.message.startswith(f"d.toml, line {line}: ")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[[application]]\nname = "x"\ntext = "t"\n', 'has no "command"'),
        ('[[application]]\nname = "ep"\ntext = "t"\ncommand = ["a"]\n', 'an application "ep"'),
        ('[[image]]\nname = "lab/bookworm"\nrelease = "sid"\n', 'another image "lab/bookworm"'),
        (
            '[[application]]\nuse = "ep"\nname = "x"\ntext = "t"\ncommand = ["a"]\n',
            'unknown key "use"',
        ),
        ("[[applications]]\n", 'unknown key "applications"'),
        # A key that is misspelled counts before the one that is missing for that reason.
        (
            '[[application]]\nname = "x"\ntext = "t"\ncomand = ["a"]\n',
            'line 4: unknown key "comand"',
        ),
        ("[[image]]\nname = 'x'\nrelease = '--help'\n", "is not of the form"),
        ("name = ", "is not TOML"),
    ],
)
def test_a_wrong_table_is_refused_with_its_file(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(table)
    with pytest.raises(LabError) as error:
        applications.table([path])
    assert str(path) in error.value.message
    assert said in error.value.message


@pytest.mark.parametrize(
    ("entry", "more", "place", "said"),
    [
        (("'right'", "'('"), "", "own.toml, line 17", "success is not a regular expression"),
        (("'right'", "'('"), "success = '['\n", "d.toml, line 7", "success is not a regular"),
        (("'right'", "'('"), "success = 'x'\n", "", ""),
        (("([0-9]+)", "[0-9]+"), "", "own.toml, line 18", "responses.speed has no group"),
        (('["speed"]', '["sped"]'), "", "own.toml, line 19", 'unknown response "sped"'),
        ((', kind = "x"', ""), "", "own.toml, line 16", '"{kind}" of the command'),
        ((', kind = "x"', ""), "parameters = { kind = 1 }\n", "", ""),
        (("", ""), "variables = { A = '{b}' }\n", "d.toml, line 7", '"{b}" of application.var'),
    ],
)
def test_an_error_in_an_entry_names_the_table_and_not_the_design(
    own: Path, entry: tuple[str, str], more: str, place: str, said: str
) -> None:
    own.write_text(TABLE.replace(*entry))
    text = f'[application]\nuse = "own"\n{more}'
    if not said:
        resolved(text, own)
        return
    with pytest.raises(LabError) as error:
        resolved(text, own)
    assert f"{place}: " in error.value.message
    assert said in error.value.message


def test_a_response_that_no_row_can_have_is_refused_before_anything_is_measured() -> None:
    text = HEAD.replace("[factors]", 'responses = ["{}"]\n[factors]')
    plain = "[application]\ncommand = ['a']\nresponses = { time_s = '(.)', 'a_s@8' = '(.)' }\n"
    for name in ("time_s", "wall_s", "minor_faults", "a_s@8", "a_s@*"):
        applications.resolve(text.format(name) + plain, "d.toml")
    with pytest.raises(LabError, match='line 3: unknown response "tim_s"') as error:
        applications.resolve(text.format("tim_s") + plain, "d.toml")
    assert 'did you mean "time_s"?' in (error.value.hint or "")
    # What a program tells by lines of its own is known by its rows alone.
    applications.resolve(text.format("any") + plain + 'reads = "lab"\n', "d.toml")


def test_an_archive_is_no_source(own: Path) -> None:
    own.write_text(TABLE.replace('"src"', '"src/a.c"'))
    with pytest.raises(LabError, match="has to be a directory") as error:
        resolved('[application]\nuse = "own"\n', own)
    assert "tar xf" in (error.value.hint or "")


def test_an_application_that_is_not_put_in_is_refused() -> None:
    with pytest.raises(LabError, match="is not put in yet"):
        parse(HEAD + '[application]\nuse = "ep"\n', "d")


def test_nodes_and_files_that_are_the_same_are_parts_of_the_design() -> None:
    plain = parse(HEAD, "d")
    assert plain.nodes is None
    design = parse('same = "files"\n' + HEAD + '[nodes]\ncount = 2\nrate = "1gbit"\n', "d")
    assert design.nodes is not None
    assert (design.nodes.count, design.nodes.rate, design.same) == (2, "1gbit", "files")
    assert digest(design) != digest(plain)


def test_what_is_written_as_toml_is_read_as_the_same() -> None:
    tree = {
        "a": [1, 2.5, True, 'x"\\\n\x7f'],
        "b": {"c d": {"e": [["f"], []]}, "g": {}},
        "h": [{"i": "{j}"}],
    }
    assert read(Source(toml.document(tree), "t")) == tree


def test_the_directories_of_data_are_found() -> None:
    assert (data.directory("apps") / "lab.h").is_file()
    assert {path.name for path in builtin()} >= {"core.toml", "images.toml"}
    with pytest.raises(LabError, match="is missing"):
        data.directory("nothing")


def test_the_examples_of_the_documentation_are_right(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "lab-applications.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    tables = [block for block in blocks if "[[" in block]
    designs = [block for block in blocks if "[factors]" in block]
    assert len(tables) + len(designs) == len(blocks)
    assert len(designs) == 4
    files = []
    for number, block in enumerate(tables):
        files.append(tmp_path / f"{number}.toml")
        files[-1].write_text(block)
        for source in re.findall(r'^source = "(.*)"', block, re.MULTILINE):
            (tmp_path / source).mkdir(parents=True)
    # Placeholders, patterns and the names of responses are checked.
    for block in designs:
        parse(applications.resolve(block, "d.toml", files), "d.toml")
    known = applications.table(files).applications
    entries = set(known) - set(applications.table().applications)
    assert len(entries) == 8
    for name in entries:
        parse(resolved(f'[application]\nuse = "{name}"\n', *files), "d.toml")
