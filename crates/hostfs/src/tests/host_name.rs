//! Tests of [`crate::host_name`].

use super::fake::{Fault, Process};
use super::machine::Machine;
use crate::host_name::{file, now, set};
use crate::kernel::{CWD, Kernel};
use std::string::String;
use std::sync::Arc;
use view::errno::Result;
use view::guest::HOST_NAME_MAX;
use view::{Errno, HostFd};

const RUN: &[u8] = b"/run";

/// A container that has just been started.
fn started() -> Process {
    let process = Process::new(Machine::new());
    for directory in [c"/run", c"/run/memory"] {
        process.mkdirat(CWD, directory, 0o700).unwrap();
        process.fchmodat(CWD, directory, 0o700).unwrap();
    }
    process
}

fn name(process: &Process) -> Option<String> {
    let mut bytes = [0; HOST_NAME_MAX];
    let length = now(process, RUN, &mut bytes)?;
    Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
}

/// A guest opens the file and writes to it.
fn write(process: &Process, text: &str) -> Result<HostFd> {
    let opened = file(process, RUN)?;
    process.write(opened, text.as_bytes())?;
    Ok(opened)
}

#[test]
fn the_last_one_counts() {
    let process = started();
    assert_eq!(name(&process), None);
    set(&process, RUN, b"one").unwrap();
    assert_eq!(name(&process).as_deref(), Some("one"));
    write(&process, "two\n").unwrap();
    assert_eq!(name(&process).as_deref(), Some("two"));
    set(&process, RUN, b"three").unwrap();
    assert_eq!(name(&process).as_deref(), Some("three"));
    write(&process, "fo").unwrap();
    write(&process, "f").unwrap();
    assert_eq!(name(&process).as_deref(), Some("f"));
    set(&process, RUN, b"").unwrap();
    assert_eq!(name(&process).as_deref(), Some(""));
    let longest = "x".repeat(HOST_NAME_MAX);
    set(&process, RUN, longest.as_bytes()).unwrap();
    assert_eq!(name(&process), Some(longest.clone()));
    assert_eq!(set(&process, RUN, &[b'x'; HOST_NAME_MAX + 1]), Err(Errno::EINVAL));
    assert_eq!(name(&process), Some(longest));
}

#[test]
fn what_is_written_ends_as_the_kernels() {
    let process = started();
    let longest = "y".repeat(HOST_NAME_MAX);
    for (text, wanted) in
        [("a\nb\n", "a"), ("a\0b\n", "a"), ("\n", ""), (&*std::format!("{longest}zz\n"), &*longest)]
    {
        write(&process, text).unwrap();
        assert_eq!(name(&process).as_deref(), Some(wanted), "{text:?}");
    }
    // Behind a line that has ended, nothing counts; a line that has not goes on.
    let opened = write(&process, "one\n").unwrap();
    process.write(opened, b"more\n").unwrap();
    assert_eq!(name(&process).as_deref(), Some("one"));
    let opened = write(&process, "tw").unwrap();
    process.write(opened, b"o\n").unwrap();
    assert_eq!(name(&process).as_deref(), Some("two"));
}

#[test]
fn nothing_is_written_before_it_is() {
    let process = started();
    set(&process, RUN, b"old").unwrap();
    let first = file(&process, RUN).unwrap();
    assert_eq!(name(&process).as_deref(), Some("old"));
    // Others who open it, and calls meanwhile, take nothing from it.
    file(&process, RUN).unwrap();
    set(&process, RUN, b"other").unwrap();
    assert_eq!(name(&process).as_deref(), Some("other"));
    process.write(first, b"mine\n").unwrap();
    assert_eq!(name(&process).as_deref(), Some("mine"));
    // What was written stays when the next one opens it.
    let next = file(&process, RUN).unwrap();
    assert_eq!(name(&process).as_deref(), Some("mine"));
    process.write(next, b"next").unwrap();
    assert_eq!(name(&process).as_deref(), Some("next"));
}

type Change = fn(&Process) -> Result<()>;

#[test]
fn a_process_may_be_killed_at_any_call() {
    let changes: [(&str, Change); 2] = [
        ("set", |process| set(process, RUN, b"new")),
        ("written", |process| write(process, "new\n").map(drop)),
    ];
    for (how, change) in changes {
        for written_before in [false, true] {
            let mut step = 0;
            loop {
                let first = started();
                set(&first, RUN, b"old").unwrap();
                if written_before {
                    write(&first, "old\n").unwrap();
                }
                let killed =
                    Process::on(&Arc::clone(&first.machine)).with_fault(Fault::Killed(step));
                let done = change(&killed);
                killed.end();
                let context = std::format!("{how} {written_before} {step}");
                let found = name(&first);
                let wanted: &[&str] = if done.is_ok() { &["new"] } else { &["old", "new"] };
                assert!(
                    wanted.contains(&found.as_deref().unwrap_or_default()),
                    "{context} {found:?}"
                );
                // Others go on.
                set(&first, RUN, b"next").unwrap();
                assert_eq!(name(&first).as_deref(), Some("next"), "{context}");
                write(&first, "last\n").unwrap();
                assert_eq!(name(&first).as_deref(), Some("last"), "{context}");
                if done.is_ok() {
                    break;
                }
                step += 1;
            }
            assert!(step > 5, "{how}");
        }
    }
}
