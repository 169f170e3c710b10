//! Tests that no library of the host is ever loaded, whatever is looked up.

use testkit::nss;
use testkit::skip::Outcome;

use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] =
    &[("looking_up_hosts", looking_up_hosts), ("looking_up_users", looking_up_users)];

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
