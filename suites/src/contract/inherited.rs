//! Tests that a start works whatever the caller leaves to its processes, and what a container's
//! program gets of it (`docs/host.md`).

use std::fs;
use std::time::Duration;

use serde_json::json;
use testkit::command::{Finished, Input, run_with, until};
use testkit::skip::Outcome;
use testkit::terminal::Terminal;
use testkit::users::Setting;

use crate::contract::environment::mask;
use crate::contract::world::{Case, Host, LIMIT, World, json as parse};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("ignored_signals", ignored_signals),
    ("a_host_looked_at_with_ignored_signals", a_host_looked_at_with_ignored_signals),
    ("blocked_signals", blocked_signals),
    ("low_limits", low_limits),
    ("a_small_stack", a_small_stack),
    ("small_files", small_files),
    ("closed_descriptors", closed_descriptors),
    ("many_descriptors", many_descriptors),
    ("priority_and_processors", priority_and_processors),
    ("masks_of_permissions", masks_of_permissions),
    ("a_directory_that_is_gone", a_directory_that_is_gone),
    ("an_unreadable_directory", an_unreadable_directory),
    ("an_empty_environment", an_empty_environment),
    ("a_terminal_that_is_gone", a_terminal_that_is_gone),
    ("a_session_of_its_own", a_session_of_its_own),
];

/// The ways of starting a program in the foreground.
const VERBS: [&[&str]; 2] = [&["run"], &["run", "--rm"]];

/// `coracle` with these words, after a piece of a shell's script.
fn after(w: &World, before: &str, words: &[String]) -> Finished {
    let setting = Setting { before: format!("{before}; "), ..Setting::default() };
    run_with(&mut w.command_in(&setting, words), Input::Null, LIMIT)
}

/// The guest in a new container, likewise.
fn guest_after(w: &World, before: &str, guest: &[&str]) -> Finished {
    after(w, before, &w.words(&[], guest))
}

/// Has a program of the host's start `coracle`.
fn by(program: &str) -> String {
    format!("set -- {program} \"$@\"")
}

/// Which signals of these are in a mask, by their numbers.
fn in_mask(mask: u64, numbers: &[u32]) -> Vec<u32> {
    numbers.iter().copied().filter(|number| mask & 1 << (number - 1) != 0).collect()
}

/// A parent that ignores the ends of its children hands that on. `nohup` has its effect.
fn ignored_signals(w: &World) -> Outcome {
    let (hup, pipe, chld, xfsz) = (1, 13, 17, 25);
    for which in ["=CHLD", ""] {
        let before = by(&format!("env --ignore-signal{which}"));
        for verb in VERBS {
            after(w, &before, &w.words_for(verb, &[], &["exit", "7"])).expect(7);
            after(w, &before, &w.words_for(verb, &[], &["sleep", "1", ";", "exit", "7"])).expect(7);
        }
        let c = w.detached(&[], &["sleep", "300"]);
        let words = ["exec", &c.name, "/bin/guest", "exit", "7"].map(str::to_owned);
        after(w, &before, &words).expect(7);
        let words = w.words_for(&["run", "-d"], &[], &["exit", "7"]);
        let id = after(w, &before, &words).ok().line();
        assert_eq!(w.coracle(&["wait", &id]).ok().line(), "7", "{which}");
        w.coracle(&["rm", &id]).ok();
        let words = w.words(&[], &["read", "/proc/self/status"]);
        let ignored = mask(&after(w, &before, &words).ok().out(), "SigIgn:");
        // The guest itself ignores SIGPIPE, as Rust's runtime does.
        assert!(in_mask(ignored, &[chld, xfsz]).is_empty(), "{which}");
        let nohup = if which.is_empty() { &[hup, pipe][..] } else { &[pipe] };
        assert_eq!(in_mask(ignored, &[hup, pipe]), nohup, "{which}");
    }
    Ok(())
}

/// What works on a host is found out by children too.
fn a_host_looked_at_with_ignored_signals(w: &World) -> Outcome {
    if w.host == Host::Any {
        testkit::skip!("the mode is asked for here");
    }
    let w = w.at(&w.dir("unknown"));
    let words = ["doctor", "--format", "json"].map(str::to_owned);
    let report = after(&w, &by("env --ignore-signal"), &words).ok().out();
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["chosen"], json!(w.engine));
    Ok(())
}

fn blocked_signals(w: &World) -> Outcome {
    let before = by("env --block-signal");
    for verb in VERBS {
        after(w, &before, &w.words_for(verb, &[], &["exit", "7"])).expect(7);
    }
    let status = guest_after(w, &before, &["read", "/proc/self/status"]).ok().out();
    assert_eq!(mask(&status, "SigBlk:"), 0);
    Ok(())
}

