# ruff: noqa
"""A suite as a site has it: it knows nothing of containers.

The tests use what suites use: a program of the image, a compiled program, one that a fixture has
built and that is named by its absolute path, several ranks, variables, standard input, files of the
suite that are linked and not copied, options of the launcher.
"""

import os

import reframe as rfm
import reframe.utility.sanity as sn


class Anywhere(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]


@rfm.simple_test
class Words(Anywhere):
    """Words with spaces and quotes reach the program as they are."""

    executable = "printf"
    executable_opts = ["'%s|'", "'a b'", "'\"q\" $HOME'", "''", '"it\'s"']

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^a b\|\"q\" \$HOME\|\|it's\|$", self.stdout)


@rfm.simple_test
class Variables(Anywhere):
    """What the test exports is there, with its spaces and quotes."""

    env_vars = {"LAB_WORD": "'two words \"and\" quotes'", "LAB_EMPTY": "''"}
    executable = "sh"
    executable_opts = ["-c", "'echo \"[$LAB_WORD] [${LAB_EMPTY-unset}]\"'"]

    @sanity_function
    def exact(self):
        return sn.assert_found(r'^\[two words "and" quotes\] \[\]$', self.stdout)


@rfm.simple_test
class Directory(Anywhere):
    """The test's directory is where the program starts, and what it writes stays."""

    executable = "sh"
    executable_opts = ["-c", "'pwd > here; cat copied'"]

    @sanity_function
    def exact(self):
        here = sn.extractsingle(r"^(\S+)$", "here", 1)
        return sn.all(
            [
                sn.assert_eq(here, os.path.realpath(self.stagedir)),
                sn.assert_found(r"^copied with the suite$", self.stdout),
            ]
        )


@rfm.simple_test
class Linked(Anywhere):
    """Files that the suite wants linked can be read."""

    readonly_files = ["copied"]
    executable = "cat"
    executable_opts = ["copied"]

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^copied with the suite$", self.stdout)


@rfm.simple_test
class Input(Anywhere):
    """The program reads standard input."""

    executable = "cat"
    executable_opts = ["< copied"]

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^copied with the suite$", self.stdout)


@rfm.simple_test
class Status(Anywhere):
    """The job's status is the program's."""

    executable = "sh"
    executable_opts = ["-c", "'exit 7'"]

    @sanity_function
    def exact(self):
        return sn.assert_eq(self.job.exitcode, 7)


@rfm.simple_test
class Compiled(rfm.RegressionTest):
    """A program that is compiled on the host and runs where the others do."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcepath = "where.c"

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^compiled program, in the container: [01]$", self.stdout)


class Built(rfm.CompileOnlyRegressionTest):
    """A program for others."""

    sourcepath = "where.c"
    build_system = "SingleSource"
    executable = "where"

    @sanity_function
    def exact(self):
        return sn.assert_true(sn.path_isfile(os.path.join(self.stagedir, "where")))


@rfm.simple_test
class OfFixture(Anywhere):
    """A program in the directory of a fixture, by its absolute path."""

    built = fixture(Built, scope="environment")

    @run_before("run")
    def name(self):
        self.executable = os.path.join(self.built.stagedir, "where")

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^compiled program, in the container: [01]$", self.stdout)


class Ranks(Anywhere):
    num_tasks = 2
    executable = "ranks-openmpi"

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^ring of 2 ranks: right, in the container: [01], ", self.stdout)


@rfm.simple_test
class Ring(Ranks):
    """Two ranks of MPI send each other megabytes."""


@rfm.simple_test
class RingWithOptions(Ranks):
    """The same with an option for the launcher, and a variable."""

    env_vars = {"WORD": "of-the-test"}

    @run_before("run")
    def options(self):
        self.job.launcher.options = ["--map-by", "slot"]

    @sanity_function
    def exact(self):
        return sn.assert_found(r"^ring of 2 ranks: right, .*, of-the-test$", self.stdout)
