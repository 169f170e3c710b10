//! Tests of `--isolate` and its parts, by Docker's profile. Not a promise of security, but each
//! barrier must hold.

use serde_json::json;
use testkit::command::{Input, run_with};
use testkit::intruder::intruder;
use testkit::running::Running;
use testkit::skip::Outcome;
use testkit::users::Setting;

use crate::world::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("default_shares_with_the_host", default_shares_with_the_host),
    ("isolate_keeps_apart", isolate_keeps_apart),
    ("capabilities", capabilities),
    ("filtered_calls", filtered_calls),
    ("masked_paths", masked_paths),
    ("no_new_privileges", no_new_privileges),
    ("host_name", host_name),
    ("limits_or_an_error", limits_or_an_error),
    ("join_shares_namespaces", join_shares_namespaces),
    ("join_starts_a_missing_container", join_starts_a_missing_container),
    ("namespaces_of_another", namespaces_of_another),
    ("the_callers_descriptors_are_closed", the_callers_descriptors_are_closed),
    ("exec_leaks_no_descriptors", exec_leaks_no_descriptors),
    ("an_init_knows_nothing_of_the_host", an_init_knows_nothing_of_the_host),
];

fn own(name: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{name}"))
        .map(|l| l.display().to_string())
        .unwrap_or_default()
}

fn default_shares_with_the_host(w: &World) -> Outcome {
    let facts = w.json(&[], &["facts"]);
    for name in ["pid", "ipc", "net", "uts"] {
        assert_eq!(
            facts["namespaces"][name],
            json!(own(name)),
            "MPI and profilers need the host's {name}"
        );
    }
    Ok(())
}

fn isolate_keeps_apart(w: &World) -> Outcome {
    let facts = w.json(&["--isolate", "--network=none"], &["facts"]);
    for name in ["pid", "ipc", "uts", "mnt", "user", "cgroup"] {
        assert_ne!(facts["namespaces"][name], json!(own(name)), "{name}");
    }
    assert_eq!(facts["seccomp"], json!("2"));
    assert_eq!(facts["no_new_privs"], json!("1"));
    Ok(())
}

/// Docker's fourteen capabilities.
const DOCKER: u64 = 0xa804_25fb;

fn effective(w: &World, flags: &[&str]) -> u64 {
    let facts = w.json(flags, &["facts"]);
    u64::from_str_radix(facts["cap_eff"].as_str().unwrap_or_default(), 16).expect("a mask")
}

fn capabilities(w: &World) -> Outcome {
    assert_eq!(effective(w, &["--isolate", "--network=none"]), DOCKER);
    assert_eq!(effective(w, &["--isolate", "--network=none", "--cap-drop=ALL"]), 0);
    assert_eq!(
        effective(w, &["--isolate", "--network=none", "--cap-drop", "CHOWN", "--cap-drop=net_raw"]),
        DOCKER & !1 & !(1 << 13)
    );
    assert_eq!(
        effective(w, &["--isolate", "--network=none", "--cap-add=SYS_PTRACE"]),
        DOCKER | 1 << 19
    );
    w.guest(&["--cap-add=NO_SUCH_CAP"], &["exit", "0"]).expect(125);
    Ok(())
}

fn filtered_calls(w: &World) -> Outcome {
    for guest in [["mount", "/tmp"].as_slice(), &["unshare"], &["sethostname", "x"]] {
        let done = w.guest(&["--isolate", "--network=none"], guest);
        assert!(done.expect(9).out().starts_with("error: EPERM"), "{guest:?}: {done:?}");
    }
    Ok(())
}

fn masked_paths(w: &World) -> Outcome {
    for path in ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"] {
        let done = w.guest(&["--isolate", "--network=none"], &["read", path]);
        assert!(done.stdout.is_empty() || done.code() == 9, "{path}: {done:?}");
    }
    for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/irq/x"] {
        w.guest(&["--isolate", "--network=none"], &["write", path, "x"]).expect(9);
    }
    Ok(())
}

