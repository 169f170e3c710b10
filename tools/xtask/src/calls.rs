//! Prints `docs/syscalls.md` from the table of system calls in `abi`.

use std::fmt::Write as _;
use std::fs;

use abi::calls::filter::{Catch, Interest, catch};
use abi::calls::{Arch, CALLS, Class, Entry};

use crate::shell::{Outcome, root};

const FILE: &str = "docs/syscalls.md";

/// Writes the document.
pub(crate) fn write() -> Outcome {
    fs::write(root().join(FILE), text()).map_err(|error| format!("{FILE}: {error}"))
}

/// Checks that the document is what the table gives.
pub(crate) fn check() -> Outcome {
    let there = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    if there == text() { Ok(()) } else { Err(format!("{FILE} is old: run `cargo xtask docs`")) }
}

const CLASSES: [(Class, &str, &str); 8] = [
    (
        Class::Path,
        "Files by name",
        "The path is resolved inside the container's root and bindings. Then the engine answers the \
         call, or makes it with the host's path.",
    ),
    (
        Class::Descriptor,
        "Open files",
        "Owner, mode, attributes, directory entries and working directory are shown and kept as the \
         container has them.",
    ),
    (
        Class::Identity,
        "Ids",
        "Emulated ids are kept for each thread as credentials(7) says; otherwise they are the kernel's. \
         Objects of System V are shown with ids of the container.",
    ),
    (
        Class::Socket,
        "Addresses of sockets",
        "Names of Unix sockets are resolved in the container, and shown as the guest knows them; ids \
         in messages are translated.",
    ),
    (
        Class::Exec,
        "Programs",
        "Scripts and interpreters are found in the container; the stage maps the program.",
    ),
    (
        Class::Process,
        "Processes and the system",
        "Calls whose answer differs between container and host: filters, tracing, roots, namespaces.",
    ),
    (
        Class::Refused,
        "Refused",
        "These would leave the container's root or change the host. They give the error of a kernel \
         without the feature, or without the privilege.",
    ),
    (Class::Plain, "Left to the kernel", "These are never stopped in P1."),
];

const OPENING: &str = "\
`cargo xtask docs` makes this file from `crates/abi/src/calls/table.rs`; do not edit it. It says what \
engines without kernel namespaces (I1, I2, F1, F2, P1, P2) do with each system call of Linux on \
x86-64, i386 and arm64. The seccomp filter and the dispatch come from the same table. Arguments in \
bold are paths that are resolved inside the container. A call that is not listed gives `ENOSYS` to \
the guest.";

fn text() -> String {
    let mut text = format!("# System calls\n\n{}", wrapped(OPENING));
    for (class, title, about) in CLASSES {
        let _ = write!(text, "\n## {title}\n\n{}\n", wrapped(about));
        let entries = CALLS.iter().filter(|entry| entry.class == class);
        if class == Class::Plain {
            let names: Vec<&str> = entries.map(|entry| entry.name).collect();
            text.push_str(&wrapped(&names.join(", ")));
            continue;
        }
        text.push_str("| call | x86-64 | i386 | arm64 | arguments |\n|---|---|---|---|---|\n");
        for entry in entries {
            let _ = writeln!(text, "{}", row(entry));
        }
    }
    text
}

/// Prose in lines of at most 100 columns.
fn wrapped(prose: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in prose.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > 100 {
            text.push('\n');
            column = 0;
        }
        if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

fn row(entry: &Entry) -> String {
    let number = |arch| entry.number(arch).map_or_else(|| "-".to_owned(), |n: u32| n.to_string());
    let roles: Vec<String> = entry
        .roles
        .iter()
        .map(|role| if role.is_path() { format!("**{role:?}**") } else { format!("{role:?}") })
        .collect();
    // Whatever the container is.
    let interest = Interest { identity: true, host_name: true, ..Interest::default() };
    let also = entry.class != Class::Refused
        && abi::calls::filter::refusal(entry.op).is_some()
        && matches!(catch(Arch::X86_64, entry.op, &interest), Catch::Fail(_));
    format!(
        "| `{}`{} | {} | {} | {} | {} |",
        entry.name,
        if also { " (refused)" } else { "" },
        number(Arch::X86_64),
        number(Arch::I386),
        number(Arch::Aarch64),
        roles.join(", ")
    )
}
