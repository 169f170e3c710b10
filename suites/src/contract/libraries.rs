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
    // In a home of its own: a new home has nothing kept, which commands of other cases need.
    let w = &w.at(&w.dir("traced"));
    let archive = w.home.join("guest.tar");
    fs::write(&archive, testkit::guest::layer().finish()).expect("an archive");
    let image = "localhost/traced:1";
    w.coracle(&["import", &archive.display().to_string(), image]).ok();
    check(w, &["run", "--rm", image, "/bin/guest", "exit", "0"])?;
    w.coracle(&["run", "--rm", &w.mode(), image, "/bin/guest", "exit", "7"]).expect(7);
    Ok(())
}
