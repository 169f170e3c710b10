//! Tests of `/dev`, `/proc` and `/sys`: enough for every program, without the host's private parts.

use serde_json::{Value, json};
use testkit::skip::Outcome;

use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("usual_nodes", usual_nodes),
    ("no_disks_no_memory", no_disks_no_memory),
    ("standard_links", standard_links),
    ("shared_memory", shared_memory),
    ("one_more_device", one_more_device),
    ("proc_is_there", proc_is_there),
    ("sys_is_there", sys_is_there),
    ("pseudo_terminals", pseudo_terminals),
];

fn usual_nodes(w: &World) -> Outcome {
    for (name, device) in [
        ("null", [1, 3]),
        ("zero", [1, 5]),
        ("full", [1, 7]),
        ("random", [1, 8]),
        ("urandom", [1, 9]),
        ("tty", [5, 0]),
    ] {
        let stat = w.json(&[], &["stat", &format!("/dev/{name}")]);
        assert_eq!((&stat["kind"], &stat["rdev"]), (&json!("char"), &json!(device)), "{name}");
        assert_eq!(stat["mode"], json!("666"), "{name}");
    }
    w.guest(&[], &["append", "/dev/null", "gone", ";", "read", "/dev/null"]).ok();
    assert_eq!(w.guest(&[], &["append", "/dev/full", "x"]).expect(9).out(), "error: ENOSPC\n");
    Ok(())
}

fn no_disks_no_memory(w: &World) -> Outcome {
    // The default shares the host's devices, as scientific programs need them; isolation does not.
    let flags = ["--isolate", "--network=none"];
    let list: Vec<String> =
        serde_json::from_value(w.json(&flags, &["list", "/dev"])).expect("names");
    for name in ["mem", "kmem", "port", "vda", "sda", "nvme0n1", "loop0", "kmsg"] {
        assert!(!list.iter().any(|item| item == name), "{name} in {list:?}");
    }
    Ok(())
}

fn standard_links(w: &World) -> Outcome {
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        assert_eq!(w.guest(&[], &["link", &format!("/dev/{name}")]).ok().line(), target);
    }
    // A pipe belongs to the user who made it, so the user's own shell makes this one.
    let words = w.words(&[], &["append", "/dev/stdout", "through"]);
    let mut command = w.user.command("sh", &w.home);
    command.args(["-c", "\"$@\" | cat", "sh"]).arg(&w.coracle).args(words);
    assert_eq!(testkit::command::run(&mut command).ok().out(), "through");
    Ok(())
}

fn shared_memory(w: &World) -> Outcome {
    let done = w.guest(&[], &["statfs", "/dev/shm", ";", "stat", "/dev/shm"]);
    let text = done.ok().out();
    assert!(text.contains("0x1021994"), "/dev/shm is memory: {text}");
    assert!(text.contains("\"mode\":\"1777\""), "{text}");
    let flags = ["--ipc=private", "--shm-size=2m"];
    let done = w.guest(&flags, &["statfs", "/dev/shm", ";", "list", "/dev/shm"]);
    let text = done.ok().out();
    let statfs: Value =
        serde_json::from_str(text.lines().next().unwrap_or_default()).expect("statfs");
    assert_eq!(statfs["size"], json!(2 << 20));
    assert_eq!(text.lines().nth(1), Some("[]"));
    Ok(())
}

fn one_more_device(w: &World) -> Outcome {
    let stat = w.json(&["--device", "/dev/zero:/dev/also-zero"], &["stat", "/dev/also-zero"]);
    assert_eq!((&stat["kind"], &stat["rdev"]), (&json!("char"), &json!([1, 5])));
    w.guest(&["--device", "/dev/no-such-device"], &["exit", "0"]).expect(125);
    w.guest(&["--device", "/etc/passwd"], &["exit", "0"]).expect(125);
    Ok(())
}

fn proc_is_there(w: &World) -> Outcome {
    for flags in [[].as_slice(), &["--pid=private"], &["--isolate", "--network=none"]] {
        let done = w.guest(
            flags,
            &[
                "read",
                "/proc/version",
                ";",
                "read",
                "/proc/self/comm",
                ";",
                "read",
                "/proc/meminfo",
                ";",
                "mounts",
            ],
        );
        assert!(done.ok().out().contains("guest\n"), "{flags:?}: {done:?}");
    }
    let facts = w.json(&["--pid=private"], &["facts"]);
    assert_eq!(facts["pid"], json!(1), "the program is the first of its namespace: {facts}");
    assert_eq!(facts["pids"], json!(1));
    let facts = w.json(&["--pid=private", "--init"], &["facts"]);
    assert_eq!((&facts["ppid"], &facts["pids"]), (&json!(1), &json!(2)));
    Ok(())
}

fn sys_is_there(w: &World) -> Outcome {
    let list = w.json(&[], &["list", "/sys"]);
    assert!(
        list.to_string().contains("\"devices\""),
        "programs look for CPUs and GPUs there: {list}"
    );
    w.guest(&[], &["write", "/sys/kernel/profiling", "1"]).expect(9);
    Ok(())
}

fn pseudo_terminals(w: &World) -> Outcome {
    let done =
        w.guest(&[], &["stat", "/dev/ptmx", ";", "list", "/dev/pts", ";", "statfs", "/dev/pts"]);
    assert!(done.ok().out().contains("0x1cd1"), "devpts: {done:?}");
    Ok(())
}
