//! Cases that random operations seldom meet.

use super::super::fake::{Fault, Process};
use super::super::layered::{Layered, MOVED, UPPER};
use super::operations::{Operation, Operation::*};
use super::random::compare;
use super::tree::{c_string, tree};
use super::{Container, temporary};
use crate::kernel::Kernel;
use crate::overlay::{Overlay, base_of, copy_up, locate::Located, real_path, to_place};
use core::slice::from_ref;
use linux_raw_sys::general::{O_DIRECTORY, O_PATH};
use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;
use view::guest::Purpose;
use view::{Dir, Errno, Text};

fn s(text: &str) -> String {
    text.to_string()
}

fn done(container: &mut Container, operations: &[Operation]) {
    for operation in operations {
        assert_eq!(container.run(operation), Ok(Vec::new()), "{operation:?}");
    }
}

/// Fails the first call of this name in an operation.
fn fail_in(container: &mut Container, call: &str, operation: &Operation) {
    for at in 0..100 {
        let (machine, layers) = {
            let process = &container.files.process;
            (process.machine().clone(), process.layers.clone())
        };
        let process = Process { layers, umask: 0o022, ..Process::new(machine) };
        let mut trial = Container::of(process.with_fault(Fault::Error(at, Errno::ENOSPC)));
        let result = trial.run(operation);
        if trial.files.process.failed_in() == Some(call) {
            assert_eq!(result, Err(Errno::ENOSPC));
            trial.files.process.fault = None;
            container.files.process = trial.files.process;
            return;
        }
    }
    panic!("{operation:?} has no {call}");
}

#[test]
fn a_name_that_could_not_be_removed_keeps_its_directory() {
    let mut container = Container::layered();
    done(&mut container, &[Unlink(s("d/y")), Unlink(s("d/f")), Unlink(s("d/l"))]);
    fail_in(&mut container, "mknodat", &Unlink(s("d/x")));
    assert_eq!(container.run(&RemoveDirectory(s("d"))), Err(Errno::ENOTEMPTY));
    let mut other = Container::layered();
    done(&mut other, &[RemoveDirectory(s("e"))]);
    assert_eq!(container.run(&Rename(s("a"), s("d"), 0)), Err(Errno::ENOTEMPTY));
    done(&mut container, &[Unlink(s("d/x")), RemoveDirectory(s("d"))]);
}

#[test]
fn a_line_of_the_log_that_was_cut_off_takes_no_other_with_it() {
    let mut container = Container::layered();
    {
        let mut machine = container.machine();
        machine.file(MOVED, b"12 some/dire");
    }
    done(&mut container, &[Rename(s("a"), s("n"), 0)]);
    let process = &container.files.process;
    let fresh = Arc::new(Layered::new(&process.machine()));
    let whole = |layers| tree(&process.machine, Some(layers));
    assert_eq!(whole(&fresh), whole(process.layers.as_ref().unwrap()));
    assert!(whole(&fresh).contains_key(&format!("{UPPER}/n/b/x")));
}

#[test]
fn a_deleted_directory_is_not_taken_for_one_of_that_name() {
    let removed = || [MakeDirectory(s("x")), Hold(s("x")), RemoveDirectory(s("x"))];
    for name in ["@y", "@n"] {
        let (name, other) = (|| s(name), s("d/x"));
        for operation in
            [Look(name()), MakeFile(name()), Unlink(name()), Rename(other.clone(), name(), 0)]
        {
            compare(&[&removed()[..], &[operation, Name]].concat(), true);
        }
    }
    // The same of the image's directories, and of names that end so.
    let own = [Rename(s("d"), s("x"), 0), Hold(s("x (deleted)")), Look(s("@y"))];
    compare(&own, true);
    let moved = [Hold(s("x (deleted)")), Rename(s("x (deleted)"), s("n (deleted)"), 0)];
    compare(&[&moved[..], &[Name, Look(s("@y")), Unlink(s("@y")), Name]].concat(), true);
    let gone = [Hold(s("e")), RemoveDirectory(s("e")), MakeDirectory(s("e (deleted)"))];
    compare(&[&gone[..], &[Name, MakeFile(s("@y")), Look(s("e (deleted)/y"))]].concat(), true);
}

