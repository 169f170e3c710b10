//! Walks the program's table of options that not every mode can carry out: each is run in each
//! mode. It has its effect, or a warning names it, or the run is refused with its name.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::command::Finished;
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::skip::Outcome;

use super::same::with_image;
use super::world::{Case, Container, World, json};

pub(crate) const CASES: &[(&str, Case)] =
    &[("answers", answers), ("no_new_privileges_of_set_id_programs", set_id_programs)];

/// What shows an option's effect.
struct Probe {
    /// The option's name in the table.
    flag: &'static str,
    /// How it is given. `DIRECTORY`, `PROFILE`, `NETWORK` and `OTHER` stand for a directory of
    /// the host, a profile of system calls, a network, and a running container with namespaces of
    /// its own.
    words: &'static [&'static str],
    /// What it needs besides, where the mode can do it.
    more: &'static [&'static str],
    guest: &'static [&'static str],
    /// Whether the effect is seen.
    seen: fn(&World, &Finished) -> bool,
}

const fn probe(
    flag: &'static str,
    words: &'static [&'static str],
    guest: &'static [&'static str],
    seen: fn(&World, &Finished) -> bool,
) -> Probe {
    Probe { flag, words, more: &[], guest, seen }
}

/// Whether a namespace is not the suite's.
fn is_apart(done: &Finished, name: &str) -> bool {
    let own = std::fs::read_link(format!("/proc/self/ns/{name}")).expect("a namespace");
    done.code() == 0 && json(done)["namespaces"][name] != json!(own.display().to_string())
}

fn fact(done: &Finished, name: &str) -> Value {
    if done.code() == 0 { json(done)[name].clone() } else { Value::Null }
}

const FACTS: &[&str] = &["facts"];
const NO_NETWORK: &[&str] = &["--network=none"];

/// Cases `shared` of the suite `network` share each kind of network in each mode.
const SHARED: [&str; 2] = [
    "--network=container of one in a network namespace",
    "--network=container of one whose addresses are translated",
];

/// Networks need programs of the host to be seen; the group `network` looks at their effect.
const IN_NETWORK: [&str; 3] = ["--publish", "--network=private", "--network with a name"];

const PROBES: &[Probe] = &[
    Probe {
        more: NO_NETWORK,
        ..probe("--isolate", &["--isolate"], FACTS, |_, done| {
            ["pid", "ipc", "uts", "cgroup"].into_iter().all(|name| is_apart(done, name))
        })
    },
    probe("--hostname", &["--hostname=box"], &["hostname"], |_, done| done.out() == "box\n"),
    probe("--pid", &["--pid=private"], FACTS, |_, done| is_apart(done, "pid")),
    probe("--ipc", &["--ipc=private"], FACTS, |_, done| is_apart(done, "ipc")),
    probe("--uts", &["--uts=private"], FACTS, |_, done| is_apart(done, "uts")),
    probe("--cgroupns", &["--cgroupns=private"], FACTS, |_, done| is_apart(done, "cgroup")),
    probe("create --join", &["--join=OTHER"], FACTS, |_, done| is_apart(done, "ipc")),
    probe("--publish", &["-p", "127.0.0.1::80"], FACTS, |_, _| true),
    probe("--network=private", &["--network=private"], FACTS, |_, _| true),
    probe("--network=none", NO_NETWORK, FACTS, |_, done| is_apart(done, "net")),
    probe("--network with a name", &["--network=NETWORK"], FACTS, |_, _| true),
    probe("--read-only", &["--read-only"], &["write", "/x", ""], |_, done| {
        done.out().contains("EROFS")
    }),
    probe("--cap-add or --cap-drop", &["--cap-drop=CHOWN"], FACTS, |_, done| {
        let mask = fact(done, "cap_eff");
        let mask = u64::from_str_radix(mask.as_str().unwrap_or("1"), 16);
        mask.is_ok_and(|mask| mask & 1 == 0)
    }),
    probe("--security-opt seccomp", &["--security-opt=seccomp=PROFILE"], FACTS, |_, done| {
        fact(done, "seccomp") == "2"
    }),
    // A warning says what the host lacks of control groups: `isolate::limits_or_a_warning`.
    probe("--memory, --cpus or --pids-limit", &["--memory=64m"], FACTS, |_, done| done.code() == 0),
    probe(
        "--security-opt no-new-privileges",
        &["--security-opt=no-new-privileges"],
        FACTS,
        |_, done| fact(done, "no_new_privs") == "1",
    ),
    probe("--privileged", &["--privileged"], FACTS, |_, done| done.code() == 0),
    probe("--shm-size", &["--shm-size=3m"], &["statfs", "/dev/shm"], |_, done| {
        fact(done, "size") == 3 << 20
    }),
    Probe {
        more: NO_NETWORK,
        ..probe(
            "--sysctl",
            &["--sysctl=net.core.somaxconn=77"],
            &["read", "/proc/sys/net/core/somaxconn"],
            |_, done| done.out().trim() == "77",
        )
    },
    probe("--group-add", &["--group-add=77"], &["ids"], |_, done| {
        fact(done, "groups").as_array().is_some_and(|all| all.contains(&json!(77)))
    }),
    probe(
        "--oom-score-adj",
        &["--oom-score-adj=500"],
        &["read", "/proc/self/oom_score_adj"],
        |_, done| done.out().trim() == "500",
    ),
    probe("--ulimit", &["--ulimit=nofile=100:100"], &["limits"], |_, done| {
        let limits = done.out();
        let files = limits.lines().find(|line| line.starts_with("Max open files"));
        files.is_some_and(|line| line.split_whitespace().nth(3) == Some("100"))
    }),
    probe("--volume", &["-v", "DIRECTORY:/m"], &["list", "/m"], |_, done| {
        done.out().contains("of-the-host")
    }),
    probe(
        "a volume's option 'private'",
        &["-v", "DIRECTORY:/m:private"],
        &["list", "/m"],
        |_, done| done.out().contains("of-the-host"),
    ),
    probe("--tmpfs", &["--tmpfs=/m"], &["write", "/m/x", ""], |_, done| done.code() == 0),
];