fn no_new_privileges(w: &World) -> Outcome {
    let facts = w.json(&["--security-opt", "no-new-privileges"], &["facts"]);
    assert_eq!(facts["no_new_privs"], json!("1"));
    let facts = w
        .json(&["--isolate", "--network=none", "--security-opt", "seccomp=unconfined"], &["facts"]);
    assert_ne!(facts["namespaces"]["net"], json!(own("net")));
    Ok(())
}

fn host_name(w: &World) -> Outcome {
    assert_eq!(w.guest(&["--hostname", "my-name"], &["hostname"]).ok().line(), "my-name");
    assert_eq!(w.guest(&["-h", "other"], &["getenv", "HOSTNAME"]).ok().line(), "\"other\"");
    Ok(())
}

/// A limit that cannot be enforced is an error with a reason, never ignored.
fn limits_or_an_error(w: &World) -> Outcome {
    for flag in ["--memory=64m", "--cpus=0.5", "--pids-limit=20"] {
        let done = w.guest(&[flag], &["exit", "0"]);
        if done.code() != 0 {
            done.expect(125);
            assert!(done.err().contains("cgroup"), "{flag}: {done:?}");
        }
    }
    let cpus = w.json(&["--cpuset-cpus=0"], &["facts"]);
    assert_eq!(cpus["cpus"], json!("0"));
    for wrong in ["--memory=lots", "--cpus=x", "--shm-size=1q"] {
        w.guest(&[wrong], &["exit", "0"]).expect(125);
    }
    Ok(())
}

fn join_shares_namespaces(w: &World) -> Outcome {
    let c = w.detached(&[], &["facts", ";", "ready", ";", "sleep", "300"]);
    c.said("ready");
    let log = w.coracle(&["logs", &c.name]).ok().out();
    let first: serde_json::Value =
        serde_json::from_str(log.lines().next().unwrap_or_default()).expect("facts");
    let second = w.json(&["--join", &c.name], &["facts"]);
    assert_eq!(first["namespaces"]["user"], second["namespaces"]["user"]);
    Ok(())
}