#[test]
fn names_move_between_directories_that_are_open_and_others() {
    for has_rename_whiteout in [true, false] {
        let compare = |operations: &[Operation]| compare(operations, has_rename_whiteout);
        // One directory is the container's alone, the other name is the image's.
        let own = [MakeDirectory(s("b")), Hold(s("b"))];
        for name in ["d", "e", "a/b", "f", "l", "n"] {
            compare(&[&own[..], &[Rename(s(name), s("@x"), 0), Name]].concat());
            let back = [MakeDirectory(s("@y")), Rename(s("@y"), s(name), 0), Look(s("e"))];
            compare(&[&own[..], &back].concat());
        }
        // The descriptor has the image's directory, and the names are the container's.
        for make in [MakeFile, MakeDirectory] {
            compare(&[Hold(s("a/b/c")), make(s("@y")), Rename(s("@y"), s("b"), 0), Read(s("b"))]);
        }
        // What could not be moved has replaced nothing.
        let gone = [Hold(s("a/b/c")), Unlink(s("@x")), Rename(s("d"), s("a/b/c"), 0), Name];
        compare(&gone);
    }
}

#[test]
fn a_directory_that_is_open_is_changed_at_its_name() {
    let container = Container::layered();
    let open = |path| container.files.open(Dir::Root, path, O_PATH | O_DIRECTORY, 0, 0).unwrap();
    let (moved, gone) = (open(c"/upper/a"), open(c"/upper/e"));
    let Container { files, .. } = &container;
    files.rename((Dir::Root, c"/upper/a"), (Dir::Root, c"/upper/n"), 0).unwrap();
    files.unlink(Dir::Root, c"/upper/e", linux_raw_sys::general::AT_REMOVEDIR).unwrap();
    files.mkdir(Dir::Root, c"/upper/e (deleted)", 0o755).unwrap();
    files.chmod(Dir::Held(moved), c"", 0o711).unwrap();
    assert_eq!(files.chmod(Dir::Held(gone), c"", 0o711), Err(Errno::EROFS));
    let mode = |path| {
        let machine = container.machine();
        machine.inode(machine.at(path).unwrap()).mode & 0o777
    };
    assert_eq!([mode("/upper/n"), mode("/upper/e (deleted)")], [0o711, 0o755]);
    files.process.close(moved);
    files.process.close(gone);
    container.check();
}

#[test]
fn long_names_have_the_kernels_errors() {
    let long = "n".repeat(256);
    let paths = |name: &str| {
        [
            s(name),
            format!("a/b/{name}"),
            format!("none/{name}"),
            format!("f/{name}"),
            format!("{name}/x"),
            format!("a/{name}/x"),
        ]
    };
    for path in paths(&long) {
        for operation in [
            Look(path.clone()),
            Unlink(path.clone()),
            MakeFile(path.clone()),
            MakeDirectory(path.clone()),
            Append(path.clone()),
        ] {
            compare(from_ref(&operation), true);
            compare(&[MakeFile(s("a/b/n")), operation.clone()], true);
            compare(&[Rename(s("d"), s("n"), 0), operation], true);
        }
    }
    let longest = "n".repeat(255);
    compare(&[MakeFile(format!("a/{longest}")), Rename(format!("a/{longest}"), s("f"), 0)], true);
    // Longer than a path.
    let deep = format!("{UPPER}/{}", "a/".repeat(2100));
    let files = Container::layered().files;
    let mut status = abi::layout::stat::EMPTY_STATX;
    assert!(files.statx(Dir::Root, &c_string(&deep), 0, &mut status).is_err());
}

#[test]
fn ends_of_paths_have_the_kernels_errors() {
    for end in ["/", "//"] {
        let at = |name: &str| format!("{name}{end}");
        for operation in [
            RemoveDirectory(at("e")),
            RemoveDirectory(at("f")),
            Unlink(at("f")),
            Unlink(at("e")),
            MakeDirectory(at("n")),
            MakeDirectory(at("e")),
            MakeFile(at("n")),
            Rename(at("e"), at("n"), 0),
            Rename(s("e"), at("n"), 0),
            Rename(s("f"), at("n"), 0),
            Rename(at("f"), s("n"), 0),
            Rename(s("f"), at("e"), 2),
            Rename(s("f"), at("g"), 2),
            Look(at("f")),
            Look(at("d")),
        ] {
            compare(from_ref(&operation), true);
            compare(&[RemoveDirectory(s("e")), MakeDirectory(s("e")), operation], true);
        }
    }
}

