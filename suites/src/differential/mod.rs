//! The differential suite: small programs, one per family of system calls, run natively and in
//! every engine.
//!
//! A program prints one line for each step: its call, the result, the error's name; nothing that
//! differs between two runs. Natively it runs as root (or as a user of the tree) in a real chroot,
//! which only root can prepare; in an engine it runs as the container's root or user, started by an
//! unprivileged user. The lines have to be the same. [`known`] lists the known differences with
//! their reasons. `PITFALLS.md` lists which program tests which known fault of such engines.

mod fallbacks;
mod known;
mod native;
mod programs;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::fence::fenced;
use testkit::harness::{Suite, Wishes};
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;

use native::{Native, Who};
use programs::PROGRAMS;

const IMAGE: &str = "localhost/differential:1";
const LIMIT: Duration = Duration::from_mins(2);

/// One engine of one user.
struct World {
    person: Person,
    engine: String,
    /// Containers have trees of links to the image's files, and no index.
    linked: bool,
    /// A host directory that is bound to a path that the image lacks.
    bound: PathBuf,
    /// A file that only the host has.
    hidden: PathBuf,
}

struct Stage {
    worlds: Vec<World>,
    missing: Vec<(String, String)>,
    native: Native,
    scratch: Scratch,
}

impl Stage {
    fn set() -> Result<Self, String> {
        if !rustix::process::getuid().is_root() {
            return Err("a real chroot for comparison needs root".to_owned());
        }
        let text = |error: std::io::Error| error.to_string();
        let scratch = Scratch::new("differential").map_err(text)?;
        let image = programs::image(scratch.path())?;
        let layout = scratch.path().join("layout");
        image.built.write_layout(&layout, IMAGE).map_err(text)?;
        let hidden = scratch.path().join("only-the-host");
        std::fs::write(&hidden, "secret").map_err(text)?;
        let native = Native::prepare(scratch.path(), &image.layer, &hidden)?;
        let mut worlds = Vec::new();
        let mut missing = Vec::new();
        for person in everybody(&scratch, crate::program::coracle()).map_err(text)? {
            let done = person.run(&["load", "-q", "-i", &layout.display().to_string()]);
            if done.code() != 0 {
                return Err(format!("no test image: {done:?}"));
            }
            let bound = person.dir("bound");
            for name in ["in-binding", "another"] {
                std::fs::write(bound.join(name), "").map_err(text)?;
                person.give(&bound.join(name));
            }
            for engine in person.engines(&mut missing) {
                // What one engine shows of such a tree, the others do.
                let forms: &[bool] =
                    if engine == "I1" && !person.user.range { &[false, true] } else { &[false] };
                worlds.extend(forms.iter().map(|linked| World {
                    person: person.clone(),
                    engine: engine.clone(),
                    linked: *linked,
                    bound: bound.clone(),
                    hidden: hidden.clone(),
                }));
            }
            // Without namespaces, filters and tracing: one user is enough, since ranges of ids are
            // not used.
            if person.user.kind() == "plain" {
                match fenced(&scratch, &person.program) {
                    None => missing.push(("F".to_owned(), "no C compiler".to_owned())),
                    Some(program) => worlds.extend(["F1", "F2"].map(|engine| World {
                        person: Person { program: program.clone(), ..person.clone() },
                        engine: engine.to_owned(),
                        linked: false,
                        bound: bound.clone(),
                        hidden: hidden.clone(),
                    })),
                }
            }
        }
        Ok(Self { worlds, missing, native, scratch })
    }
}

impl World {
    /// Runs a program without the kernel features that `switches` names.
    fn run(&self, program: &str, who: Who, switches: &str) -> Finished {
        let mode = format!("--execmode={}", self.engine);
        let bind = format!("{}:/bind", self.bound.display());
        let path = format!("/bin/{program}");
        let hidden = self.hidden.display().to_string();
        let mut words = vec!["run", "--rm", &mode, "-v", &bind, "-w", "/"];
        words.extend(self.linked.then_some("--index=off"));
        if who == Who::User {
            words.extend(["-u", native::USER]);
        }
        words.extend([IMAGE, &path, &hidden]);
        let mut command = self.person.command(&words);
        command.env("CORACLE_STAGE", switches);
        run_with(&mut command, Input::Null, LIMIT)
    }

