//! Engines without kernel namespaces against a plain chroot and `PRoot`, on the work that people do in containers.
//!
//! One Debian tree with a compiler, git and Python is made once. The native side is `chroot` into it as the measured user; ours is a
//! container of the same tree. In both, this program's own `time-loop` runs *inside* and times each piece of work, so what is compared
//! is the work and not the start of a container. Environments take turns, round by round; medians are compared. Everything is
//! measured twice: pinned to one CPU, and free (in a virtual machine a wake-up across CPUs costs more than a stop of a tracer).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::debian;

use super::{Bench, Line, median, milliseconds};
use crate::shell::{Outcome, has, read};
use crate::tools;

/// A piece of work, its command line inside, and the aim of P1 as a ratio to native.
struct Work {
    what: &'static str,
    words: &'static [&'static str],
    aim: f64,
}

const WORK: &[Work] = &[
    Work {
        what: "one `stat`, 50,000 times",
        words: &["/bench/xtask", "stat-loop", "/usr/share/doc/base-files", "50000"],
        aim: 15.0,
    },
    Work { what: "`find /usr`", words: &["find", "/usr", "-name", "nothing"], aim: 2.5 },
    Work { what: "`find /usr -size`", words: &["find", "/usr", "-size", "+100000k"], aim: 5.0 },
    Work {
        what: "`tar c /usr/share`",
        words: &["sh", "-c", "tar c /usr/share | cat > /dev/null"],
        aim: 3.0,
    },
    Work {
        what: "`git status`, 9,000 files",
        words: &["git", "-C", "/bench/git", "status", "--porcelain"],
        aim: 3.0,
    },
    Work { what: "`make`, 40 C files", words: &["make", "-s", "-B", "-C", "/bench/src"], aim: 1.6 },
    Work {
        what: "500 x fork and exec",
        words: &["sh", "-c", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"],
        aim: 1.2,
    },
    Work {
        what: "Python imports",
        words: &["python3", "-c", "import json, asyncio, email, http.client, unittest, xml.dom"],
        aim: 1.15,
    },
    Work { what: "a CPU-bound program", words: &["perl", "-e", "$x += $_ for 1..1e7"], aim: 1.005 },
];

/// Where the work runs.
struct Place {
    name: &'static str,
    /// Command line before `time-loop`.
    prefix: Vec<String>,
}

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        return Err("only root can chroot, which is what the engines are compared with".to_owned());
    }
    let tree = tree(bench)?;
    let places = places(bench, &tree)?;
    let mut lines = Vec::new();
    for pinned in [true, false] {
        lines.extend(compare(bench, &places, pinned)?);
    }
    Ok(lines)
}

/// The tree, owned by the measured user.
fn tree(bench: &Bench) -> Outcome<PathBuf> {
    let tar = debian::tar_with("bench", &["gcc", "make", "libc6-dev", "git", "python3", "perl"])
        .map_err(|skip| skip.0)?;
    let owner = Some((bench.user.uid, bench.user.gid));
    let tree =
        bench.scratch.dir("engines/tree", owner, 0o755).map_err(|error| error.to_string())?;
    let readable = bench.scratch.path().join("engines.tar");
    fs::copy(&tar, &readable).map_err(|error| error.to_string())?;
    bench.as_user(&bench.home, |command| {
        let unpack = ["tar", "-x", "--no-same-owner", "--exclude=./dev/*", "-f"];
        command.args(unpack).arg(&readable).arg("-C").arg(&tree)
    })?;
    let script = tree.join("prepare.sh");
    fs::write(&script, include_str!("engines.sh")).map_err(|error| error.to_string())?;
    bench.as_user(&bench.home, |command| command.args(["mkdir", "-p"]).arg(tree.join("bench")))?;
    bench.as_user(&bench.home, |command| {
        command.arg("cp").arg(&bench.xtask).arg(tree.join("bench/xtask"))
    })?;
    let words = native(bench, &tree);
    read(Command::new(&words[0]).args(&words[1..]).args(["sh", "/prepare.sh"]))?;
    Ok(tree)
}

/// A plain chroot as the measured user, with the host's `/dev` and `/proc` in a mount namespace that ends with it.
fn native(bench: &Bench, tree: &Path) -> Vec<String> {
    let script = "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" && tree=$1 ids=$2 && shift 2 && \
        exec chroot --userspec=\"$ids\" \"$tree\" \"$@\"";
    let ids = format!("{}:{}", bench.user.uid, bench.user.gid);
    ["unshare", "--mount", "sh", "-c", script, "sh", &tree.display().to_string(), &ids]
        .map(str::to_owned)
        .to_vec()
}

