//! Tests that no library of the host is ever loaded, whatever is looked up. They watch commands by
//! `strace`, and what a command finds out under it counts for no other.

use std::fs;

use testkit::nss;
use testkit::skip::Outcome;

use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("looking_up_hosts", looking_up_hosts),
    ("looking_up_users", looking_up_users),
    ("after_a_traced_start", after_a_traced_start),
];

fn check(w: &World, words: &[&str]) -> Outcome {
    let found = nss::libraries(&w.user, &w.home, &w.coracle, words)?;
    assert!(found.is_empty(), "`{}` opens {found:?}", words.join(" "));
    Ok(())
}

fn looking_up_hosts(w: &World) -> Outcome {
    check(w, &["pull", "registry.invalid/some/image:1"])?;
    check(w, &["pull", "localhost:1/some/image:1"])?;
    check(w, &["search", "registry.invalid/term"])
}

fn looking_up_users(w: &World) -> Outcome {
    check(w, &["run", "--rm", "-u", "alice", &w.image, "/bin/guest", "exit", "0"])?;
    check(w, &["run", "--rm", "-u", "nobody-here", &w.image, "/bin/guest", "exit", "0"])?;
    check(w, &["doctor"])?;
    check(w, &["ps", "-a"])
}

/// A command that a tracer follows cannot trace, and nor can the others that it starts. The next
/// one can.
fn after_a_traced_start(w: &World) -> Outcome {
    let store = fs::read_dir(w.store()).expect("a store");
    for file in store.flatten() {
        if file.file_name().to_string_lossy().starts_with("host-") {
            // Another case's command may have replaced it.
            let _ = fs::remove_file(file.path());
        }
    }
    check(w, &["run", "--rm", &w.image, "/bin/guest", "exit", "0"])?;
    w.coracle(&w.words_for(&["run", "--rm"], &[], &["exit", "7"])).expect(7);
    Ok(())
}
