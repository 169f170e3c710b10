//! Tests of what networks without packets do not have, and of mistakes when a container starts in
//! one: each is an error of one line, and the members go on.

use testkit::skip::Outcome;

use crate::servers::In;
use crate::servers::stage::{Case, World, guest};
use crate::servers::web::free_port;

pub(crate) const CASES: &[(&str, In, Case)] = &[
    ("raw_and_groups", In::All, raw_and_groups),
    ("taken_address", In::First, taken_address),
    ("odd_names", In::First, odd_names),
    ("published_twice", In::First, published_twice),
];

/// Raw and packet sockets are refused as for every user, but by packets. Groups are the host's, or
/// those of the helper that leads out, so a member is not reached by them, but at its own address;
/// where the switch leads out, they are the network's.
fn raw_and_groups(w: &World) -> Outcome {
    let lab = w.lab();
    lab.serve("listener", "wait_for test -e /ready; exec python3 /limits.py listen");
    lab.serve("asker", "sleep 1000");
    for name in ["listener", "asker"] {
        lab.write(name, "/limits.py", guest("limits.py"));
    }
    lab.exec("listener", "touch /ready").ok();
    lab.expect("listener", "ready True\n");
    let done = lab.exec("asker", "python3 /limits.py ask listener");
    let raw = if w.has_packets() { "ok" } else { "EPERM" };
    let expected = "group True\nbroadcast EACCES\nanswer True\n";
    assert_eq!(done.ok().out(), format!("raw {raw}\npacket {raw}\n{expected}"), "{done:?}");
    let group = if w.is_led_by_switch() { "got group\n" } else { "" };
    let log = lab.log("listener").ok().out();
    assert_eq!(log, format!("ready True\n{group}got member\n"));
    Ok(())
}

/// An address that a member has. It is free when that one has ended.
fn taken_address(w: &World) -> Outcome {
    let lab = w.lab();
    lab.serve("first", "sleep 1000");
    let address = lab.address("first");
    let wish = ["--ip", &address];
    let refused = lab.run_with("second", &wish, "true").expect(125).err();
    let (network, holder) = (&lab.network, lab.name("first"));
    let fact = format!("error: address {address} of network {network} is taken by {holder}\n");
    assert!(refused.starts_with(&fact), "{refused}");
    lab.remove("first");
    assert_eq!(lab.run_with("third", &wish, "hostname -i").ok().line(), address);
    Ok(())
}

/// Names that are no host's: too long for DNS, with capitals and underscores. They stand in the
/// files of the members, and other names are told as before.
fn odd_names(w: &World) -> Outcome {
    let lab = w.lab();
    let long = "n".repeat(80);
    lab.serve_with("Odd_one", &["--network-alias", &long], "sleep 1000");
    lab.serve("plain", "sleep 1000");
    let (odd, plain) = (lab.address("Odd_one"), lab.address("plain"));
    let done = lab.run(
        "client",
        &format!(
            "for name in {long} Odd_one odd_one plain; do getent hosts $name | cut -d ' ' -f 1; done
            dig +short odd_one; dig +short plain; dig +short -x {odd}"
        ),
    );
    let (name, network) = (lab.name("Odd_one"), &lab.network);
    let expected = format!(
        "{}{odd}\n{plain}\n{name}.{network}.\n",
        format!("{odd}\n").repeat(3) + &plain + "\n"
    );
    assert_eq!(done.ok().out(), expected, "{done:?}");
    let refused = lab.run_with("client", &["--network-alias", "a b"], "true").expect(125).err();
    assert!(refused.starts_with("error: "), "{refused}");
    Ok(())
}

/// One port of the host for two of a container. (For two containers: `same_port`.)
fn published_twice(w: &World) -> Outcome {
    let lab = w.lab();
    let port = free_port();
    let publish = [format!("127.0.0.1:{port}:80"), format!("127.0.0.1:{port}:81")];
    let options = ["-p", &publish[0], "-p", &publish[1]];
    let refused = lab.run_with("twice", &options, "true").expect(125).err();
    let fact = format!("error: --publish: port {port} of the host is given twice\n");
    assert!(refused.starts_with(&fact), "{refused}");
    Ok(())
}
