//! Measures work inside containers, beside a plain chroot, `PRoot` and fakechroot.
//!
//! One Debian tree with a compiler, git and Python is made once. The native side is `chroot` into
//! it as the measured user; Coracle's is a container of the same tree ([`super::places`]).
//! Environments take turns, round by round; medians are compared. Programs are measured
//! twice: pinned to one CPU, and free (in a virtual machine a wake-up across CPUs costs more than a
//! tracer's stop).

mod work;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use testkit::command::until;

use super::places::{Place, as_measured, container, import, native, prepared, timed, unpacked};
use super::{Bench, Line, median, milliseconds};
use work::{FORKS, Kind, WORK, Work};
use xtask::shell::{Outcome, cargo, check, has, read};
use xtask::tools;

const IMAGE: &str = "bench/engines:1";
/// A repository of 9,000 files, and a program of 40 source files.
pub(super) const PREPARE: &str = include_str!("engines/prepare.sh");

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        return Err("only root can chroot, which is what the engines are compared with".to_owned());
    }
    let tree = tree(bench)?;
    let places = places(bench, &tree)?;
    let mut lines = compare(bench, &places, true)?;
    lines.push(forks(bench, &places)?);
    lines.push(memory(bench, &places)?);
    lines.extend(compare(bench, &places, false)?);
    Ok(lines)
}

/// The tree, with what is measured.
fn tree(bench: &Bench) -> Outcome<PathBuf> {
    let packages = ["gcc", "make", "libc6-dev", "git", "python3", "perl"];
    let tree = unpacked(bench, "engines", &packages)?;
    prepared(bench, &tree, &[PREPARE])?;
    Ok(tree)
}

fn places(bench: &Bench, tree: &Path) -> Outcome<Vec<Place>> {
    import(bench, tree, IMAGE)?;
    let user = as_measured(bench);
    let mut places = vec![Place::new("native", native(bench, tree))];
    // F3 and F4 are F2; R2 and R3 are P1 and P2 inside R1.
    let modes = ["I1", "I2", "F2", "F1", "P1", "P2", "N1", "R1"];
    for mode in modes.into_iter().filter(|mode| *mode != "R1" || has("runc")) {
        let option = format!("--execmode={mode}");
        let prefix = container(bench, IMAGE, &format!("engines-{mode}"), &[&option])?;
        places.push(Place { slow: mode == "P2", ..Place::new(mode, prefix) });
    }
    if has("proot") {
        let mut prefix = user.clone();
        prefix.extend(
            ["proot", "-0", "-b", "/proc", "-b", "/dev", "-r", &tree.display().to_string()]
                .map(str::to_owned),
        );
        // Debian's PRoot is built without seccomp.
        let about = read(Command::new("proot").arg("-V")).unwrap_or_default();
        let slow = !about.contains("seccomp_filter = yes");
        let name = if slow { "PRoot without seccomp" } else { "PRoot" };
        places.push(Place { slow, ..Place::new(name, prefix) });
    }
    if has("fakechroot") {
        let mut prefix = user;
        prefix.extend(["fakechroot", "chroot", &tree.display().to_string()].map(str::to_owned));
        let timer = dynamic_timer(bench, tree)?;
        places.push(Place { timer, ..Place::new("fakechroot", prefix) });
    }
    Ok(places)
}

/// Builds this program dynamically linked, because fakechroot works by a preload library. The
/// tree's C library must be that of this system.
fn dynamic_timer(bench: &Bench, tree: &Path) -> Outcome<String> {
    let target = xtask::shell::target().join("dynamic").display().to_string();
    let words = [
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "bench",
        "--target-dir",
        &target,
    ];
    let flags = "target.x86_64-unknown-linux-gnu.rustflags=[\"-Ctarget-feature=-crt-static\"]";
    check(cargo(&words).args(["--config", flags]))?;
    let built = Path::new(&target).join("x86_64-unknown-linux-gnu/release/bench");
    let public = bench.scratch.path().join("bench-dynamic");
    fs::copy(built, &public).map_err(|error| error.to_string())?;
    bench.as_user(&bench.home, |command| {
        command.arg("cp").arg(&public).arg(tree.join("bench/dynamic"))
    })?;
    Ok("/bench/dynamic".to_owned())
}