fn places(bench: &Bench, tree: &Path) -> Outcome<Vec<Place>> {
    let text = |path: &Path| path.display().to_string();
    let tar = bench.scratch.path().join("engines-image.tar");
    bench.as_user(&bench.home, |command| {
        let archive = bench.home.join("image.tar");
        command.args(["tar", "-c", "--numeric-owner", "--owner=0", "--group=0", "-f"]);
        command.arg(&archive).arg("-C").arg(tree).arg(".")
    })?;
    fs::rename(bench.home.join("image.tar"), &tar).map_err(|error| error.to_string())?;
    bench.coracle(&["import", "-q", &text(&tar), "bench/engines:1"])?;
    let mut user = vec!["setpriv".to_owned()];
    user.extend([format!("--reuid={}", bench.user.uid), format!("--regid={}", bench.user.gid)]);
    user.extend(["--clear-groups", "env", "-i", "PATH=/usr/bin:/bin"].map(str::to_owned));
    user.push(format!("HOME={}", text(&bench.home)));
    let inside = "/bench/xtask".to_owned();
    let mut native = native(bench, tree);
    native.push(inside.clone());
    let mut places = vec![Place { name: "native", prefix: native }];
    for mode in ["I1", "I2", "P1", "P2", "N1"] {
        let name = format!("engines-{mode}");
        bench.coracle(&[
            "create",
            &format!("--execmode={mode}"),
            "--name",
            &name,
            "bench/engines:1",
        ])?;
        let mut prefix = user.clone();
        prefix.extend([text(&bench.coracle), "run".to_owned(), name, inside.clone()]);
        places.push(Place { name: mode, prefix });
    }
    if has("proot") {
        let mut prefix = user;
        prefix.extend(["proot", "-0", "-b", "/proc", "-b", "/dev", "-r"].map(str::to_owned));
        prefix.extend([text(tree), inside]);
        places.push(Place { name: "PRoot", prefix });
    }
    Ok(places)
}

/// Rounds of everything: each environment in turn, so that a slow minute hits all.
fn compare(bench: &Bench, places: &[Place], pinned: bool) -> Outcome<Vec<Line>> {
    let mut times = vec![vec![Vec::new(); WORK.len()]; places.len()];
    for _ in 0..bench.rounds {
        for (place, times) in places.iter().zip(&mut times) {
            // Every call stops under these two: once is enough to know.
            let slow = matches!(place.name, "P2" | "PRoot");
            let output = read(&mut loops(place, pinned, if slow { 1 } else { 3 }))
                .map_err(|error| format!("{}: {error}", place.name))?;
            for line in output.lines() {
                if let Some((which, time)) = line.split_once(' ')
                    && let (Ok(which), Ok(time)) = (which.parse::<usize>(), time.parse::<f64>())
                {
                    times[which].push(time / 1e9);
                }
            }
        }
    }
    let middle: Vec<Vec<f64>> =
        times.into_iter().map(|all| all.into_iter().map(median).collect()).collect();
    let where_ = if pinned { "one CPU" } else { "all CPUs" };
    let mut lines = Vec::new();
    for (at, work) in WORK.iter().enumerate() {
        for (place, times) in places.iter().zip(&middle).skip(1) {
            let aim = match place.name {
                "P1" => work.aim,
                "N1" => 1.05,
                _ => f64::INFINITY,
            };
            lines.push(Line {
                what: format!("{} in {}, {where_}", work.what, place.name),
                against: "chroot".to_owned(),
                ours: milliseconds(times[at]),
                theirs: milliseconds(middle[0][at]),
                value: times[at] / middle[0][at],
                aim,
                unit: "",
            });
        }
    }
    Ok(lines)
}

fn loops(place: &Place, pinned: bool, count: usize) -> Command {
    let mut words: Vec<String> = Vec::new();
    if pinned {
        words.extend(["taskset", "-c", "1", "chrt", "-f", "10"].map(str::to_owned));
    }
    words.extend(place.prefix.iter().cloned());
    words.extend(["time-loop".to_owned(), count.to_string()]);
    for work in WORK {
        words.extend(work.words.iter().map(|word| (*word).to_owned()));
        words.push("---".to_owned());
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// `stat-loop PATH COUNT`: the call and nothing else.
pub(crate) fn stat_loop(words: &[String]) -> Outcome {
    let [path, count] = words else { return Err("a path and a count are needed".to_owned()) };
    let count: usize = count.parse().map_err(|_| "the count is no number")?;
    for _ in 0..count {
        fs::metadata(path).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