/// Ranks that are started at once, without a designated first one.
fn join_starts_a_missing_container(w: &World) -> Outcome {
    let name = w.name("job");
    let words = w.words(&["--join", &name], &["facts", ";", "sleep", "1"]);
    let ranks: Vec<_> = (0..4).map(|_| Running::start(&mut w.command(&words))).collect();
    let mut all = Vec::new();
    for mut rank in ranks {
        assert_eq!(rank.end(LIMIT), 0, "{}", rank.text());
        let text = rank.text();
        let facts: serde_json::Value =
            serde_json::from_str(text.lines().next().unwrap_or_default()).expect("facts");
        all.push(facts["namespaces"]["user"].clone());
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    // The last one to end removed it, because of `--rm`.
    w.coracle(&["inspect", "--type=container", &name]).expect(1);
    Ok(())
}

fn namespaces_of_another(w: &World) -> Outcome {
    for flags in [[].as_slice(), &["--isolate", "--network=none"]] {
        let c = w.detached(flags, &["facts", ";", "ready", ";", "sleep", "300"]);
        c.said("ready");
        let log = w.coracle(&["logs", &c.name]).ok().out();
        let first: serde_json::Value =
            serde_json::from_str(log.lines().next().unwrap_or_default()).expect("facts");
        let of = format!("container:{}", c.name);
        let second = w.json(&[&format!("--pid={of}"), "--ipc", &of, "--network", &of], &["facts"]);
        for kind in ["user", "pid", "ipc", "net"] {
            assert_eq!(first["namespaces"][kind], second["namespaces"][kind], "{kind} {flags:?}");
        }
        assert_ne!(first["namespaces"]["mnt"], second["namespaces"]["mnt"]);
    }
    w.guest(&["--pid=container:no-such-container"], &["exit", "0"]).expect(125);
    Ok(())
}

/// The caller's open descriptors stay outside of a boundary.
fn the_callers_descriptors_are_closed(w: &World) -> Outcome {
    w.boundary()?;
    let before = "exec 5</etc/passwd 7</tmp 9<>/dev/null; ".to_owned();
    let setting = Setting { before, ..Setting::default() };
    let check = |words: &[String]| {
        let done = run_with(&mut w.command_in(&setting, words), Input::Null, LIMIT);
        let fds = crate::world::json(&done);
        let fds = fds.as_object().expect("a map");
        // The last one is the guest's own, which lists them.
        let own = |(name, target): &(&String, &serde_json::Value)| {
            name.parse::<u32>().is_ok_and(|number| number > 2)
                && !target.as_str().is_some_and(|target| target.ends_with("/fd"))
        };
        let foreign: Vec<_> = fds.iter().filter(own).collect();
        assert!(foreign.is_empty(), "{words:?}: {foreign:?}");
    };
    let isolated = ["--isolate", "--network=none"];
    check(&w.words(&isolated, &["fds"]));
    check(&w.words_for(&["run"], &isolated, &["fds"]));
    check(&w.words(&["--isolate", "--network=none", "--init"], &["fds"]));
    let c = w.detached(&isolated, &["ready", ";", "sleep", "300"]);
    let words = ["exec", &c.name, "/bin/guest", "fds"];
    check(&words.map(str::to_owned));
    Ok(())
}

/// Before another program is executed in a container, its process is one of Coracle's, which other
/// processes must not inspect, whatever their rights.
fn exec_leaks_no_descriptors(w: &World) -> Outcome {
    w.boundary()?;
    let place = w.dir("steal");
    intruder(&place)?;
    let volume = format!("{}:/intruder", place.display());
    let name = w.name("steal");
    let mode = w.mode();
    let words = ["run", "-d", "--name", &name, &mode, "--isolate", "--network=none"];
    let rest =
        ["--cap-add=SYS_PTRACE", "-v", &volume, &w.image, "/intruder/intruder", "steal", "6"];
    w.coracle(&[&words[..], &rest].concat()).ok();
    let c = crate::world::Container::named(w, &name);
    c.said("ready");
    for _ in 0..24 {
        c.exec(&[], &["exit", "0"]);
    }
    c.said("done");
    let log = w.coracle(&["logs", &name]).ok().out();
    // Where ids are emulated, the program itself is open when it is executed, and what it reads of
    // its own `/proc` is a copy.
    let is_own = |line: &str| line.ends_with(": /bin/guest") || line.contains(": /memfd:proc ");
    let stolen = log.lines().filter(|line| line.starts_with("stolen") && !is_own(line));
    let stolen: Vec<_> = stolen.take(9).collect();
    assert!(stolen.is_empty(), "{stolen:?}");
    Ok(())
}

/// The small init is a process of Coracle: it has neither the caller's variables nor the command
/// line with host paths, and no more rights than the container's program.
fn an_init_knows_nothing_of_the_host(w: &World) -> Outcome {
    w.boundary()?;
    let secret = "secret-of-the-callers";
    let flags = ["--isolate", "--network=none", "--init", "--cap-add=SYS_PTRACE"];
    let look = |file: &str| {
        let mut command = w.command(&w.words(&flags, &["read", file]));
        let done = run_with(command.env("SECRET", secret), Input::Null, LIMIT);
        done.ok().out()
    };
    assert!(!look("/proc/1/environ").contains(secret));
    let line = look("/proc/1/cmdline");
    assert!(line.starts_with("coracle-init") && !line.contains("--network"), "{line}");
    let status = look("/proc/1/status");
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let bounding = u64::from_str_radix(&field("CapBnd:"), 16).expect("a mask");
    assert_eq!(bounding, DOCKER | 1 << 19);
    assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"));
    Ok(())
}
