//! The parts of the check: what each runs, what it needs first, and beside what it runs.

use std::path::PathBuf;
use std::process::Command;

use testkit::built;
use testkit::share::{self, Share};

use super::changes::Change;
use crate::lints::STAGE;
use crate::shell::{by_way_of, cargo, target};

/// Parts of a lane run one after the other, in the order of [`ALL`]; lanes run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Checks of the sources, and the lab.
    Check,
    /// Waits for a mirror of packages.
    SetUp,
    /// Compiles: cargo allows one at a time.
    Cargo,
    /// Suites that compute.
    Compute,
    /// Suites that wait for programs and time limits most of the time.
    Wait,
    /// Clusters of simulated hosts, one case at a time, which waits.
    Hosts,
}

impl Lane {
    pub(super) const ALL: [Self; 6] =
        [Self::Check, Self::SetUp, Self::Cargo, Self::Compute, Self::Wait, Self::Hosts];
}

/// When a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Always.
    Always,
    /// If there is more than documents.
    Code,
    /// If the lab changed, or what changed is not known.
    LabSources,
    /// If the lab changed, and in the complete check.
    Lab,
    /// In the complete check alone.
    Complete,
}

/// What a part runs.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// A task of this program.
    Task(&'static [&'static str]),
    Commands(fn(Share) -> Vec<Command>),
    /// The suite of the part's name.
    Suite,
}

/// A part.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) lane: Lane,
    when: When,
    /// Parts that must have ended, in whatever way.
    pub(super) needs: &'static [&'static str],
    /// Room that it needs in the target directory.
    pub(super) megabytes: u64,
    run: Run,
}

const BUILT: &[&str] = &["packages", "build"];

/// All parts, in the order of their lanes.
pub(super) const ALL: &[Part] = &[
    part("format", Lane::Check, When::Code, &[], Run::Commands(format)),
    part("tidy", Lane::Check, When::Always, &[], Run::Task(&["tidy"])),
    part("packages", Lane::SetUp, When::Code, &[], Run::Task(&["setup", "packages"])),
    part("lab-packages", Lane::SetUp, When::Code, &["packages"], Run::Task(&["setup", "lab"])),
    tree("tree-debian"),
    tree("tree-services"),
    tree("tree-batch"),
    tree("tree-directory"),
    tree("tree-servers"),
    tree("tree-readme"),
    tree("tree-programs"),
    tree("tree-integration"),
    tree("tree-more"),
    part("tools", Lane::SetUp, When::Code, &["packages"], Run::Task(&["setup", "tools"])),
    Part { megabytes: 2_500, ..part("build", Lane::Cargo, When::Code, &[], Run::Commands(build)) },
    Part {
        megabytes: 5_000,
        ..part("build-tests", Lane::Cargo, When::Code, &["build"], Run::Commands(build_tests))
    },
    part("units", Lane::Cargo, When::Code, &["packages", "build-tests"], Run::Commands(units)),
    // Behind the unit tests, because it reads what their compilation warned of.
    Part { megabytes: 5_000, ..part("lints", Lane::Cargo, When::Code, &[], Run::Task(&["lints"])) },
    suite("cli", Lane::Compute, BUILT),
    suite("differential", Lane::Compute, BUILT),
    suite("contract", Lane::Compute, &["packages", "build", "tree-services", "tree-debian"]),
    suite("sequences", Lane::Compute, BUILT),
    suite(
        "programs",
        Lane::Compute,
        &["packages", "build", "tree-debian", "tree-programs", "tree-more"],
    ),
    suite("posix", Lane::Compute, &["packages", "build", "tools"]),
    suite("hostile", Lane::Compute, BUILT),
    suite("network", Lane::Wait, &["packages", "build", "tree-debian"]),
    suite(
        "cluster",
        Lane::Wait,
        &["packages", "build", "tree-batch", "tree-services", "tree-directory"],
    ),
    suite("servers", Lane::Wait, &["packages", "build", "tree-servers"]),
    suite("batch", Lane::Wait, BUILT),
    suite("interop", Lane::Wait, BUILT),
    suite("udocker", Lane::Wait, &["packages", "build", "tools"]),
    suite("integration", Lane::Wait, &["packages", "build", "tree-integration"]),
    // It computes too, and this lane ends first.
    suite("crash", Lane::Wait, BUILT),
    suite(
        "hosts",
        Lane::Hosts,
        &["packages", "build", "tree-services", "tree-batch", "tree-readme"],
    ),
    part(
        "lab-units",
        Lane::Check,
        When::LabSources,
        &["lab-packages"],
        Run::Task(&["lab", "units"]),
    ),
    part(
        "lab-trial",
        Lane::Check,
        When::Code,
        &["lab-packages", "build"],
        Run::Task(&["lab", "trial"]),
    ),
    part("lab", Lane::Check, When::Lab, &["lab-packages", "build", "hosts"], Run::Task(&["lab"])),
    part("dependencies", Lane::Cargo, When::Complete, &[], Run::Task(&["dependencies"])),
    part("release", Lane::Cargo, When::Complete, &["packages"], Run::Task(&["release"])),
];

