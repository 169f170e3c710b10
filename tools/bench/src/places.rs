//! Where work is measured: a Debian tree, a plain chroot into it, and containers of its image.
//!
//! In each of them this program's own `time-loop` runs *inside* and times each piece of work, so
//! the start of a container does not count.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::debian;

use super::Bench;
use xtask::shell::{Outcome, read};

/// Where the work runs.
pub(super) struct Place {
    pub(super) name: &'static str,
    /// Command line before a program inside.
    pub(super) prefix: Vec<String>,
    /// The program there that times the work.
    pub(super) timer: String,
    /// Every call stops: such a place is measured once, on one processor, and without single calls.
    pub(super) slow: bool,
}

impl Place {
    pub(super) fn new(name: &'static str, prefix: Vec<String>) -> Self {
        Self { name, prefix, timer: TIMER.to_owned(), slow: false }
    }

    /// A peer may fail, which is shown; Coracle and the native side must not.
    pub(super) fn is_peer(&self) -> bool {
        self.timer != TIMER || self.name.starts_with("PRoot")
    }
}

/// This program in the tree.
pub(super) const TIMER: &str = "/bench/bench";

/// Debian with these packages in a directory of the scratch, owned by the measured user.
pub(super) fn unpacked(bench: &Bench, name: &str, packages: &[&str]) -> Outcome<PathBuf> {
    let tar = debian::tar_with(name, packages).map_err(|skip| skip.0)?;
    let owner = Some((bench.user.uid, bench.user.gid));
    let tree = bench
        .scratch
        .dir(&format!("{name}/tree"), owner, 0o755)
        .map_err(|error| error.to_string())?;
    let readable = bench.scratch.path().join(format!("{name}.tar"));
    fs::copy(&tar, &readable).map_err(|error| error.to_string())?;
    bench.as_user(&bench.home, |command| {
        let unpack = ["tar", "-x", "--no-same-owner", "--exclude=./dev/*", "-f"];
        command.args(unpack).arg(&readable).arg("-C").arg(&tree)
    })?;
    Ok(tree)
}

/// Puts this program into the tree, and runs scripts in it.
pub(super) fn prepared(bench: &Bench, tree: &Path, scripts: &[&str]) -> Outcome {
    bench.as_user(&bench.home, |command| command.args(["mkdir", "-p"]).arg(tree.join("bench")))?;
    bench.as_user(&bench.home, |command| {
        command.arg("cp").arg(&bench.own).arg(tree.join("bench/bench"))
    })?;
    for text in scripts {
        fs::write(tree.join("prepare.sh"), text).map_err(|error| error.to_string())?;
        let words = native(bench, tree);
        read(Command::new(&words[0]).args(&words[1..]).args(["sh", "/prepare.sh"]))?;
        fs::remove_file(tree.join("prepare.sh")).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A plain chroot as the measured user, with the host's `/dev`, `/proc` and `/sys` mounted in a
/// mount namespace of its own.
pub(super) fn native(bench: &Bench, tree: &Path) -> Vec<String> {
    let script = "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" && mount --rbind /sys \"$1/sys\" && tree=$1 ids=$2 && shift 2 && \
        exec chroot --userspec=\"$ids\" \"$tree\" \"$@\"";
    let ids = format!("{}:{}", bench.user.uid, bench.user.gid);
    ["unshare", "--mount", "sh", "-c", script, "sh", &tree.display().to_string(), &ids]
        .map(str::to_owned)
        .to_vec()
}

/// Makes an image of a tree; all of it belongs to root there.
pub(super) fn import(bench: &Bench, tree: &Path, image: &str) -> Outcome {
    let tar = bench.home.join("image.tar");
    bench.as_user(&bench.home, |command| {
        command.args(["tar", "-c", "--numeric-owner", "--owner=0", "--group=0", "-f"]);
        command.arg(&tar).arg("-C").arg(tree).arg(".")
    })?;
    bench.coracle(&["import", "-q", &tar.display().to_string(), image])?;
    fs::remove_file(&tar).map_err(|error| error.to_string())
}

/// The words before a command of the measured user.
pub(super) fn as_measured(bench: &Bench) -> Vec<String> {
    let mut words = vec!["setpriv".to_owned()];
    words.extend([format!("--reuid={}", bench.user.uid), format!("--regid={}", bench.user.gid)]);
    words.extend(["--clear-groups", "env", "-i", "PATH=/usr/bin:/bin"].map(str::to_owned));
    words.push(format!("HOME={}", bench.home.display()));
    words
}

/// Makes a container, and gives the words that run something in it.
pub(super) fn container(
    bench: &Bench,
    image: &str,
    name: &str,
    options: &[&str],
) -> Outcome<Vec<String>> {
    bench.coracle(&[&["create", "--name", name], options, &[image]].concat())?;
    let mut words = as_measured(bench);
    words.extend([bench.coracle.display().to_string(), "run".to_owned(), name.to_owned()]);
    Ok(words)
}

/// The output of one run of `time-loop` inside: which work, and seconds.
pub(super) fn timed(
    place: &Place,
    work: &[&[&str]],
    pinned: bool,
    count: usize,
) -> Outcome<Vec<(usize, f64)>> {
    let times = looped(place, "time-loop", work, pinned, count)?;
    Ok(times.into_iter().map(|(which, nanoseconds)| (which, nanoseconds / 1e9)).collect())
}

/// The output of one run of one of this program's loops inside: which work, and a number.
pub(super) fn looped(
    place: &Place,
    kind: &str,
    work: &[&[&str]],
    pinned: bool,
    count: usize,
) -> Outcome<Vec<(usize, f64)>> {
    let mut words: Vec<String> = Vec::new();
    if pinned {
        words.extend(["taskset", "-c", "1", "chrt", "-f", "10"].map(str::to_owned));
    }
    words.extend(place.prefix.iter().cloned());
    words.extend([place.timer.clone(), kind.to_owned(), count.to_string()]);
    for work in work {
        words.extend(work.iter().map(|&word| word.to_owned()));
        words.push("---".to_owned());
    }
    let done = Command::new(&words[0]).args(&words[1..]).output();
    let done = done.map_err(|error| format!("{}: {error}", place.name))?;
    let output = String::from_utf8_lossy(&done.stdout);
    let is_told = place.is_peer() && output.contains(' ');
    if !(done.status.success() || is_told) {
        let errors = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{}: {}", place.name, errors.trim_end()));
    }
    Ok(super::inside::numbers(&output))
}
