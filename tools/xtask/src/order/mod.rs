//! `cargo xtask order`: writes which functions a start executes, in their order, to
//! `crates/cli/functions.txt`.
//!
//! The linker places them side by side, at the beginning of the code (`build.rs` of `cli`).
//! Otherwise the 450 kB that a start executes are spread over 7 MB, and their pages cost a sixth of
//! its time.
//! Names contain hashes of the compiler's, so the file serves one compiler and grows old with the
//! code; names that do not exist any more have no effect. `cargo xtask release` says how many do.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::debian;
use testkit::scratch::Scratch;
use testkit::users::{self, User};

use crate::map::{self, functions};
use crate::shell::{Outcome, check, read, step};
use crate::{release, tools};

const ENTERED: &str = include_str!("entered.c");

/// The containers that are made of the image `deb`, and have run once.
const MADE: &[&[&str]] = &[
    &["create", "--name=one", "deb"],
    &["run", "one", "/bin/true"],
    &["create", "--name=two", "--execmode=I1", "deb"],
    &["run", "two", "/bin/true"],
];

/// What is watched then.
const WATCHED: &[&[&str]] =
    &[&["run", "one", "/bin/true"], &["run", "two", "/bin/true"], &["run", "--rm", "deb", "true"]];

/// Builds the binary, watches it, and writes the list. The next build uses it.
pub(crate) fn run() -> Outcome {
    tools::set_up()?;
    let binary = release::build()?;
    let functions = functions(&binary)?;
    let scratch = Scratch::new("order").map_err(|error| error.to_string())?;
    let watch = Watch::new(&scratch, &binary, &functions)?;
    let mut order = Vec::new();
    let mut known = HashSet::new();
    for words in WATCHED {
        step(&words.join(" "));
        for address in watch.entered(words)? {
            if known.insert(address) {
                // Several names may have one address.
                let first = functions.partition_point(|(at, _)| *at < address);
                let names = functions[first..].iter().take_while(|(at, _)| *at == address);
                order.extend(names.map(|(_, name)| name.as_str()));
            }
        }
        println!("{} functions", known.len());
    }
    let text = order.join("\n") + "\n";
    let list = map::list();
    fs::write(&list, text).map_err(|error| format!("{}: {error}", list.display()))
}

/// Runs the binary as a user, with a breakpoint at each function.
struct Watch {
    user: User,
    home: PathBuf,
    watcher: PathBuf,
    binary: PathBuf,
    /// The addresses of all functions.
    functions: PathBuf,
    /// The addresses of those that a command has entered.
    list: PathBuf,
}

impl Watch {
    fn new(scratch: &Scratch, binary: &Path, functions: &[(u64, String)]) -> Outcome<Self> {
        let user = users::all().into_iter().next().ok_or("no user to run as")?;
        let owner = Some((user.uid, user.gid));
        let home = scratch.dir("home", owner, 0o755).map_err(|error| error.to_string())?;
        let (source, watcher) = (scratch.path().join("entered.c"), scratch.path().join("entered"));
        fs::write(&source, ENTERED).map_err(|error| error.to_string())?;
        check(Command::new("cc").args(["-O2", "-Wall", "-o"]).args([&watcher, &source]))?;
        let copy = |from: &Path, name: &str, mode| {
            let to = scratch.path().join(name);
            fs::copy(from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(mode))
                .map_err(|error| error.to_string())?;
            Ok::<_, String>(to)
        };
        let binary = copy(binary, "coracle", 0o755)?;
        let tar = copy(&debian::tar().map_err(|skip| skip.0)?, "debian.tar", 0o644)?;
        let addresses: Vec<_> =
            functions.iter().map(|(address, _)| format!("{address:x}")).collect();
        let (list, functions) = (home.join("entered"), scratch.path().join("functions"));
        fs::write(&functions, addresses.join("\n")).map_err(|error| error.to_string())?;
        let watch = Self { user, home, watcher, binary, functions, list };
        let coracle = || watch.user.command(&watch.binary, &watch.home);
        read(coracle().arg("import").arg(tar).arg("deb"))?;
        for words in MADE {
            read(coracle().args(*words))?;
        }
        Ok(watch)
    }

    /// The functions that a command enters, in the order of their first execution.
    fn entered(&self, words: &[&str]) -> Outcome<Vec<u64>> {
        let mut command = self.user.command(&self.watcher, &self.home);
        command.args([&self.list, &self.functions, &self.binary]).args(words);
        read(&mut command)?;
        let text = fs::read_to_string(&self.list).map_err(|error| error.to_string())?;
        Ok(text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).collect())
    }
}
