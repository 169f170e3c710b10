//! Tests of `exec`: another program in the same namespaces.

use std::time::Duration;

use serde_json::json;
use testkit::command::{Input, run_with};
use testkit::running::Running;
use testkit::skip::Outcome;
use testkit::terminal::Terminal;

use crate::contract::status::ends_with;
use crate::contract::world::{Case, LIMIT, World, json as parse};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("same_files_same_namespaces", same_files_same_namespaces),
    ("exit_codes", exit_codes),
    ("environment_and_directory", environment_and_directory),
    ("user", user),
    ("the_callers_user", the_callers_user),
    ("input_and_output", input_and_output),
    ("terminal", terminal),
    ("detached", detached),
    ("needs_a_running_container", needs_a_running_container),
    ("ends_with_the_container", ends_with_the_container),
    ("several_at_once", several_at_once),
    ("exec_in_a_foreground_run", exec_in_a_foreground_run),
    ("what_it_leaves_lives_on", what_it_leaves_lives_on),
    ("arguments_are_exact", arguments_are_exact),
];

fn same_files_same_namespaces(w: &World) -> Outcome {
    for flags in [
        [].as_slice(),
        &["--pid=private", "--ipc=private", "--hostname=boxed"],
        &["--isolate", "--network=none"],
    ] {
        let c = w.detached(flags, &["facts", ";", "ready", ";", "sleep", "300"]);
        c.said("ready");
        let first = w.coracle(&["logs", &c.name]).ok().out();
        let first: serde_json::Value =
            serde_json::from_str(first.lines().next().unwrap_or_default())
                .expect("facts in the log");
        let second = parse(&c.exec(&[], &["facts"]));
        assert_eq!(first["namespaces"], second["namespaces"], "{flags:?}");
        assert_eq!(first["hostname"], second["hostname"], "{flags:?}");
        assert_eq!(first["cap_eff"], second["cap_eff"], "{flags:?}");
        assert_eq!(first["seccomp"], second["seccomp"], "{flags:?}");
        c.exec(&[], &["write", "/tmp/shared", "seen"]).ok();
        assert_eq!(c.exec(&[], &["read", "/tmp/shared"]).ok().out(), "seen");
    }
    Ok(())
}

fn exit_codes(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    for code in [0, 1, 42, 255] {
        c.exec(&[], &["exit", &code.to_string()]).expect(code);
    }
    for (signal, code) in [("9", 137), ("11", 139), ("15", 143), ("2", 130)] {
        ends_with(&c.exec(&[], &["signal", signal]), code);
        ends_with(&c.exec(&["-i"], &["signal", signal]), code);
    }
    w.coracle(&["exec", &c.name, "/no/such/program"]).expect(127);
    w.coracle(&["exec", &c.name, "/etc"]).expect(126);
    Ok(())
}

fn environment_and_directory(w: &World) -> Outcome {
    let c = w.detached(&["-e", "OF_CONTAINER=1", "-w", "/data"], &["sleep", "300"]);
    let env = parse(&c.exec(&["-e", "OF_EXEC=2"], &["env"])).to_string();
    for wanted in ["OF_CONTAINER=1", "OF_EXEC=2", "FROM_IMAGE=yes", "HOME=/root"] {
        assert!(env.contains(wanted), "{wanted} in {env}");
    }
    assert_eq!(parse(&c.exec(&[], &["facts"]))["cwd"], json!("/data"));
    assert_eq!(parse(&c.exec(&["-w", "/etc"], &["facts"]))["cwd"], json!("/etc"));
    Ok(())
}

fn user(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    assert_eq!(parse(&c.exec(&[], &["ids"]))["uid"], json!([0, 0, 0]));
    if !w.has_ids() {
        testkit::skip!("one mapped id: exec cannot become a second user in the same namespace");
    }
    let ids = parse(&c.exec(&["-u", "alice"], &["ids"]));
    assert_eq!(
        (&ids["uid"], &ids["gid"]),
        (&json!([1234, 1234, 1234]), &json!([1235, 1235, 1235]))
    );
    let ids = parse(&c.exec(&["--user=5000:77"], &["ids"]));
    assert_eq!((&ids["uid"][0], &ids["gid"][0]), (&json!(5000), &json!(77)));
    Ok(())
}

/// A runtime may start such a program in another user namespace than the one that owns the mounts.
fn the_callers_user(w: &World) -> Outcome {
    let c = w.detached(&["--userns=keep-id"], &["ids", ";", "ready", ";", "sleep", "300"]);
    c.said("ready");
    let first = w.coracle(&["logs", &c.name]).ok().out();
    let first: serde_json::Value =
        serde_json::from_str(first.lines().next().unwrap_or_default()).expect("ids in the log");
    let second = parse(&c.exec(&[], &["ids"]));
    assert_ne!(first["uid"], json!([0, 0, 0]));
    assert_eq!(first["uid"], second["uid"]);
    Ok(())
}

