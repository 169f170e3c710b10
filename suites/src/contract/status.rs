//! Tests of exit codes and signals: the caller's shell sees the program's own.

use std::time::Duration;

use rustix::process::Signal;
use testkit::command::{Finished, Input, run_with};
use testkit::skip::Outcome;
use testkit::terminal::Terminal;
use testkit::users::{Setting, no_namespaces};

use crate::contract::world::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("the_first_command", the_first_command),
    ("exit_codes_pass_through", exit_codes_pass_through),
    ("exit_codes_without_rm", exit_codes_without_rm),
    ("missing_program_is_127", missing_program_is_127),
    ("what_cannot_be_executed_is_126", what_cannot_be_executed_is_126),
    ("failures_of_coracle_are_125", failures_of_coracle_are_125),
    ("death_by_signal_is_128_and_n", death_by_signal_is_128_and_n),
    ("death_by_signal_without_rm", death_by_signal_without_rm),
    ("signals_are_forwarded", signals_are_forwarded),
    ("signals_reach_a_program_without_supervisor", signals_reach_a_program_without_supervisor),
    ("ctrl_c_is_for_the_whole_job", ctrl_c_is_for_the_whole_job),
    ("sig_proxy_off", sig_proxy_off),
    ("killed_supervisor_leaves_no_program", killed_supervisor_leaves_no_program),
    ("no_process_between", no_process_between),
    ("the_program_starts_without_children", the_program_starts_without_children),
];

const CODES: [i32; 7] = [0, 1, 42, 125, 126, 127, 255];

/// A new user's first command works in every mode, without a network and with an empty store, also
/// in the mode that is chosen by default, and if user namespaces are forbidden.
fn the_first_command(w: &World) -> Outcome {
    let fresh = w.at(&w.dir("hello-home"));
    let hello = |setting: &Setting, flags: &[&str]| {
        let words = [&["run", "--rm"], flags, &["hello"]].concat();
        let done = run_with(&mut fresh.command_in(setting, &words), Input::Null, LIMIT);
        assert!(done.ok().out().starts_with("Hello from a container.\n"), "{flags:?}: {done:?}");
        assert_eq!(done.err(), "", "{flags:?}");
    };
    let plain = Setting::default();
    hello(&plain, &[]);
    hello(&plain, &[&w.mode()]);
    // The engine without filters: that it was chosen, and its other names.
    if w.engine == "F2" {
        let done = fresh.coracle(&["run", "--rm", "--explain", "hello"]);
        assert!(done.ok().out().contains("F2"), "{done:?}");
        for mode in ["F1", "F3", "F4"] {
            hello(&plain, &[&format!("--execmode={mode}")]);
        }
    }
    if !w.has_overlay() && !w.engine.starts_with('R') && no_namespaces().is_ok() {
        let forbidden = Setting { no_namespaces: true, ..Setting::default() };
        hello(&forbidden, &[]);
        hello(&forbidden, &[&w.mode()]);
    }
    Ok(())
}

fn exit_codes_pass_through(w: &World) -> Outcome {
    for code in CODES {
        let done = w.guest(&[], &["exit", &code.to_string()]);
        done.expect(code);
        assert!(done.stdout.is_empty() && done.stderr.is_empty(), "words of our own: {done:?}");
    }
    Ok(())
}

fn exit_codes_without_rm(w: &World) -> Outcome {
    for code in CODES {
        w.coracle(&w.words_for(&["run"], &[], &["exit", &code.to_string()])).expect(code);
    }
    Ok(())
}

fn missing_program_is_127(w: &World) -> Outcome {
    for program in ["/bin/nothing", "nothing", "/no/such/dir/x", "./nothing"] {
        let done = w.coracle(&["run", "--rm", &w.image, program]);
        done.expect(127);
        assert!(done.err().contains("nothing") || done.err().contains("/no/such"), "{done:?}");
    }
    Ok(())
}

fn what_cannot_be_executed_is_126(w: &World) -> Outcome {
    for program in ["/bin/not-executable", "/etc", "/bin/no-format"] {
        w.coracle(&["run", "--rm", &w.image, program]).expect(126);
    }
    let done = w.coracle(&["run", "--rm", &w.mode(), &w.image, "/etc"]);
    assert!(done.expect(126).err().contains("Is a directory"), "{done:?}");
    // The kernel returns ENOENT for a missing interpreter; as in a shell, the program itself
    // exists.
    w.coracle(&["run", "--rm", &w.image, "/bin/no-interpreter"]).expect(126);
    Ok(())
}