#[test]
fn the_log_has_each_name_of_a_directory_once() {
    let mut container = Container::layered();
    done(&mut container, &[Rename(s("a/b"), s("a/n"), 0)]);
    let names = ["n", "y", "d/n", "a"];
    for round in 0..12 {
        let [from, to] = [round + 3, round].map(|at: usize| s(names[at % names.len()]));
        done(&mut container, &[Rename(from, to, 0)]);
    }
    let machine = container.machine();
    let log = machine.bytes(machine.at(MOVED).unwrap());
    let lines: Vec<&[u8]> = log.split(|byte| *byte == 0).filter(|line| !line.is_empty()).collect();
    // Four names of `a`; of `b` its first one, and one in each of those.
    assert_eq!(lines.len(), 9, "{}", String::from_utf8_lossy(log));
}

#[test]
fn flags_of_rename_that_are_not_there_are_refused() {
    for flags in [3, 4, 5, 6, 8] {
        let mut container = Container::layered();
        assert_eq!(container.run(&Rename(s("f"), s("n"), flags)), Err(Errno::EINVAL));
        container.check();
    }
}

#[test]
fn a_record_is_noted_before_a_link_has_its_place() {
    let container = Container::layered();
    let process = &container.files.process;
    let note = |_: &[u8], _: &[u8]| Err(Errno::ENOSPC);
    // The image's links are root's, and need no record.
    assert_eq!(copy_up(process, c"/upper/l", note), Some(Ok(())));
    assert_eq!(copy_up(process, c"/elsewhere", note), None);
    assert_eq!(copy_up(process, c"/upper/none", note), Some(Err(Errno::ENOENT)));
    assert_eq!(temporary(&process.machine()), Vec::<String>::new());
}

#[test]
fn paths_that_the_kernel_is_given() {
    let mut container = Container::layered();
    done(&mut container, &[Unlink(s("d/x")), Rename(s("a/b"), s("n"), 0), MakeFile(s("y"))]);
    let process = &container.files.process;
    let real = |path: &str, purpose| {
        let mut text = Text::EMPTY;
        let is_hidden = real_path(process, &c_string(path), purpose, &mut text)?;
        Ok((String::from_utf8_lossy(text.as_bytes()).into_owned(), is_hidden))
    };
    let use_of = |path| real(path, Purpose::Use);
    assert_eq!(use_of("/etc/x"), Ok((s("/etc/x"), false)));
    assert_eq!(use_of("/upper"), Ok((s("/upper"), false)));
    assert_eq!(use_of("/upper/a/x"), Ok((s("/image/a/x"), false)));
    assert_eq!(use_of("/upper/n/x"), Ok((s("/image/a/b/x"), false)));
    assert_eq!(use_of("/upper/n/"), Ok((s("/upper/n/"), false)));
    assert_eq!(use_of("/upper/e/."), Ok((s("/image/e/."), false)));
    assert_eq!(use_of("/upper/y"), Ok((s("/upper/y"), false)));
    assert_eq!(use_of("/upper/d/x"), Err(Errno::ENOENT));
    assert_eq!(real("/upper/d/x", Purpose::Open), Ok((s("/upper/d/x"), true)));
    assert_eq!(real("/upper/d/n", Purpose::Open), Ok((s("/upper/d/n"), false)));
    assert_eq!(real("/upper/e/n", Purpose::Open), Ok((s("/upper/e/n"), false)));
    assert_eq!(real("/upper/none/n", Purpose::Open), Err(Errno::ENOENT));
    let base = |path: &str| base_of(process, &c_string(path));
    let index = process.layers.as_ref().unwrap().layers().image.index;
    let b = index.child(index.child(0, b"a").unwrap(), b"b");
    assert_eq!((base("/upper"), base("/upper/n"), base("/upper/y")), (Some(0), b, None));
    assert_eq!((base("/upper/n/c"), base("/etc")), (None, None));
    assert_eq!(base("/upper/e"), index.child(0, b"e"));
    let place = |path: &str| {
        let mut text = Text::EMPTY;
        text.set(path.as_bytes()).unwrap();
        to_place(process, &mut text).unwrap();
        String::from_utf8_lossy(text.as_bytes()).into_owned()
    };
    assert_eq!(place("/image"), "/upper");
    assert_eq!(place("/image/a/x"), "/upper/a/x");
    assert_eq!(place("/image/a/b/c/x"), "/upper/n/c/x");
    assert_eq!(place("/image/d/x"), "/upper/d/x (deleted)");
    assert_eq!(place("/image/none"), "/image/none");
    assert_eq!(place("/imagination"), "/imagination");
    let overlay = Overlay::of(process).unwrap();
    assert_eq!(overlay.locate(b"l/x"), Ok(Located::Link));
    assert_eq!(overlay.locate(b"f/x"), Err(Errno::ENOTDIR));
    container.check();
}