const fn part(
    name: &'static str,
    lane: Lane,
    when: When,
    needs: &'static [&'static str],
    run: Run,
) -> Part {
    Part { name, lane, when, needs, megabytes: 0, run }
}

/// What the names of parts that make trees begin with.
const TREE: &str = "tree-";

/// A tree of Debian, or what else a mirror has: behind [`TREE`] its name in [`testkit::trees`].
const fn tree(name: &'static str) -> Part {
    let part = part(name, Lane::SetUp, When::Code, &["packages"], Run::Task(&["setup", "tree"]));
    Part { megabytes: 4_000, ..part }
}

const fn suite(name: &'static str, lane: Lane, needs: &'static [&'static str]) -> Part {
    Part { megabytes: 4_000, ..part(name, lane, When::Code, needs, Run::Suite) }
}

/// These parts with all that they need, in the order of [`ALL`].
pub(super) fn with_needs(names: &[&str]) -> Vec<&'static Part> {
    let mut wanted: Vec<&str> = names.to_vec();
    let mut at = 0;
    while let Some(name) = wanted.get(at).copied() {
        let needs = ALL.iter().find(|part| part.name == name).map_or(&[][..], |part| part.needs);
        let new: Vec<&str> = needs.iter().filter(|need| !wanted.contains(need)).copied().collect();
        wanted.extend(new);
        at += 1;
    }
    ALL.iter().filter(|part| wanted.contains(&part.name)).collect()
}

/// Prints the names of all parts.
pub(super) fn print() {
    for part in ALL {
        let when = match part.when {
            When::Complete => " (complete check)",
            When::LabSources => " (where the lab changed, or what changed is not known)",
            When::Lab => " (complete check, and where the lab changed)",
            When::Always | When::Code => "",
        };
        println!("{}{when}", part.name);
    }
}

/// The command that repeats a case of a part.
pub(super) fn repeat(part: &str, case: &str) -> String {
    let is_suite = ALL.iter().any(|one| one.name == part && matches!(one.run, Run::Suite));
    let name = case.split_whitespace().next().unwrap_or(case);
    if is_suite {
        return format!("cargo suites {name} --exact");
    }
    let binary = case.split_once('(').map_or("", |(_, rest)| rest);
    let package = binary.split(',').next().unwrap_or_default();
    format!("cargo units {name} -- --exact   # in {package}")
}

impl Part {
    /// Whether it runs if nothing special is asked for.
    pub(super) fn is_usual(&self, change: Change) -> bool {
        match self.when {
            When::Always => true,
            When::Code => match change {
                Change::Documents => false,
                Change::Lab => {
                    self.name.starts_with("lab") || matches!(self.name, "packages" | "build")
                }
                Change::Code | Change::All | Change::Unknown => true,
            },
            When::LabSources => !matches!(change, Change::Documents | Change::Code),
            When::Lab => matches!(change, Change::Lab | Change::All),
            When::Complete => false,
        }
    }

