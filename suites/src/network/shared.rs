//! A container that shares another one's network (`--network container:NAME`): both have the same
//! addresses, ports, loopback and names, in every mode, and nothing of the host's.

use std::net::TcpListener;

use testkit::command::{Finished, until};

use crate::network::containers::{Lab, World};

/// A case of a mode.
type Case = fn(&World);

/// All of them.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("one_network_for_two", one_network_for_two),
    ("after_the_other_ended", after_the_other_ended),
    ("of_another_mode", of_another_mode),
];

/// Only the container itself and who shares its network reach it there.
const LOOPBACK: [&str; 4] = ["/bin/tool", "serve", "127.0.0.1", "80"];
const CALL: [&str; 4] = ["/bin/tool", "call", "127.0.0.1", "80"];
const SELF: [&str; 4] = ["/bin/tool", "self", "-", "0"];
const SOON: std::time::Duration = std::time::Duration::from_secs(20);

/// Whether the server has told a caller its name, which has this address.
fn is_told(done: &Finished, address: &str) -> bool {
    done.code() == 0 && done.out().trim_start_matches('"').starts_with(address)
}

/// The same at the loopback.
fn is_heard(done: &Finished) -> bool {
    is_told(done, "127.0.0.1:")
}

/// Runs a program beside `db`. `more`: options.
fn beside(lab: &Lab<'_>, more: &[&str], words: &[&str]) -> Finished {
    let first = ["run", "--network=container:db"];
    lab.person.run(&[&first[..], more, &[lab.image()], words].concat())
}

fn mode(world: &World) -> String {
    format!("--execmode={}", world.mode)
}

fn one_network_for_two(world: &World) {
    let lab = world.lab_with(&["--internal"]);
    let mode = mode(world);
    lab.start("db", &[], &LOOPBACK);
    let one = beside(&lab, &["--rm", &mode], &CALL);
    assert!(is_heard(&one), "{one:?}");
    // The right mode is found where none is given.
    let found = beside(&lab, &["--rm"], &CALL);
    assert!(is_heard(&found), "{found:?}");
    let own = beside(&lab, &["--rm", &mode], &SELF);
    assert_eq!(own.ok().out(), "db is 100.80.0.2\n");
    // What listens there is reached by the container, by others at its address, and not at their
    // own loopback.
    beside(&lab, &["-d", "--name=side", &mode], &["/bin/tool", "serve", "0.0.0.0", "81"]).ok();
    lab.is_ready("side");
    let at = |address| ["/bin/tool", "call", address, "81"];
    let inside = lab.person.run(&[&["exec", "db"][..], &at("127.0.0.1")].concat());
    let entered = lab.person.run(&[&["exec", "side"][..], &CALL].concat());
    let names = lab.person.run(&["exec", "side", "/bin/tool", "names", "db,db.lab", "0"]);
    let third = lab.run("third", &at("100.80.0.2"));
    let others = lab.run("third", &at("127.0.0.1"));
    // The host is as far as it is for the other one.
    let host = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = host.local_addr().expect("an address").port().to_string();
    let out = beside(&lab, &["--rm", &mode], &["/bin/tool", "call", "127.0.0.1", &port]);
    lab.person.run(&["rm", "-f", "side"]).ok();
    assert!(is_heard(&inside) && is_heard(&entered), "{inside:?} {entered:?}");
    assert_eq!(names.ok().out(), "db is 100.80.0.2\ndb.lab is 100.80.0.2\n");
    assert!(is_told(&third, "100.80.0.3:"), "{third:?}");
    assert_eq!((others.out(), out.out()), ("ECONNREFUSED\n".into(), "ECONNREFUSED\n".into()));
}

/// It keeps its loopback, and no other container gets that.
fn after_the_other_ended(world: &World) {
    let lab = world.lab_with(&["--internal"]);
    let mode = mode(world);
    lab.start("db", &[], &LOOPBACK);
    beside(&lab, &["-d", "--name=side", &mode], &["/bin/tool", "serve", "127.0.0.1", "81"]).ok();
    lab.is_ready("side");
    lab.person.run(&["rm", "-f", "db"]).ok();
    lab.start("next", &[], &LOOPBACK);
    let call = ["/bin/tool", "call", "127.0.0.1", "81"];
    let next = lab.person.run(&[&["exec", "next"][..], &call].concat());
    let entered = if world.has_packets() {
        None
    } else {
        Some(lab.person.run(&[&["exec", "side"][..], &call].concat()))
    };
    let gone = beside(&lab, &["--rm", &mode], &CALL);
    lab.person.run(&["rm", "-f", "side"]).ok();
    assert_eq!(next.ok().out(), "ECONNREFUSED\n");
    assert!(entered.as_ref().is_none_or(is_heard), "{entered:?}");
    assert_eq!(gone.code(), 125, "{gone:?}");
}

/// A mode that makes networks in the other way says so.
fn of_another_mode(world: &World) {
    let lab = world.like_the_oracle();
    lab.start("db", &[], &LOOPBACK);
    let (other, what) = if world.has_packets() {
        ("--execmode=P1", "of one in a network namespace is not possible with engine P1")
    } else {
        ("--execmode=N1", "of one whose addresses are translated is not possible with engine N1")
    };
    let refused = beside(&lab, &["--rm", other], &CALL);
    // In no case it is the host's network.
    let usable = !refused.err().contains("is not usable");
    assert_eq!(refused.code(), 125, "{refused:?}");
    assert!(!usable || refused.err().contains(what), "{refused:?}");
    // That of a container with the host's network is the host's, in every mode.
    lab.person.run(&["rm", "-f", "db"]).ok();
    let host = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = host.local_addr().expect("an address").port().to_string();
    let start = ["run", "-d", "--name=db", &mode(world), "-h", "host-db", lab.image()];
    lab.person.run(&[&start[..], &["/bin/tool", "serve", "127.0.0.1", "0"]].concat()).ok();
    lab.is_ready("db");
    let thread = std::thread::spawn(move || host.accept().map(drop));
    let call = ["/bin/tool", "call", "127.0.0.1", &port];
    let same = beside(&lab, &["--rm", &mode(world)], &call);
    let named = beside(&lab, &["--rm", &mode(world)], &SELF);
    let called = until(SOON, || thread.is_finished().then_some(()));
    lab.person.run(&["rm", "-f", "db"]).ok();
    assert!(called.is_some() && !same.out().contains("ECONN"), "{same:?}");
    assert!(named.out().starts_with("host-db is 127."), "{named:?}");
}