/// The table's line for the mode of a world.
fn table(w: &World) -> BTreeMap<String, String> {
    let done = w.coracle(&["doctor", "--format", "json"]);
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let engines = report["engines"].as_array().expect("the modes");
    let engine = engines.iter().find(|engine| engine["mode"] == w.engine.as_str());
    let options = engine.expect("the mode")["options"].clone();
    serde_json::from_value(options).expect("answers by options")
}

fn answers(w: &World) -> Outcome {
    let table = table(w);
    let known: Vec<&str> = PROBES.iter().map(|probe| probe.flag).collect();
    for flag in table.keys() {
        let flag = flag.as_str();
        assert!(
            known.contains(&flag) || SHARED.contains(&flag),
            "no probe shows the effect of {flag}"
        );
    }
    let directory = w.dir("option");
    w.file(&directory, "of-the-host", "");
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["acct"], "action": "SCMP_ACT_ERRNO"}]}"#;
    let profile = w.file(&directory, "profile", profile).display().to_string();
    let directory = directory.display().to_string();
    let apart = ["--network=none", "--ipc=private"];
    let other = w.has_overlay().then(|| w.detached(&apart, &["sleep", "60000"]));
    let other = other.as_ref().map_or("none-such", |container| &container.name);
    let network = w.name("options");
    w.coracle(&["network", "create", &network]).ok();
    for probe in PROBES {
        let answer = table.get(probe.flag).unwrap_or_else(|| panic!("no line for {}", probe.flag));
        if answer == "done" && IN_NETWORK.contains(&probe.flag) {
            continue;
        }
        let more = if answer == "done" { probe.more } else { &[] };
        let words: Vec<String> = [probe.words, more]
            .concat()
            .iter()
            .map(|word| {
                let word = word.replace("DIRECTORY", &directory);
                let word = word.replace("PROFILE", &profile).replace("NETWORK", &network);
                word.replace("OTHER", other)
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let made = Container::named(w, &w.name("option"));
        let create = [&["--name", &made.name], &words[..]].concat();
        let done = if probe.flag.starts_with("create") {
            w.coracle(&w.words_for(&["create"], &create, probe.guest)).ok();
            w.coracle(&["start", "-a", &made.name])
        } else {
            w.guest(&words, probe.guest)
        };
        // What messages may call it.
        let names: Vec<&str> = probe.words[0].split('=').take(1).chain([probe.flag]).collect();
        let told = names.iter().any(|name| done.err().contains(name));
        let holds = match answer.as_str() {
            "done" => (probe.seen)(w, &done) && (!told || done.err().contains("without effect")),
            "warned" => done.code() == 0 && told,
            // `run` and `start` fail with different codes.
            "refused" => matches!(done.code(), 1 | 125) && told,
            other => panic!("{}: {other}", probe.flag),
        };
        assert!(holds, "{} is {answer} in {}: {done:?}", probe.flag, w.engine);
    }
    w.coracle(&["network", "rm", &network]).ok();
    Ok(())
}

/// A set-id program does not change ids.
fn set_id_programs(w: &World) -> Outcome {
    if !w.has_ids() {
        testkit::skip!("one mapped id of the kernel's: a program can have no other");
    }
    let bytes = std::fs::read(testkit::guest::program()).expect("the guest program");
    let raised = Layer::new().file("bin/raised", 0o6755, bytes);
    let image = Image::new().layer(testkit::guest::layer()).layer(raised);
    let (w, image) = with_image(w, &image, "raised");
    let ids = |options: &[&str]| {
        let first = ["run", "--rm", &w.mode(), "-u", "33:33"].map(str::to_owned);
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let done = w.coracle(&[&first, options, &[&image, "/bin/raised", "ids"]].concat());
        let ids = json(&done);
        (ids["uid"].clone(), ids["gid"].clone())
    };
    assert_eq!(ids(&[]), (json!([33, 0, 0]), json!([33, 0, 0])));
    let kept = (json!([33, 33, 33]), json!([33, 33, 33]));
    for option in ["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"] {
        assert_eq!(ids(&["--security-opt", option]), kept, "{option}");
    }
    // Of a container that runs, too.
    let container = Container::named(&w, &w.name("raised"));
    let mode = w.mode();
    let words = ["run", "-d", "--name", &container.name, &mode, "--security-opt=no-new-privileges"];
    w.coracle(&[&words[..], &[&image, "/bin/guest", "sleep", "60000"]].concat()).ok();
    let done = w.coracle(&["exec", "-u", "33:33", &container.name, "/bin/raised", "ids"]);
    assert_eq!((json(&done)["uid"].clone(), json(&done)["gid"].clone()), kept);
    Ok(())
}