    /// Whether its output has results of tests.
    pub(super) fn has_tests(&self) -> bool {
        matches!(self.run, Run::Suite) || self.name == "units"
    }

    /// Its commands, which run one after the other.
    pub(super) fn commands(&self, share: Share) -> Vec<Command> {
        match self.run {
            Run::Commands(make) => make(share),
            Run::Task(words) => {
                let own = std::env::current_exe().unwrap_or_default();
                let mut command = Command::new(own);
                command.args(words);
                if words == ["setup", "tree"] {
                    command.arg(self.name.trim_start_matches(TREE));
                }
                if self.name.starts_with("lab") {
                    command.env("CORACLE_BIN", directory().join("coracle"));
                    command.env(share::VARIABLE, share.to_string());
                }
                vec![command]
            }
            Run::Suite => {
                let mut command = Command::new(directory().join("suites"));
                command
                    .arg(self.name)
                    .env("CORACLE_BIN", directory().join("coracle"))
                    .env(built::DIRECTORY, directory())
                    .env(share::VARIABLE, share.to_string());
                vec![with_signals(&command)]
            }
        }
    }
}

/// Where cargo puts programs of the profile `ci`.
fn directory() -> PathBuf {
    target().join("x86_64-unknown-linux-gnu/ci")
}

/// Tests send these signals to programs. An ignored signal is inherited, and `nohup` or a shell
/// that starts a background job ignores some.
fn with_signals(command: &Command) -> Command {
    by_way_of(&["env", "--default-signal=HUP,INT,QUIT"], command)
}

fn format(_: Share) -> Vec<Command> {
    vec![cargo(&["fmt", "--all", "--check"]), cargo(&["fmt", "--manifest-path", STAGE, "--check"])]
}

/// What the suites need. Programs of the whole workspace, because it is the packages together that
/// decide the features of what they depend on, and the unit tests are of the whole workspace.
fn build(_: Share) -> Vec<Command> {
    let mut command = cargo(&["build", "--workspace", "--locked", "--quiet"]);
    command.args(built::LINTED);
    for program in ["coracle", "suites", "guest", "nouserns"] {
        command.args(["--bin", program]);
    }
    vec![command]
}

/// Tests run programs that are examples of their crates.
fn build_tests(_: Share) -> Vec<Command> {
    let mut command = cargo(&["build", "--workspace", "--all-targets", "--locked", "--quiet"]);
    command.args(built::LINTED);
    vec![command]
}

fn units(share: Share) -> Vec<Command> {
    let mut tests = Command::new(std::env::current_exe().unwrap_or_default());
    tests.arg("units").env(built::DIRECTORY, directory()).env(share::VARIABLE, share.to_string());
    vec![with_signals(&tests)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_needs_are_parts_before() {
        for (at, part) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != part.name), "{}", part.name);
            for need in part.needs {
                let found = ALL.iter().position(|other| other.name == *need);
                let found = found.unwrap_or_else(|| panic!("{}: no part {need}", part.name));
                // Within a lane what is needed comes first, or the lane would wait for itself.
                assert!(ALL[found].lane != part.lane || found < at, "{}: {need}", part.name);
            }
        }
    }

    #[test]
    fn a_part_comes_with_what_it_needs() {
        let names: Vec<&str> = with_needs(&["posix"]).iter().map(|part| part.name).collect();
        assert_eq!(names, ["packages", "tools", "build", "posix"]);
    }

    #[test]
    fn documents_alone_need_little() {
        let usual = |change| ALL.iter().filter(|part| part.is_usual(change)).count();
        assert_eq!(usual(Change::Documents), 1);
        assert!(usual(Change::Lab) < usual(Change::Code));
        assert!(usual(Change::Code) < usual(Change::Unknown) && usual(Change::Unknown) < ALL.len());
    }
}
