//! Measures start-up: an existing container beside `bwrap` and `runc`, a fresh one from a large
//! image, the bare binary, and the memory of a supervisor.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::debian;
use testkit::guest;
use testkit::image::Pack;
use testkit::layer::Layer;

use super::{Bench, Line, milliseconds};
use xtask::shell::{Outcome, has};

const COUNT: usize = 200;

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let (image, program, tar) = image(bench)?;
    bench.coracle(&["pull", "-q", "--tls-verify=false", &image])?;
    bench.coracle(&["create", "--name=bench", &image])?;
    let ours = words(&[&text(&bench.coracle), "run", "bench", &program]);
    let mut lines = Vec::new();
    let tree = unpacked(bench, &tar)?;
    if has("bwrap") {
        let peer = words(&[
            "bwrap",
            "--unshare-user",
            "--uid",
            "0",
            "--gid",
            "0",
            "--bind",
            &text(&tree),
            "/",
            "--dev-bind",
            "/proc",
            "/proc",
            "--dev",
            "/dev",
            "--ro-bind",
            "/sys",
            "/sys",
            &program,
        ]);
        lines.push(compare(
            bench,
            "run of an existing container, `true`",
            "bwrap, same namespaces",
            &ours,
            &peer,
            1.0,
        )?);
    }
    if has("runc") {
        let peer = runc(bench, &tree, &program)?;
        lines.push(compare(
            bench,
            "run of an existing container, `true`",
            "runc run, same tree",
            &ours,
            &peer,
            0.25,
        )?);
        let ours = existing(bench, "R1", &image, &program)?;
        let what = "run of an existing container in R1, `true`";
        lines.push(compare(bench, what, "runc run, same tree", &ours, &peer, 1.1)?);
    }
    lines.push(version(bench)?);
    for mode in ["I1", "I2", "P1", "F2"] {
        let ours = existing(bench, mode, &image, &program)?;
        let what = format!("run of an existing container in {mode}, `true`");
        lines.push(difference(bench, what, ours, words(&["/bin/true"]), 5.0)?);
    }
    lines.extend(fresh(bench)?);
    lines.push(supervisor(bench, &image, &program)?);
    lines.push(parent(bench)?);
    Ok(lines)
}

/// Debian with its `true`, or the guest program if there is no Debian tree.
fn image(bench: &Bench) -> Outcome<(String, String, PathBuf)> {
    let name = format!("{}/bench/start:1", bench.registry.host());
    let target = bench.registry.target();
    let push = |built| target.image("bench/start", "1", &built).map_err(|error| error.to_string());
    match debian::tar() {
        Ok(tar) => {
            push(debian::image().map_err(|skip| skip.0)?.build())?;
            Ok((name, "/bin/true".to_owned(), tar))
        }
        Err(reason) => {
            println!("no Debian ({reason}): the guest program stands in");
            let tar = bench.scratch.path().join("guest.tar");
            fs::write(&tar, guest::layer().finish()).map_err(|error| error.to_string())?;
            push(guest::image().build())?;
            Ok((name, "/bin/guest".to_owned(), tar))
        }
    }
}

fn unpacked(bench: &Bench, tar: &Path) -> Outcome<PathBuf> {
    let owner = Some((bench.user.uid, bench.user.gid));
    let tree =
        bench.scratch.dir("bundle/rootfs", owner, 0o755).map_err(|error| error.to_string())?;
    bench.scratch.dir("bundle", owner, 0o755).map_err(|error| error.to_string())?;
    let readable = bench.scratch.path().join("tree.tar");
    fs::copy(tar, &readable).map_err(|error| error.to_string())?;
    bench.as_user(&bench.home, |command| {
        command
            .args(["tar", "-x", "--no-same-owner", "--exclude=./dev/*", "-f"])
            .arg(&readable)
            .arg("-C")
            .arg(&tree)
    })?;
    Ok(tree)
}

fn runc(bench: &Bench, tree: &Path, program: &str) -> Outcome<Vec<String>> {
    let bundle = tree.parent().ok_or("no bundle")?;
    bench.as_user(&bench.home, |command| {
        command.args(["runc", "spec", "--rootless", "--bundle"]).arg(bundle)
    })?;
    let file = bundle.join("config.json");
    let text_of = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let mut config: Value = serde_json::from_str(&text_of).map_err(|error| error.to_string())?;
    config["process"]["terminal"] = Value::Bool(false);
    config["process"]["args"] = serde_json::json!([program]);
    fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    // The name is free again for each run, since each ends before the next begins.
    let state = text(&bench.home.join("runc"));
    Ok(words(&["runc", "--root", &state, "run", "--bundle", &text(bundle), "bench"]))
}

/// A container for a mode that has run once: the words that run it again.
fn existing(bench: &Bench, mode: &str, image: &str, program: &str) -> Outcome<Vec<String>> {
    let (name, mode) = (format!("bench-{mode}"), format!("--execmode={mode}"));
    bench.coracle(&["create", &mode, "--name", &name, image])?;
    bench.coracle(&["run", &name, program])?;
    Ok(words(&[&text(&bench.coracle), "run", &name, program]))
}

fn version(bench: &Bench) -> Outcome<Line> {
    let ours = words(&[&text(&bench.coracle), "--version"]);
    difference(bench, "`--version`".to_owned(), ours, words(&["/bin/true"]), 2.0)
}