/// Each limit by itself; a program has the caller's.
fn low_limits(w: &World) -> Outcome {
    for (flag, value, name) in [
        ("-n", "40", "Max open files"),
        ("-c", "0", "Max core file size"),
        ("-v", "1048576", "Max address space"),
        ("-d", "65536", "Max data size"),
        ("-l", "0", "Max locked memory"),
        ("-t", "60", "Max cpu time"),
        ("-s", "unlimited", "Max stack size"),
    ] {
        let told = guest_after(w, &format!("ulimit {flag} {value}"), &["limits"]).ok().out();
        let line = told.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let seen = line[name.len()..].split_whitespace().next().unwrap_or_default();
        let unit = if ["-v", "-d", "-l"].contains(&flag) { 1024 } else { 1 };
        let number = value.parse::<u64>().map_or(value.to_owned(), |n| (n * unit).to_string());
        assert_eq!(seen, number, "{flag}");
    }
    Ok(())
}

/// A soft limit is raised to what Coracle needs, as far as the hard one lets it.
fn a_small_stack(w: &World) -> Outcome {
    let told = guest_after(w, "ulimit -S -s 256", &["limits"]).ok().out();
    let line = told.lines().find(|line| line.starts_with("Max stack size")).unwrap_or_default();
    assert_eq!(line.split_whitespace().nth(3), Some("1048576"), "{told}");
    guest_after(w, "ulimit -s 512", &["exit", "7"]).expect(7);
    let done = guest_after(w, "ulimit -s 256", &["exit", "0"]);
    assert!(done.expect(125).err().contains("stack of 256 kB is too small"), "{done:?}");
    Ok(())
}

/// What cannot be written is an error, and not this program's end by a signal.
fn small_files(w: &World) -> Outcome {
    // A program's own limit holds for the texts of `/proc` too that are made for it.
    guest_after(w, "ulimit -S -f 64", &["exit", "7"]).expect(7);
    let done = guest_after(w, "ulimit -f 0", &["exit", "0"]);
    assert!(done.expect(125).err().contains("File too large"), "{done:?}");
    Ok(())
}

/// A program has the three standard streams in any case.
fn closed_descriptors(w: &World) -> Outcome {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
        for verb in VERBS {
            let before = format!("exec {closed}");
            after(w, &before, &w.words_for(verb, &[], &["exit", "7"])).expect(7);
        }
        let dir = w.dir("closed");
        let volume = format!("{}:/m", dir.display());
        let mut words = w.words(&["-v", &volume], &["fds"]);
        words.splice(words.len() - 2.., ["/bin/guest", "say", "x"].map(str::to_owned));
        after(w, &format!("exec {closed}"), &words).ok();
    }
    let seen = parse(&guest_after(w, "exec <&-", &["fds"]));
    assert_eq!(seen["0"], json!("/dev/null"));
    let seen = parse(&guest_after(w, "exec 2>&-", &["fds"]));
    assert_eq!(seen["2"], json!("/dev/null"));
    Ok(())
}

/// Open descriptors reach a program under their numbers; a full table is an error.
fn many_descriptors(w: &World) -> Outcome {
    let open = |script: &str| {
        format!("set -- bash -c 'ulimit -n 1024; {script}; exec \"$@\"' bash \"$@\"")
    };
    let before = open("for n in {10..900} 1023; do eval \"exec $n</dev/null\"; done");
    for verb in VERBS {
        let seen = parse(&after(w, &before, &w.words_for(verb, &[], &["fds"])));
        assert_eq!((&seen["900"], &seen["1023"]), (&json!("/dev/null"), &json!("/dev/null")));
    }
    let done = guest_after(
        w,
        &open("for n in {10..1023}; do eval \"exec $n</dev/null\"; done"),
        &["exit", "0"],
    );
    assert!(done.expect(125).err().contains("Too many open files"), "{done:?}");
    Ok(())
}

fn priority_and_processors(w: &World) -> Outcome {
    let nice = |told: &str| -> i32 {
        let (_, rest) = told.rsplit_once(") ").expect("a name");
        rest.split(' ').nth(16).and_then(|nice| nice.parse().ok()).expect("a number")
    };
    let own = std::fs::read_to_string("/proc/self/stat").expect("this process");
    let told =
        guest_after(w, &by("nice -n 5 taskset -c 0"), &["read", "/proc/self/stat"]).ok().out();
    assert_eq!(nice(&told), nice(&own) + 5, "{told}");
    let facts = parse(&guest_after(w, &by("taskset -c 0"), &["facts"]));
    assert_eq!(facts["cpus"], json!("0"));
    Ok(())
}