fn input_and_output(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let bytes = vec![b'x'; 500_000];
    let mut command = w.command(&["exec", "-i", &c.name, "/bin/guest", "cat"]);
    let done = run_with(&mut command, Input::Bytes(bytes.clone()), LIMIT);
    assert!(done.ok().stdout == bytes, "{} bytes back", done.stdout.len());
    let done = c.exec(&[], &["flood", "8"]);
    assert_eq!(done.ok().stdout.len(), 8 << 20);
    assert_eq!(c.exec(&[], &["count"]).ok().line(), "0");
    let done = c.exec(&[], &["say", "out", ";", "complain", "err"]);
    assert_eq!((done.ok().out(), done.err()), ("out\n".into(), "err\n".into()));
    Ok(())
}

fn terminal(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let command = w.command(&[
        "exec",
        "-it",
        &c.name,
        "/bin/guest",
        "tty",
        ";",
        "await",
        "INT",
        ";",
        "exit",
        "3",
    ]);
    let mut terminal = Terminal::spawn(&command, 31, 99).expect("a terminal");
    terminal.expect("[31,99]");
    terminal.expect("ready");
    terminal.type_in(b"\x03").expect("typing");
    terminal.expect("got SIGINT");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(3));
    Ok(())
}

fn detached(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let done = w.coracle(&["exec", "-d", &c.name, "/bin/guest", "write", "/tmp/made", "x"]);
    assert!(!done.ok().held_open, "a detached program holds the caller's output: {done:?}");
    let made = testkit::command::until(Duration::from_secs(10), || {
        (c.exec(&[], &["read", "/tmp/made"]).code() == 0).then_some(())
    });
    assert!(made.is_some(), "the detached program did nothing");
    Ok(())
}

fn needs_a_running_container(w: &World) -> Outcome {
    let c = w.detached(&[], &["exit", "0"]);
    c.becomes("exited");
    let done = c.exec(&[], &["exit", "0"]);
    done.expect(125);
    assert!(done.err().contains(&c.name) || done.err().contains("running"), "{done:?}");
    w.coracle(&["exec", "no-such-container", "x"]).expect(125);
    Ok(())
}

fn ends_with_the_container(w: &World) -> Outcome {
    for flags in [[].as_slice(), &["--pid=private"]] {
        let c = w.detached(flags, &["sleep", "300"]);
        let mut run = Running::start(&mut w.command(&[
            "exec",
            &c.name,
            "/bin/guest",
            "ready",
            ";",
            "sleep",
            "300",
        ]));
        run.expect("ready");
        w.coracle(&["rm", "-f", &c.name]).ok();
        let code = run.end(Duration::from_secs(15));
        assert_eq!(code, 137, "{flags:?}: the program went on in a container that was removed");
    }
    Ok(())
}

fn several_at_once(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let c = &c;
                scope.spawn(move || {
                    c.exec(&[], &["say", &n.to_string(), ";", "exit", &n.to_string()])
                })
            })
            .collect();
        for (n, thread) in threads.into_iter().enumerate() {
            let done = thread.join().expect("a thread");
            done.expect(i32::try_from(n).unwrap_or_default());
            assert_eq!(done.line(), n.to_string());
        }
    });
    Ok(())
}

/// A run without a supervisor can be entered too, since its process is known.
fn exec_in_a_foreground_run(w: &World) -> Outcome {
    let name = w.name("fore");
    let words = w.words_for(
        &["run"],
        &["--name", &name],
        &["write", "/tmp/mine", "x", ";", "ready", ";", "sleep", "300"],
    );
    let mut run = Running::start(&mut w.command(&words));
    run.expect("ready");
    let done = w.coracle(&["exec", &name, "/bin/guest", "read", "/tmp/mine"]);
    run.signal(rustix::process::Signal::KILL);
    run.end(Duration::from_secs(10));
    w.coracle(&["rm", "-f", &name]);
    assert_eq!(done.ok().out(), "x");
    Ok(())
}

/// As in Docker: a program of `exec` may leave a daemon behind, which ends with the container.
fn what_it_leaves_lives_on(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let seconds = "297";
    c.exec(&[], &["orphan", "/bin/guest", "sleep", seconds]).ok();
    let lives = || w.coracle(&["top", &c.name]).ok().out().contains(&format!("sleep {seconds}"));
    assert!(lives(), "it was ended with the program that left it");
    Ok(())
}

fn arguments_are_exact(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let seen = parse(&c.exec(&[], &["args", "", "a b", "-it", "--", "$X"]));
    assert_eq!(seen, json!(["/bin/guest", "args", "", "a b", "-it", "--", "$X"]));
    Ok(())
}