    fn compare(&self, native: &Native, program: &'static str, who: Who, switches: &str) {
        let here = self.run(program, who, switches);
        if known::is_refused(&self.engine, program, &here) {
            return;
        }
        let judged = |right: &Finished| {
            let (wanted, got) = (lines(right), lines(&here));
            assert!(!wanted.is_empty(), "natively it says nothing: {right:?}");
            let differences: Vec<_> = differences(&wanted, &got)
                .into_iter()
                .filter(|line| {
                    !known::is_known(&self.engine, self.person.user.kind(), program, who, line)
                        && !fallbacks::is_known(switches, program, line)
                })
                .collect();
            let is_right = differences.is_empty() && (right.code() == 0) == (here.code() == 0);
            (is_right, differences)
        };
        let mut right = native.run(program, who);
        let (mut is_right, mut differences) = judged(&right);
        if !is_right {
            // The native run may be the wrong one. A walk that the kernel has to begin again,
            // because somebody mounted meanwhile, counts its symbolic links twice: ELOOP for a
            // chain that is short enough.
            native.forget(program, who);
            right = native.run(program, who);
            (is_right, differences) = judged(&right);
        }
        if is_right {
            return;
        }
        let mut text = format!("{} lines differ (- native, + here):", differences.len());
        for line in differences.iter().take(60) {
            let _ = write!(text, "\n  {line}");
        }
        panic!("{text}\n  native: {}\n  here: {}\n{}", right.code(), here.code(), here.err());
    }
}

/// F1 differs from F2 in how a call is caught, not in how it is handled.
fn is_worth_it(engine: &str, program: &str) -> bool {
    engine != "F1" || ["paths", "execs", "signals", "threads"].contains(&program)
}

fn lines(done: &Finished) -> Vec<String> {
    done.out().lines().map(str::to_owned).collect()
}

/// Lines that only one of both has: the shortest edit from one to the other.
fn differences(left: &[String], right: &[String]) -> Vec<String> {
    let (rows, columns) = (left.len(), right.len());
    let mut common = vec![vec![0_u32; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = if left[row] == right[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut edits = Vec::new();
    while row < rows || column < columns {
        if row < rows && column < columns && left[row] == right[column] {
            row += 1;
            column += 1;
        } else if column == columns
            || row < rows && common[row + 1][column] >= common[row][column + 1]
        {
            edits.push(format!("- {}", left[row]));
            row += 1;
        } else {
            edits.push(format!("+ {}", right[column]));
            column += 1;
        }
    }
    edits
}

/// `--layer FILE`: no test; writes the image's layer, for a machine that cannot build it.
pub(crate) fn keep_layer() -> Option<ExitCode> {
    let file = std::env::args().skip_while(|word| word != "--layer").nth(1)?;
    Some(match programs::keep_layer(Path::new(&file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("differential");
    match &stage {
        Err(reason) => suite.skipped("differential", reason),
        Ok(stage) => {
            for (name, reason) in &stage.missing {
                suite.skipped(name, reason);
            }
            for world in &stage.worlds {
                for program in PROGRAMS {
                    if !is_worth_it(&world.engine, program) {
                        continue;
                    }
                    for who in [Who::Root, Who::User] {
                        let kind = if world.linked { "linked" } else { world.person.user.kind() };
                        let name = format!("{}::{kind}::{program}::{}", world.engine, who.name());
                        suite.case(name, move || {
                            world.compare(&stage.native, program, who, "");
                            Ok(())
                        });
                    }
                }
            }
            fallbacks::add(&mut suite, stage);
        }
    }
    suite.run(wishes)
}