fn failures_of_coracle_are_125(w: &World) -> Outcome {
    let done = w.coracle(&["run", "--rm", "--pull=never", "no-such-image-here", "true"]);
    done.expect(125);
    assert!(done.err().contains("no-such-image-here"), "{done:?}");
    w.coracle(&["run", "--rm", "--no-such-flag", &w.image]).expect(125);
    w.coracle(&["run", "--rm", "--execmode=Z9", &w.image]).expect(125);
    w.coracle(&["run", "--rm", "-v", "/tmp", &w.image, "/bin/guest", "exit", "0"]);
    w.coracle(&["run", "--rm", "-u", "nobody-knows-me", &w.image, "/bin/guest"]).expect(125);
    Ok(())
}

const DEADLY: [(&str, i32); 5] = [("9", 137), ("15", 143), ("11", 139), ("6", 134), ("1", 129)];

/// Checks that a command has this exit code, and was not ended by a signal itself.
#[track_caller]
pub(crate) fn ends_with(done: &Finished, code: i32) {
    assert_eq!(done.status.and_then(|status| status.code()), Some(code), "{done:?}");
}

fn death_by_signal_is_128_and_n(w: &World) -> Outcome {
    for (signal, code) in DEADLY {
        ends_with(&w.guest(&[], &["signal", signal]), code);
    }
    Ok(())
}

fn death_by_signal_without_rm(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    for (signal, code) in DEADLY {
        ends_with(&w.coracle(&w.words_for(&["run"], &[], &["signal", signal])), code);
        ends_with(&w.coracle(&["run", &c.name, "/bin/guest", "signal", signal]), code);
    }
    Ok(())
}

const FORWARDED: [(Signal, &str); 5] = [
    (Signal::TERM, "TERM"),
    (Signal::INT, "INT"),
    (Signal::HUP, "HUP"),
    (Signal::USR1, "USR1"),
    (Signal::QUIT, "QUIT"),
];

fn signals_are_forwarded(w: &World) -> Outcome {
    for (signal, name) in FORWARDED {
        let mut run = w.start(&[], &["await", name]);
        run.expect("ready");
        run.signal(signal);
        run.expect(&format!("got SIG{name}"));
        assert_eq!(run.end(Duration::from_secs(10)), 0, "after SIG{name}: {}", run.text());
    }
    Ok(())
}

fn signals_reach_a_program_without_supervisor(w: &World) -> Outcome {
    for (signal, name) in FORWARDED {
        let words = w.words_for(&["run"], &[], &["await", name]);
        let mut run = testkit::running::Running::start(&mut w.command(&words));
        run.expect("ready");
        run.signal(signal);
        run.expect(&format!("got SIG{name}"));
        assert_eq!(run.end(Duration::from_secs(10)), 0, "after SIG{name}: {}", run.text());
    }
    let words = w.words_for(&["run"], &["--init"], &["await", "INT"]);
    let mut run = testkit::running::Running::start(&mut w.command(&words));
    run.expect("ready");
    run.signal(Signal::INT);
    assert_eq!(run.end(Duration::from_secs(10)), 0, "through an init: {}", run.text());
    // A signal without handler ends it.
    let words = w.words_for(&["run"], &[], &["ready", ";", "sleep", "60"]);
    let mut run = testkit::running::Running::start(&mut w.command(&words));
    run.expect("ready");
    run.signal(Signal::TERM);
    assert_eq!(run.end(Duration::from_secs(10)), 143);
    Ok(())
}

/// A shell waits for its child when Ctrl-C is typed on the caller's own terminal, so the child must
/// get the signal too.
fn ctrl_c_is_for_the_whole_job(w: &World) -> Outcome {
    let shell = ["block", "INT", ";", "spawn", "/bin/guest", "await", "INT"];
    for (verb, flags) in
        [(&["run"][..], &[][..]), (&["run", "--rm"], &[]), (&["run", "--rm"], &["-i"])]
    {
        let words = w.words_for(verb, flags, &shell);
        let mut terminal = Terminal::spawn(&w.command(&words), 33, 101).expect("a terminal");
        terminal.expect("ready");
        terminal.type_in(b"\x03").expect("typing");
        let code = terminal.end().and_then(|status| status.code());
        assert_eq!(code, Some(0), "{verb:?} {flags:?}: {}", terminal.text());
        assert!(terminal.text().contains("got SIGINT"), "{verb:?} {flags:?}: {}", terminal.text());
    }
    Ok(())
}