/// One that takes the owner's rights would make Coracle's own files useless.
fn masks_of_permissions(w: &World) -> Outcome {
    let seen = |callers, before: &str| {
        let setting =
            Setting { umask: Some(callers), before: before.to_owned(), ..Setting::default() };
        let mut command = w.command_in(&setting, &w.words(&[], &["status", "Umask"]));
        run_with(&mut command, Input::Null, LIMIT).ok().line()
    };
    for callers in [0o777, 0o700, 0] {
        assert_eq!(seen(callers, ""), "0022");
    }
    assert_eq!(seen(0o777, "export SLURM_STEP_ID=0; "), "0077", "a rank has the caller's");
    Ok(())
}

/// A directory that is gone matters to relative paths alone.
fn a_directory_that_is_gone(w: &World) -> Outcome {
    let gone = "d=$(mktemp -d) && cd \"$d\" && rmdir \"$d\"";
    for verb in VERBS {
        after(w, gone, &w.words_for(verb, &[], &["exit", "7"])).expect(7);
    }
    let volume = format!("{}:/m", w.dir("absolute").display());
    after(w, gone, &w.words(&["-v", &volume], &["write", "/m/x", ""])).ok();
    let id = after(w, gone, &w.words_for(&["create"], &[], &["exit", "7"])).ok().line();
    let words = ["start", "-a", &id].map(str::to_owned);
    after(w, gone, &words).expect(7);
    w.coracle(&["rm", &id]).ok();
    let c = w.detached(&[], &["sleep", "300"]);
    let words = ["exec", &c.name, "/bin/guest", "exit", "7"].map(str::to_owned);
    after(w, gone, &words).expect(7);
    let done = after(w, gone, &w.words(&["-v", "./x:/m"], &["exit", "0"]));
    assert!(done.expect(125).err().contains("the working directory is gone"), "{done:?}");
    Ok(())
}

fn an_unreadable_directory(w: &World) -> Outcome {
    let closed = "d=$(mktemp -d) && cd \"$d\" && chmod 0 \"$d\"";
    for verb in VERBS {
        after(w, closed, &w.words_for(verb, &[], &["exit", "7"])).expect(7);
    }
    Ok(())
}

fn an_empty_environment(w: &World) -> Outcome {
    // The store is in the home directory.
    let env = parse(&guest_after(w, &by("env -i \"HOME=$HOME\""), &["env"]));
    let env = env.as_array().cloned().unwrap_or_default();
    for name in ["PATH=", "HOME=", "HOSTNAME="] {
        let has = |text: &serde_json::Value| text.as_str().is_some_and(|t| t.starts_with(name));
        assert!(env.iter().any(has), "{name} in {env:?}");
    }
    Ok(())
}

/// The first process of the session has ended, or the window was closed: nothing is to be read from
/// the terminal any more, and what is written there is lost.
fn a_terminal_that_is_gone(w: &World) -> Outcome {
    let dir = w.dir("terminal");
    for (number, streams) in ["</dev/null >/dev/null 2>&1", ""].into_iter().enumerate() {
        let file = dir.join(number.to_string());
        let before = format!(
            "trap '' HUP; (sleep 1; \"$@\" {streams}; echo $? >'{}') & exit 0; ",
            file.display()
        );
        let setting = Setting { before, ..Setting::default() };
        let command = w.command_in(&setting, &w.words(&[], &["exit", "7"]));
        let mut terminal = Terminal::spawn(&command, 24, 80).expect("a terminal");
        terminal.end();
        drop(terminal);
        let status = until(LIMIT, || fs::read_to_string(&file).ok().filter(|t| !t.is_empty()));
        assert_eq!(status.as_deref(), Some("7\n"), "{streams}");
    }
    Ok(())
}

/// Neither a terminal nor the caller's process group.
fn a_session_of_its_own(w: &World) -> Outcome {
    for verb in VERBS {
        let words = w.words_for(verb, &[], &["exit", "7"]);
        after(w, &by("setsid -w"), &words).expect(7);
    }
    let mut run = testkit::running::Running::start(&mut w.command_in(
        &Setting { before: by("setsid -w") + "; ", ..Setting::default() },
        &w.words(&[], &["ready", ";", "exit", "7"]),
    ));
    run.expect("ready");
    assert_eq!(run.end(Duration::from_secs(20)), 7);
    Ok(())
}
