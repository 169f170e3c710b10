//! Tests of `--isolate` and its parts, by Docker's profile. Not a promise of security, but each
//! barrier must hold.

use serde_json::json;
use testkit::command::{Input, run_with};
use testkit::intruder::intruder;
use testkit::running::Running;
use testkit::skip::Outcome;
use testkit::users::Setting;

use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("default_shares_with_the_host", default_shares_with_the_host),
    ("isolate_keeps_apart", isolate_keeps_apart),
    ("capabilities", capabilities),
    ("filtered_calls", filtered_calls),
    ("masked_paths", masked_paths),
    ("no_new_privileges", no_new_privileges),
    ("host_name", host_name),
    ("own_network_own_name", own_network_own_name),
    ("shared_memory_of_another", shared_memory_of_another),
    ("memory_has_the_size", memory_has_the_size),
    ("limits_or_a_warning", limits_or_a_warning),
    ("options_of_dockers", options_of_dockers),
    ("join_shares_namespaces", join_shares_namespaces),
    ("join_starts_a_missing_container", join_starts_a_missing_container),
    ("join_outlives_the_container", join_outlives_the_container),
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

pub(crate) fn host_name(w: &World) -> Outcome {
    assert_eq!(w.guest(&["--hostname", "my-name"], &["hostname"]).ok().line(), "my-name");
    assert_eq!(w.guest(&["-h", "other"], &["getenv", "HOSTNAME"]).ok().line(), "\"other\"");
    for file in ["/proc/sys/kernel/hostname", "/etc/hostname"] {
        assert_eq!(w.guest(&["-h", "my-name"], &["read", file]).ok().out(), "my-name\n", "{file}");
    }
    let c = w.detached(&["-h", "named"], &["ready", ";", "sleep", "300"]);
    c.said("ready");
    assert_eq!(c.exec(&[], &["hostname"]).ok().line(), "named");
    let long = "x".repeat(65);
    let said = w.guest(&["-h", &long], &["exit", "0"]).expect(125).err();
    assert!(said.contains("at most 64"), "{said}");
    Ok(())
}

/// A limit that cannot be enforced is told, and an error with `--strict`.
fn limits_or_a_warning(w: &World) -> Outcome {
    for flag in ["--memory=64m", "--cpus=0.5", "--pids-limit=20", "--cpu-shares=512"] {
        let done = w.guest(&[flag], &["exit", "3"]);
        done.expect(3);
        let name = flag.split('=').next().unwrap_or(flag);
        let strict = w.guest(&[flag, "--strict"], &["exit", "3"]);
        if done.err().contains(&format!("without effect: {name}")) {
            strict.expect(125);
            assert!(strict.err().contains("cgroup"), "{flag}: {strict:?}");
        } else {
            strict.expect(3);
        }
    }
    let cpus = w.json(&["--cpuset-cpus=0"], &["facts"]);
    assert_eq!(cpus["cpus"], json!("0"));
    for wrong in ["--memory=lots", "--cpus=x", "--shm-size=1q"] {
        w.guest(&[wrong], &["exit", "0"]).expect(125);
    }
    Ok(())
}