/// Rounds of everything: each environment in turn, so that a slow minute hits all.
fn compare(bench: &Bench, places: &[Place], pinned: bool) -> Outcome<Vec<Line>> {
    // fakechroot does not see the single calls that this program makes.
    let measured = |place: &Place, work: &Work| match work.kind {
        Kind::Program => pinned || !place.slow,
        Kind::Calls => pinned && !place.is_peer() && !place.slow,
    };
    let mut times = vec![vec![Vec::new(); WORK.len()]; places.len()];
    for _ in 0..bench.rounds {
        for (place, times) in places.iter().zip(&mut times) {
            let chosen: Vec<usize> =
                (0..WORK.len()).filter(|&at| measured(place, &WORK[at])).collect();
            let work: Vec<&[&str]> = chosen.iter().map(|&at| WORK[at].words).collect();
            for (which, time) in timed(place, &work, pinned, if place.slow { 1 } else { 3 })? {
                times[chosen[which]].push(time);
            }
        }
    }
    let middle: Vec<Vec<f64>> =
        times.into_iter().map(|all| all.into_iter().map(median).collect()).collect();
    let where_ = if pinned { "one CPU" } else { "all CPUs" };
    let mut lines = Vec::new();
    for (at, work) in WORK.iter().enumerate() {
        for (place, times) in places.iter().zip(&middle).skip(1) {
            if !measured(place, work) {
                continue;
            }
            let aim = match place.name {
                "I1" => work.inside,
                "F2" => work.without_filter(),
                "P1" => work.traced,
                "N1" => 1.05,
                _ => f64::INFINITY,
            };
            lines.push(Line {
                what: format!("{} in {}, {where_}", work.what, place.name),
                against: "chroot".to_owned(),
                ours: if times[at].is_nan() { "fails".to_owned() } else { milliseconds(times[at]) },
                theirs: milliseconds(middle[0][at]),
                value: times[at] / middle[0][at],
                aim,
                unit: "",
            });
        }
    }
    Ok(lines)
}

/// Measures a fork of a small shell without `execve`, which shows the cost of the stage's pages.
fn forks(bench: &Bench, places: &[Place]) -> Outcome<Line> {
    let mut middle = Vec::new();
    for place in ["native", "I1"].iter().filter_map(|name| named(places, name)) {
        let mut times = Vec::new();
        for _ in 0..bench.rounds {
            times.extend(timed(place, &[FORKS.words], true, 3)?.into_iter().map(|(_, time)| time));
        }
        middle.push(median(times) / work::FORK_COUNT * 1e6);
    }
    let [native, inside] = middle[..] else { return Err("no two places".to_owned()) };
    Ok(Line {
        what: format!("{} in I1, one CPU", FORKS.what),
        against: "chroot".to_owned(),
        ours: format!("{inside:.1} us"),
        theirs: format!("{native:.1} us"),
        value: inside - native,
        aim: 15.0,
        unit: "us",
    })
}

/// Measures the private memory of a sleeping process beyond that of the same process in a chroot.
fn memory(bench: &Bench, places: &[Place]) -> Outcome<Line> {
    let mut sizes = Vec::new();
    for place in ["native", "I1"].iter().filter_map(|name| named(places, name)) {
        let mut command = Command::new(&place.prefix[0]);
        command.args(&place.prefix[1..]).args(["sleep", SECONDS]).stdin(Stdio::null());
        let mut starter = command.spawn().map_err(|error| error.to_string())?;
        let sleeper = until(Duration::from_secs(10), || find_sleeper(bench.user.uid))
            .ok_or("the sleeping process is not to be found")?;
        let private = private(sleeper);
        let _ = rustix::process::kill_process(sleeper, rustix::process::Signal::KILL);
        let _ = starter.wait();
        sizes.push(private?);
    }
    let [native, inside] = sizes[..] else { return Err("no two places".to_owned()) };
    Ok(Line {
        what: "private memory of `sleep` in I1".to_owned(),
        against: "chroot".to_owned(),
        ours: format!("{inside} kB"),
        theirs: format!("{native} kB"),
        value: f64::from(inside) - f64::from(native),
        aim: 64.0,
        unit: "kB",
    })
}

fn named<'a>(places: &'a [Place], name: &str) -> Option<&'a Place> {
    places.iter().find(|place| place.name == name)
}

/// How long the measured process sleeps, by which it is found.
const SECONDS: &str = "86397";

/// The user's process that executes `sleep`, not the one that started it.
fn find_sleeper(uid: u32) -> Option<Pid> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let ours = entry.metadata().ok()?.uid() == uid && comm.trim() == "sleep";
        (ours && words.ends_with(format!("{SECONDS}\0").as_bytes())).then(|| Pid::from_raw(pid))?
    })
}

/// Kilobytes of a process's private memory (`proc_pid_smaps`(5)), without pages of files, which are
/// shared or not by chance.
fn private(process: Pid) -> Outcome<u32> {
    let path = format!("/proc/{}/smaps_rollup", process.as_raw_nonzero());
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let private = text.lines().filter(|line| line.starts_with("Anonymous:"));
    Ok(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok()).sum())
}