/// The difference of two commands in milliseconds.
fn difference(
    bench: &Bench,
    what: String,
    ours: Vec<String>,
    peer: Vec<String>,
    aim: f64,
) -> Outcome<Line> {
    let times = bench.medians(COUNT * 2, &[ours, peer])?;
    let line = Line {
        what,
        against: "/bin/true, difference".to_owned(),
        ours: milliseconds(times[0]),
        theirs: milliseconds(times[1]),
        value: (times[0] - times[1]) * 1000.0,
        aim,
        unit: "ms",
    };
    println!("{}: {:.2} ms more", line.what, line.value);
    Ok(line)
}

/// Measures making and running a container from an image of 40,000 files: with an overlay, and in a
/// mode without, where each container has its own tree, which is made on all CPUs.
fn fresh(bench: &Bench) -> Outcome<Vec<Line>> {
    let mut layer = Layer::new();
    for n in 0..40_000 {
        if n % 200 == 0 {
            layer = layer.dir(&format!("many/{:03}", n / 200));
        }
        layer = layer.file(&format!("many/{:03}/{n}", n / 200), 0o644, n.to_string());
    }
    let image = guest::image().packed(layer.finish(), Pack::Gzip);
    let target = bench.registry.target();
    target.image("bench/many", "1", &image.build()).map_err(|error| error.to_string())?;
    let name = format!("{}/bench/many:1", bench.registry.host());
    bench.coracle(&["pull", "-q", "--tls-verify=false", &name])?;
    let mut lines = Vec::new();
    let unpinned = unpinned();
    let unpinned: Vec<&str> = unpinned.iter().map(String::as_str).collect();
    for (before, options, words_of, count, aim) in [
        (&[][..], &["--rm", "--execmode=N1"][..], "first `true`", COUNT, 10.0),
        (&unpinned[..], &["--execmode=I1"], "without overlay (I1), first `true`", 10, 500.0),
    ] {
        let run = [&["run"], options, &[&name, "/bin/guest", "exit", "0"]].concat();
        let ours = words(&[before, &[text(&bench.coracle).as_str()], &run[..]].concat());
        // The image's tree is made once.
        bench.coracle(&run)?;
        let times = bench.medians(count, &[ours])?;
        lines.push(Line {
            what: format!("fresh container from a stored image of 40,000 files, {words_of}"),
            against: String::new(),
            ours: milliseconds(times[0]),
            theirs: String::new(),
            value: times[0] * 1000.0,
            aim,
            unit: "ms",
        });
    }
    Ok(lines)
}

/// Measures the memory of the supervisor of a container in the background.
fn supervisor(bench: &Bench, image: &str, _program: &str) -> Outcome<Line> {
    let sleep = ["run", "-d", "--name=member", image, "sleep", "60"];
    bench.coracle(&sleep)?;
    // A supervisor gives memory back after two seconds without an event.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let pid = bench.coracle(&["inspect", "--format={{.State.Pid}}", "member"])?;
    let field = |pid: &str, name: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let parent = field(pid.trim(), "PPid:");
    let member: f64 = field(&parent, "VmRSS:").parse().map_err(|_| "no supervisor was found")?;
    let private = field(&parent, "RssAnon:");
    bench.coracle(&["rm", "-f", "member"])?;
    Ok(Line {
        what: "resident memory of a detached container's supervisor at rest".to_owned(),
        against: String::new(),
        ours: format!("{:.2} MB, of it {private} kB its own", member / 1024.0),
        theirs: String::new(),
        value: member / 1024.0,
        aim: 2.0,
        unit: "MB",
    })
}

/// Measures the memory of the process that stays in front of a program in the foreground.
fn parent(bench: &Bench) -> Outcome<Line> {
    // It gives memory back after a second without an event.
    let script = "\"$0\" run bench /bin/sleep 8 & sleep 4; cat /proc/$!/status; kill $!; wait";
    let status = bench
        .as_user(&bench.home, |command| command.args(["sh", "-c", script]).arg(&bench.coracle))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().parse::<f64>()
    };
    let (Ok(all), Ok(own)) = (field("VmRSS:"), field("RssAnon:")) else {
        return Err("the parent was not found".to_owned());
    };
    Ok(Line {
        what: "own memory of the parent of a program in the foreground, with a log".to_owned(),
        against: String::new(),
        ours: format!("{own} kB, and {:.0} kB of the program file", all - own),
        theirs: String::new(),
        value: own,
        aim: 250.0,
        unit: "kB",
    })
}

/// The words before a command that may use all CPUs.
pub(super) fn unpinned() -> Vec<String> {
    let all = std::thread::available_parallelism().map_or(1, NonZero::get);
    vec!["taskset".to_owned(), "-c".to_owned(), format!("0-{}", all - 1)]
}

fn compare(
    bench: &Bench,
    what: &str,
    against: &str,
    ours: &[String],
    peer: &[String],
    aim: f64,
) -> Outcome<Line> {
    let times = bench.medians(COUNT, &[ours.to_vec(), peer.to_vec()])?;
    let line = Line {
        what: what.to_owned(),
        against: against.to_owned(),
        ours: milliseconds(times[0]),
        theirs: milliseconds(times[1]),
        value: times[0] / times[1],
        aim,
        unit: "",
    };
    println!("{what} against {against}: {} / {} = {:.2}", line.ours, line.theirs, line.value);
    Ok(line)
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
