//! IPv6 in networks: members with devices have addresses that follow from their IPv4 addresses,
//! and members without have none.

use std::fs;

use serde_json::{Value, json};
use testkit::command::Finished;
use testkit::skip::{Outcome, Skip};

use crate::network::containers::{Lab, World};

type Case = fn(&World) -> Outcome;

/// For modes with devices.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("ipv6_between_members", between_members),
    ("ipv6_by_its_address", by_its_address),
    ("ipv6_in_an_oci_runtime", in_an_oci_runtime),
    ("ipv6_beside_a_way_out", beside_a_way_out),
];
const LAN: &str = "/bin/lan";
const PREFIX: &str = "fd00:80::/64";
/// The first member's address, and the second's.
pub(crate) const FIRST: &str = "fd00:80::6450:2";
const SECOND: &str = "fd00:80::6450:3";
/// The first member's name and its addresses backwards.
const BACKWARDS: &str = "2.0.0.0.0.5.4.6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.0.0.0.0.d.f.ip6.arpa";
/// How much a stream carries in each direction.
const BYTES: &str = "33554432";

/// Whether the kernel has IPv6.
///
/// # Errors
/// A skip, where it has none.
pub(crate) fn exists() -> Result<(), Skip> {
    fs::metadata("/proc/net/if_inet6")
        .map(drop)
        .map_err(|_| Skip("the kernel has no IPv6".to_owned()))
}

/// A network with IPv6 whose first member serves.
fn served(world: &World) -> Result<Lab<'_>, Skip> {
    exists()?;
    let lab = world.lab_with(&["--internal", "--ipv6", "--subnet", PREFIX]);
    lab.start("db", &[], &[LAN, "serve6"]);
    Ok(lab)
}

fn lan(lab: &Lab<'_>, words: &[&str]) -> Finished {
    lab.run("caller", &[&[LAN], words].concat())
}

fn parsed(done: &Finished) -> Value {
    serde_json::from_slice(&done.ok().stdout).expect("JSON")
}

/// Names, protocols of both versions to one server, and what leads nowhere.
fn between_members(world: &World) -> Outcome {
    let lab = served(world)?;
    let near = "fe80::42:64ff:fe50:2%eth0";
    let names = ["aaaa", "db", "aaaa", "DB.lab", "aaaa", "nobody", "ptr", BACKWARDS, "udp", "db"];
    let calls = ["ping6", "db", "ping6", FIRST, "ping6", near, "datagrams", FIRST];
    let more = ["streams", FIRST, BYTES, "ping", "100.80.0.2", "datagrams", "100.80.0.2"];
    // Frames are lost among so many, and those that ask for an address are sent again.
    let done = lan(&lab, &[&["noise", "20000"], &names[..], &calls, &more].concat());
    let sizes = "1 1400 9000 32000 65507 unchanged";
    let expected = format!(
        "made noise\n{FIRST}\n{FIRST}\nerror 2\ndb.lab.\n100.80.0.2\nalive\nalive\nalive\n{sizes}\n\
         unchanged\nalive\n{sizes}\n"
    );
    assert_eq!(done.ok().out(), expected);
    let words =
        ["ahosts", "db", "shown", "/etc/hosts", ".lab", "shown", "/proc/net/if_inet6", "eth"];
    // All lines with a name count, as /etc/host.conf says in most images.
    let options = ["--ip", "100.80.0.3", "-e", "RESOLV_MULTI=on"];
    let text = lab.run_with("caller", &options, &[&[LAN], &words[..]].concat()).ok().out();
    let lines: Vec<&str> = text.lines().collect();
    let mut all: Vec<&str> = lines[0].split(' ').collect();
    all.sort_unstable();
    assert_eq!(all, ["100.80.0.2", FIRST], "{text}");
    let begins = ["100.80.0.3\tcaller ", SECOND, "100.80.0.2\tdb ", FIRST];
    for (line, begin) in lines[1..5].iter().zip(begins) {
        assert!(line.starts_with(begin), "{text}");
    }
    // The kernel asks nobody whether the addresses are free: flag 0x02, and not 0x40.
    for (address, rest) in
        [("fe80000000000000004264fffe500003", " 40 20 82"), ("fd000080", " 40 00 82")]
    {
        let line = lines[5..].iter().find(|line| line.starts_with(address));
        assert!(line.is_some_and(|line| line.contains(rest)), "{text}");
    }
    // Nothing waits for what is not there.
    for (address, end) in [("2001:db8::1", "ENETUNREACH"), ("fd00:80::6450:9", "EHOSTUNREACH")] {
        assert_eq!(lan(&lab, &["call", address, "7000"]).out(), format!("connect: {end}\n"));
    }
    Ok(())
}