/// None of Docker's options is ignored: each is applied, or told of and shown.
fn options_of_dockers(w: &World) -> Outcome {
    let container = Container::named(w, &w.name("docker"));
    let flags = [
        "--name",
        &container.name,
        "--privileged",
        "--oom-score-adj=500",
        "--health-cmd=true",
        "--health-interval=2s",
        "--blkio-weight=300",
        "--runtime=runc",
        "--sysctl=net.core.somaxconn=77",
        "--annotation=a=b",
        "--expose=80-81/udp",
        "--memory-swap=-1",
    ];
    let done = w.coracle(&w.words_for(&["run"], &flags, &["read", "/proc/self/oom_score_adj"]));
    assert_eq!(done.ok().line(), "500");
    for told in ["--privileged", "--health-cmd", "--blkio-weight", "--runtime", "--sysctl"] {
        assert!(done.err().contains(told), "{told}: {done:?}");
    }
    let shown = w.coracle(&["inspect", &container.name]).ok().out();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let shown = &shown[0];
    let host = &shown["HostConfig"];
    assert_eq!(host["Privileged"], json!(true));
    assert_eq!(host["OomScoreAdj"], json!(500));
    assert_eq!(host["BlkioWeight"], json!(300));
    assert_eq!(host["Runtime"], json!("runc"));
    assert_eq!(host["MemorySwap"], json!(-1));
    assert_eq!(host["Sysctls"], json!({"net.core.somaxconn": "77"}));
    assert_eq!(host["Annotations"], json!({"a": "b"}));
    assert_eq!(shown["Config"]["ExposedPorts"], json!({"80/udp": {}, "81/udp": {}}));
    let health = json!({"Test": ["CMD-SHELL", "true"], "Interval": 2_000_000_000});
    assert_eq!(shown["Config"]["Healthcheck"], health);
    for flag in ["--privileged", "--health-cmd=x", "--oom-score-adj=-900"] {
        w.guest(&["--strict", flag], &["exit", "0"]).expect(125);
    }
    w.guest(&["--link=a"], &["exit", "0"]).expect(125);
    let done = w.guest(&["--runtime=nosuch"], &["exit", "0"]);
    assert!(done.expect(125).err().contains("unknown or invalid runtime name: nosuch"), "{done:?}");
    if w.has_overlay() {
        let setting = "net.ipv4.ip_unprivileged_port_start";
        let flags = ["--strict", "--network=none", &format!("--sysctl={setting}=77")];
        let path = format!("/proc/sys/{}", setting.replace('.', "/"));
        assert_eq!(w.guest(&flags, &["read", &path]).ok().line(), "77");
    }
    w.guest(&["--isolate", "--privileged"], &["exit", "0"]).expect(125);
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

/// Ranks that end at once: while some go into the container, the last of the others removes it.
fn join_outlives_the_container(w: &World) -> Outcome {
    let name = w.name("job");
    let words = w.words(&["--join", &name], &["exit", "0"]);
    for _ in 0..3 {
        let ranks: Vec<_> = (0..12).map(|_| Running::start(&mut w.command(&words))).collect();
        for mut rank in ranks {
            assert_eq!(rank.end(LIMIT), 0, "{}", rank.text());
        }
    }
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

/// Without the host's network nothing knows the host's name.
fn own_network_own_name(w: &World) -> Outcome {
    w.boundary()?;
    let c = w.detached(&["--network=none"], &["hostname", ";", "ready", ";", "sleep", "300"]);
    c.said("ready");
    let id = w.coracle(&["inspect", "--format={{.Id}}", &c.name]).ok().line();
    let log = w.coracle(&["logs", &c.name]).ok().out();
    assert_eq!(log.lines().next(), id.get(..12));
    let same = w.guest(&["--network=none", "--uts=host"], &["hostname"]).ok().line();
    assert_eq!(same, w.guest(&[], &["hostname"]).ok().line());
    Ok(())
}

/// A container that shares another's IPC shares its memory, too.
fn shared_memory_of_another(w: &World) -> Outcome {
    w.boundary()?;
    for flags in [["--ipc=private"].as_slice(), &["--isolate", "--network=none"]] {
        let write = ["write", "/dev/shm/coracle-ipc", "seen", ";", "ready", ";", "sleep", "300"];
        let c = w.detached(flags, &write);
        c.said("ready");
        for flag in [format!("--ipc=container:{}", c.name), format!("--join={}", c.name)] {
            let done = w.guest(&[&flag], &["read", "/dev/shm/coracle-ipc"]);
            assert_eq!(done.ok().out(), "seen", "{flags:?} {flag}");
        }
        let of = format!("--ipc=container:{}", c.name);
        let both = w.guest(&[&of, "--shm-size=1m"], &["exit", "0"]).expect(125).err();
        assert!(both.contains("--shm-size"), "{both}");
    }
    Ok(())
}

/// Memory with a size, or an error that says why not; or the host's, which has the size.
fn memory_has_the_size(w: &World) -> Outcome {
    let said = w.guest(&["--shm-size=3m"], &["statfs", "/dev/shm"]);
    said.ok();
    let size = crate::contract::world::json(&said)["size"].as_u64();
    if w.has_overlay() {
        assert_eq!(size, Some(3 << 20));
        return Ok(());
    }
    assert!(
        size.is_some_and(|size| size >= 3 << 20) && said.err().contains("--shm-size"),
        "{said:?}"
    );
    let done = w.guest(&["--shm-size=90000g"], &["exit", "0"]);
    let text = done.expect(125).err();
    assert!(text.contains("/dev/shm") && text.contains("hint:"), "{text}");
    Ok(())
}

/// The caller's open descriptors stay outside of a boundary.
fn the_callers_descriptors_are_closed(w: &World) -> Outcome {
    w.boundary()?;
    let before = "exec 5</etc/passwd 7</tmp 9<>/dev/null; ".to_owned();
    let setting = Setting { before, ..Setting::default() };
    let check = |words: &[String]| {
        let done = run_with(&mut w.command_in(&setting, words), Input::Null, LIMIT);
        let fds = crate::contract::world::json(&done);
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
    let c = Container::named(w, &name);
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
