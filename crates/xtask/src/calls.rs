//! `docs/syscalls.md`, printed from the table of system calls: what engines without namespaces do with each.

use std::fmt::Write as _;
use std::fs;

use abi::calls::{Arch, CALLS, Class, Entry};

use crate::shell::{Outcome, root};

const FILE: &str = "docs/syscalls.md";

/// Writes the document.
pub(crate) fn write() -> Outcome {
    fs::write(root().join(FILE), text()).map_err(|error| format!("{FILE}: {error}"))
}

/// Whether the document says what the table says.
pub(crate) fn check() -> Outcome {
    let there = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    if there == text() { Ok(()) } else { Err(format!("{FILE} is old: run `cargo xtask docs`")) }
}

const CLASSES: [(Class, &str, &str); 8] = [
    (
        Class::Path,
        "Files by name",
        "The path is resolved inside the container's root and bindings; the call is answered for the guest, or made with the host's path.",
    ),
    (
        Class::Descriptor,
        "Open files",
        "Owner, mode, attributes, directory entries and working directory are shown and kept as the container has them.",
    ),
    (
        Class::Identity,
        "Ids",
        "Kept per thread as credentials(7) says, where ids are emulated; else the kernel's.",
    ),
    (
        Class::Socket,
        "Addresses of sockets",
        "Names of Unix sockets are resolved and shown as the guest's; ids in messages are translated.",
    ),
    (
        Class::Exec,
        "Programs",
        "Scripts and interpreters are found in the container; our loader maps the program.",
    ),
    (
        Class::Process,
        "Processes and the system",
        "Where the guest is not the host: filters, tracing, roots, namespaces.",
    ),
    (
        Class::Refused,
        "Refused",
        "Would reach around the root or change the host: the error that a kernel without the feature, or without the privilege, gives.",
    ),
    (Class::Plain, "Left to the kernel", "Never stopped in P1."),
];

fn text() -> String {
    let mut text = String::from(
        "# System calls\n\nMade by `cargo xtask docs` from `crates/abi/src/calls/table.rs`; do not edit. This is what engines without kernel \
         namespaces (P1, P2)\ndo with each call of Linux on x86-64, i386 and arm64. From the same table come the seccomp filter and the \
         dispatch.\nArguments in bold are paths that are resolved inside the container. A call that is not here is `ENOSYS` to a \
         guest.\n",
    );
    for (class, title, about) in CLASSES {
        let _ = write!(text, "\n## {title}\n\n{about}\n\n");
        let entries = CALLS.iter().filter(|entry| entry.class == class);
        if class == Class::Plain {
            let names: Vec<&str> = entries.map(|entry| entry.name).collect();
            let _ = writeln!(text, "{}", names.join(", "));
            continue;
        }
        text.push_str("| call | x86-64 | i386 | arm64 | arguments |\n|---|---|---|---|---|\n");
        for entry in entries {
            let _ = writeln!(text, "{}", row(entry));
        }
    }
    text
}

fn row(entry: &Entry) -> String {
    let number = |arch| entry.number(arch).map_or_else(|| "-".to_owned(), |n: u32| n.to_string());
    let roles: Vec<String> = entry
        .roles
        .iter()
        .map(|role| if role.is_path() { format!("**{role:?}**") } else { format!("{role:?}") })
        .collect();
    format!(
        "| `{}` | {} | {} | {} | {} |",
        entry.name,
        number(Arch::X86_64),
        number(Arch::I386),
        number(Arch::Aarch64),
        roles.join(", ")
    )
}
