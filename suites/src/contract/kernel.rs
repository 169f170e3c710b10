//! Calls whose result a mode could change unseen: signals, limits, memory. Each program prints what
//! it prints on the host.

use testkit::skip::{Outcome, Skip};

use crate::contract::patched_code::compiled;
use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("signals_of_traps", signals_of_traps),
    ("locked_memory", locked_memory),
    ("asks_to_be_traced", asks_to_be_traced),
    ("users_are_kept_apart", users_are_kept_apart),
    ("strict_mode", strict_mode),
    ("flags_of_files", flags_of_files),
    ("stack_is_found", stack_is_found),
];

/// What `signals.c` prints on any Linux: a signal's end is negative.
const SIGNALS: &str = "\
SIGSYS: 1 deep of 6, SA_NODEFER 6 of 6
mask 0 1, held 0, let through 1 1, mask 1 0, then 2
jumps 3, action 1 0, ends -31 7 -4 21 -31
SIGILL: 1 deep of 6, SA_NODEFER 6 of 6
mask 0 1, held 0, let through 1 1, mask 1 0, then 2
jumps 3, action 1 0, ends -4 7 -4 21 -4
closed stack: 0 failed, 101 signals
";

/// The signals that catch calls are the program's own too: blocked in their handlers and by masks,
/// kept until they are unblocked, over `execve`. A call needs no alternate stack.
fn signals_of_traps(w: &World) -> Outcome {
    prints(w, "signals", include_str!("signals.c"), SIGNALS)
}

/// A limit for locked memory is for the program's own.
fn locked_memory(w: &World) -> Outcome {
    let most = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
    if most.is_some_and(|most| most < 8 << 20) {
        return Err(Skip("less than 8 MB of memory may be locked".to_owned()));
    }
    let expected =
        "current: 0, locked\nnone: 22, not locked\nboth: 0, locked\ntoo much: 12, not locked\n";
    prints(w, "locked", include_str!("locked.c"), expected)
}

/// A process that asks to be traced runs on if nobody traces it, and stops for a tracer.
fn asks_to_be_traced(w: &World) -> Outcome {
    if ["P1", "P2", "R2"].contains(&w.engine.as_str()) {
        return Err(Skip("a process has one tracer, which is the engine's".to_owned()));
    }
    if w.engine == "F2" {
        return Err(Skip("this host refuses tracing, as the suite has it for F2".to_owned()));
    }
    let expected = "end 20\nstopped by 19, end 21\nstopped by 19, end 22\nstopped by 5, end 30\n";
    prints(w, "traced", include_str!("traced.c"), expected)
}

/// What `others.c` prints on any Linux: the same for a process of the user's own, for the user and
/// for root.
const OTHERS: &str = "\
another's:
 kill 1 queue 1 pidfd 1 read 1 write 1 take 1 same 1 robust 1
 nice 1 policy 1 parameter 1 processors 1 disk 1 limit 1 limits 1
 /environ 13 /mem 13 /maps 13 /fd 13 /fd/0 13 /cwd 13 /oom 13 /stat 0 /status 0 link 13 exe 13
 attach 1 seize 1
changed:
 kill 0 nice 0 read 1 /environ 13 /fd 13 / 0 exe 13
own:
";
const OWN: &str = " \
kill 0 queue 0 pidfd 0 read 0 write 0 take 0 same 0 robust 0
 nice 0 policy 0 parameter 0 processors 0 disk 0 limit 0 limits 0
 /environ 0 /mem 0 /maps 0 /fd 0 /fd/0 0 /cwd 0 /oom 0 /stat 0 /status 0 link 0 exe 0
";

const CHANGED: &str = " kill 0 nice 0 read 0 /environ 0 /fd 0 / 0 exe 0\n";

/// A user reaches no process of another one, and root reaches both. One that has changed its user
/// is closed until it executes a program.
fn users_are_kept_apart(w: &World) -> Outcome {
    if w.engine == "R1" && !w.has_ids() {
        return Err(Skip("one mapped id, and root is not emulated".to_owned()));
    }
    prints(w, "others", include_str!("others.c"), &[OTHERS, OWN, OWN, CHANGED].concat())
}

/// Strict mode ends a process by `SIGKILL` where no filter takes its place. In N1 with one id it
/// does at calls that the view decides. A list of groups that is too long is looked at too.
fn strict_mode(w: &World) -> Outcome {
    let ends = match w.engine.as_str() {
        // The filter around the suite refuses others.
        "F2" => "1 1 1",
        "P1" | "P2" | "R2" => "-31 -31 100",
        "N1" if !w.user.range => "-31 -9 100",
        _ => "-9 -9 100",
    };
    if w.engine == "R1" && !w.has_ids() {
        return Err(Skip("one mapped id: the kernel forbids setgroups".to_owned()));
    }
    let expected = format!("strict {ends}, groups 14 22\n");
    prints(w, "strict", include_str!("strict.c"), &expected)
}

/// `chattr` changes a file and a directory of the container, but not one of the image.
fn flags_of_files(w: &World) -> Outcome {
    let image = if w.has_overlay() { 0 } else { 95 };
    // With one id of the kernel's a program cannot become another user.
    let other = if w.has_ids() { 1 } else { 99 };
    let expected =
        format!("file 0, directory 0, image {image}, immutable 1 1 1, other's {other}\n");
    prints(w, "flags", include_str!("flags.c"), &expected)
}

/// In `/proc/self/maps` the stack does not follow a mapping with a name in brackets: `PMIx`
/// passes over the line behind one, and looks for free memory beyond the stack.
fn stack_is_found(w: &World) -> Outcome {
    if w.engine.starts_with(['N', 'R']) {
        return Err(Skip("the kernel itself loads programs".to_owned()));
    }
    let maps = w.guest(&[], &["read", "/proc/self/maps"]).ok().out();
    let lines: Vec<&str> = maps.lines().collect();
    let stack = lines.iter().position(|line| line.ends_with("[stack]"));
    let stack = stack.unwrap_or_else(|| panic!("{maps}"));
    assert!(!lines[stack - 1].ends_with(']'), "{maps}");
    Ok(())
}

/// Compiles a program and compares what it prints in the mode of the world (in F1 too, for F2).
fn prints(w: &World, name: &str, source: &str, expected: &str) -> Outcome {
    let dir = w.dir(name);
    let program = compiled(&w.file(&dir, &format!("{name}.c"), source), &["-static"])?;
    let bound = format!("{}:/program", program.display());
    let also = (w.engine == "F2").then_some("F1");
    for mode in [w.engine.as_str()].into_iter().chain(also) {
        let mode = format!("--execmode={mode}");
        let done = w.coracle(&["run", "--rm", &mode, "-v", &bound, &w.image, "/program"]);
        assert_eq!(done.ok().out(), expected, "{mode}: {done:?}");
    }
    Ok(())
}
