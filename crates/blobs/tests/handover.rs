//! Tests of the stage as a backend in the process: a container of one process and its descendants,
//! started without an engine.
//!
//! The container's root is the host's, with a directory bound to `/inside`; the directory's name on
//! the host is hidden.

mod container;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use abi::boot;
use abi::shared::Switches;
use container::{Container, Way, text};

fn shell(start: &Way, script: &str) -> String {
    let container = Container::new();
    let shell = fs::canonicalize("/bin/sh").unwrap();
    text(&container.run(start, &shell, &["sh", "-c", script]))
}

const SCRIPT: &str = "cat /inside/file; for i in 1 2 3; do /bin/echo $i | cat; done; env; cat /proc/self/environ | tr '\\0' ' ';
    ls /inside; test -e /proc/self/exe && readlink /proc/self/exe | sed s,.*/,,; grep -v heap /proc/self/maps | grep -c ^5501; sh -c 'exit 3' || echo $?";
const SAID: &str = "text1\n2\n3\nA=1\nPWD=/\nA=1 PWD=/ file\nreadlink\n0\n3\n";

fn sorted(text: &str) -> String {
    // Shells differ in the variables that they set.
    text.lines().filter(|line| !line.contains("PWD") && !line.starts_with('_')).collect()
}

#[test]
fn programs_execute_programs_at_every_place() {
    for base in 0..boot::BASES {
        let said = shell(&Way { base, ..Way::default() }, SCRIPT);
        assert_eq!(sorted(&said), sorted(SAID), "{base}: {said}");
    }
}

#[test]
fn a_stage_that_is_nowhere_on_disk_is_executed_again() {
    let said = shell(&Way { in_memory: true, ..Way::default() }, SCRIPT);
    assert_eq!(sorted(&said), sorted(SAID), "{said}");
}

#[test]
fn every_switch_is_survived() {
    // All but the one that only talks.
    for bit in 0..6 {
        let switches = Switches(1 << bit);
        let start = Way { switches, ..Way::default() };
        // The kernel shows the string's place, emptied, where it cannot be told otherwise.
        let said = shell(&start, SCRIPT).replace('\0', "");
        assert_eq!(sorted(&said), sorted(SAID), "{bit}: {said}");
    }
}

#[test]
fn vectors_and_descriptors_arrive() {
    let container = Container::new();
    let Some(guest) = container.compile("vectors.c", &[]) else { return };
    let start = Way { base: 1, ..Way::default() };
    let inside = text(&container.run(&start, &guest, &["main"]));
    let _alone = container::alone();
    let native = Command::new(&guest).arg0("main").env_clear().env("A", "1").output().unwrap();
    assert_eq!(inside, text(&native));
}

#[test]
fn memory_that_is_not_the_programs_stays_as_it_is() {
    for (base, flags) in [(0, &["-O1"][..]), (3, &["-O1", "-static"]), (0, &["-no-pie"])] {
        let container = Container::new();
        let Some(guest) = container.compile("neighbours.c", flags) else { return };
        let at = format!("{:#x}", boot::start(base));
        let start = Way { base, ..Way::default() };
        assert_eq!(text(&container.run(&start, &guest, &["neighbours", &at])), "good\n");
    }
}

#[test]
fn calls_of_i386_see_what_other_calls_see() {
    let container = Container::new();
    let Some(guest) = container.compile("narrow.c", &[]) else { return };
    let said = text(&container.run(&Way::default(), &guest, &["narrow"]));
    let expected = "open -2 access -2 stat64 -2 mkdir -2 execve -2\nopen 1 access 0 stat64 0 size 4 read 4 text\n\
                    getpid 1 write 0\nchdir 0\ngetcwd 8 /inside\n";
    assert_eq!(said, expected);
}

#[test]
fn programs_of_i386_are_refused_with_a_reason() {
    let container = Container::new();
    // A file header for i386 is enough.
    let mut header = [0; 116];
    header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    header[16..22].copy_from_slice(&[2, 0, 3, 0, 1, 0]);
    header[28] = 52;
    header[40..46].copy_from_slice(&[52, 0, 32, 0, 1, 0]);
    header[52] = 1;
    let file = container.file("inside/narrow");
    fs::write(&file, header).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let output = container.run(&Way::default(), &shell, &["sh", "-c", "exec /inside/narrow"]);
    assert_eq!(output.status.code(), Some(126));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("32-bit") && said.contains("--execmode=P1"), "{said}");
}