fn sig_proxy_off(w: &World) -> Outcome {
    let mut run = w.start(&["--sig-proxy=false"], &["await", "USR1", "TERM"]);
    run.expect("ready");
    run.signal(Signal::USR1);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!run.text().contains("got"), "a signal was passed on: {}", run.text());
    run.signal(Signal::KILL);
    run.end(Duration::from_secs(10));
    Ok(())
}

fn killed_supervisor_leaves_no_program(w: &World) -> Outcome {
    let name = w.name("orphaned");
    let flags = ["--name", name.as_str()];
    let mut run = w.start(&flags, &["ready", ";", "sleep", "300"]);
    run.expect("ready");
    run.signal(Signal::KILL);
    assert_eq!(run.end(Duration::from_secs(10)), 137);
    let gone = testkit::command::until(Duration::from_secs(10), || {
        let list = w.coracle(&["ps", "--format", "{{.Names}}"]);
        (!list.ok().out().lines().any(|line| line == name)).then_some(())
    });
    w.coracle(&["rm", "-f", &name]);
    assert!(gone.is_some(), "the program outlived the supervisor that was killed");
    let detached = w.detached(&[], &["ready", ";", "sleep", "300"]);
    detached.said("ready");
    for pid in beside(w, &detached.name) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let gone = testkit::command::until(Duration::from_secs(10), || {
        let state = w.coracle(&["inspect", "--format={{.State.Running}}", &detached.name]);
        (state.ok().line() == "false").then_some(())
    });
    assert!(gone.is_some(), "the detached program outlived the supervisor that was killed");
    Ok(())
}

/// The processes beside a container's program that hold its `supervisor.lock`.
fn beside(w: &World, name: &str) -> Vec<rustix::process::Pid> {
    let id = w.coracle(&["inspect", "--format={{.Id}}", name]).ok().line();
    let lock = format!("{id}/supervisor.lock");
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let holds = |entry: &std::fs::DirEntry| {
        let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|target| target.to_string_lossy().ends_with(&lock))
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let all = all.filter(holds).filter_map(number);
    let found: Vec<_> = all.filter_map(rustix::process::Pid::from_raw).collect();
    assert!(!found.is_empty(), "{name} has no supervisor");
    found
}

/// Without terminal, log or clean-up, the process that the caller started becomes the program; that
/// of a rank does so in any case.
fn no_process_between(w: &World) -> Outcome {
    for (flags, rank) in [(&["--log-driver=none"][..], None), (&[], Some(("PMI_RANK", "0")))] {
        let words = w.words_for(&["run"], flags, &["ready", ";", "sleep", "300"]);
        let mut command = w.command(&words);
        let mut run = testkit::running::Running::start(command.envs(rank));
        run.expect("ready");
        let path = format!("/proc/{}/cmdline", run.id());
        let exe = std::fs::read_to_string(path).unwrap_or_default();
        run.signal(Signal::KILL);
        run.end(Duration::from_secs(10));
        assert!(exe.starts_with("/bin/guest\0ready"), "{rank:?}: the caller's child is {exe:?}");
    }
    Ok(())
}

/// A program begins without children, whichever process serves it: `strace` as a container's first
/// program waits until it has none left.
fn the_program_starts_without_children(w: &World) -> Outcome {
    for (verb, flags) in [
        (&["run"][..], &[][..]),
        (&["run", "--rm"], &[]),
        (&["run"], &["--init"]),
        (&["run"], &["-t"]),
    ] {
        let done = w.coracle(&w.words_for(verb, flags, &["kin"]));
        assert_eq!(done.ok().out().trim_end(), "ECHILD", "{verb:?} {flags:?}");
    }
    let container = w.detached(&[], &["kin", ";", "sleep", "60"]);
    container.said("ECHILD");
    assert_eq!(container.exec(&[], &["kin"]).ok().line(), "ECHILD");
    Ok(())
}