/// What is shown of the addresses, and an IPv6 address that is wished.
fn by_its_address(world: &World) -> Outcome {
    let lab = served(world)?;
    let network = parsed(&lab.person.run(&["network", "inspect", "lab"]));
    let network = &network[0];
    assert_eq!(network["EnableIPv6"], true, "{network}");
    assert_eq!(network["IPAM"]["Config"][1], json!({"Subnet": PREFIX}), "{network}");
    let member = network["Containers"].as_object().and_then(|all| all.values().next());
    let member = member.expect("a member");
    assert_eq!(member["IPv6Address"], format!("{FIRST}/64"), "{network}");
    let endpoint = |name: &str| {
        let format = "{{json .NetworkSettings.Networks.lab}}";
        parsed(&lab.person.run(&["inspect", "--format", format, name]))
    };
    let db = endpoint("db");
    assert_eq!((&db["GlobalIPv6Address"], &db["GlobalIPv6PrefixLen"]), (&json!(FIRST), &json!(64)));
    // One of IPv6 says which one of IPv4.
    let wish = ["--ip6", "fd00:80::100.80.0.77"];
    let done = lab.run_with("caller", &wish, &[LAN, "device", "eth0", "ping6", FIRST]);
    assert_eq!(done.ok().out(), "100.80.0.77 mtu 65520 02:42:64:50:00:4d\nalive\n");
    let explained = ["--explain", "--ip6", "fd00:80::6450:4d"];
    let plan = parsed(&lab.run_with("caller", &explained, &[LAN]));
    let place = &plan["network"]["networks"][0];
    assert_eq!(
        (&place["ipv6"], &place["address"]),
        (&json!("fd00:80::6450:4d"), &json!("100.80.0.77"))
    );
    lab.person.run(&["stop", "-t", "0", "db"]).ok();
    lab.person.run(&["network", "disconnect", "lab", "db"]).ok();
    lab.person.run(&["network", "connect", "--ip6", "fd00:80::6450:7", "lab", "db"]).ok();
    lab.person.run(&["start", "db"]).ok();
    let wished = json!({"IPv4Address": "100.80.0.7", "IPv6Address": "fd00:80::6450:7"});
    let db = endpoint("db");
    assert_eq!((&db["IPAMConfig"], &db["IPAddress"]), (&wished, &json!("100.80.0.7")), "{db}");
    assert_eq!(db["GlobalIPv6Address"], "fd00:80::6450:7");
    Ok(())
}

/// The namespace is made by `runc` or `crun`.
fn in_an_oci_runtime(world: &World) -> Outcome {
    let lab = served(world)?;
    let words = [LAN, "aaaa", "db", "ping6", "db", "datagrams", FIRST, "streams", FIRST, "1048576"];
    let first = ["run", "--rm", "--execmode=R1", "--network=lab", lab.image()];
    let done = lab.person.run(&[&first[..], &words].concat());
    if done.err().contains("neither runc nor crun") {
        return Err(Skip("neither runc nor crun is installed".to_owned()));
    }
    let sizes = "1 1400 9000 32000 65507 unchanged";
    assert_eq!(done.ok().out(), format!("{FIRST}\nalive\n{sizes}\nunchanged\n"));
    Ok(())
}

/// A helper program or the switch leads out, and neither is in the way.
fn beside_a_way_out(world: &World) -> Outcome {
    exists()?;
    let lab = world.lab_with(&["--ipv6", "--subnet", PREFIX]);
    lab.start("db", &[], &[LAN, "serve6"]);
    let words = ["ping6", "db", "datagrams", FIRST, "ping", "100.80.0.2"];
    let sizes = "1 1400 9000 32000 65507 unchanged";
    assert_eq!(lan(&lab, &words).ok().out(), format!("alive\n{sizes}\nalive\n"));
    Ok(())
}

/// Without devices there are no IPv6 addresses, and nobody is told of any.
pub(crate) fn for_packets(world: &World) {
    let lab = world.lab_with(&["--ipv6", "--subnet", PREFIX]);
    lab.start("db", &[], &["/bin/tool", "serve", "0.0.0.0", "80"]);
    let words = [LAN, "aaaa", "db", "udp", "db", "ahosts", "db", "shown", "/etc/hosts", "fd00"];
    assert_eq!(lab.run("caller", &words).ok().out(), "no data\n100.80.0.2\n100.80.0.2\n");
    let network = lab.person.run(&["network", "inspect", "lab"]).ok().out();
    assert!(network.contains(PREFIX) && network.contains("\"IPv6Address\": \"\""), "{network}");
    let inspected = lab.person.run(&["inspect", "db"]).ok().out();
    assert!(inspected.contains("\"GlobalIPv6Address\": \"\""), "{inspected}");
    let refused = lab.run_with("caller", &["--ip6", SECOND], &[LAN]);
    assert!(refused.err().contains("its mode gives IPv4 addresses only"), "{refused:?}");
    assert!(refused.err().contains("hint: use a mode with namespaces"), "{refused:?}");
}
