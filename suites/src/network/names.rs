//! Names of containers and host names, in every mode.

use std::fs;
use std::thread;

use crate::network::containers::{Lab, World};
use crate::network::outside::own_address;

/// A case of a mode.
type Case = fn(&World);

/// All of them.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("renamed", renamed),
    ("own_name", own_name),
    ("given_host_name", given_host_name),
    ("published_twice", published_twice),
    ("to_the_host", to_the_host),
    ("started_at_once", started_at_once),
];

const SERVE: [&str; 4] = ["/bin/tool", "serve", "0.0.0.0", "80"];

/// Prints the host name and what it means.
const SELF: [&str; 4] = ["/bin/tool", "self", "-", "0"];

/// What a container says of names, separated by commas.
fn asked(lab: &Lab<'_>, container: &str, names: &str) -> String {
    lab.person.run(&["exec", container, "/bin/tool", "names", names, "0"]).ok().out()
}

/// The first of two ports of the host for the cases of a mode, which run beside those of others.
fn port(world: &World) -> u16 {
    let all = ["I1", "P1", "F2", "N1-tap", "N1-veth"];
    let at = all.iter().zip(0..).find(|(label, _)| **label == world.label);
    19_200 + 2 * at.expect("a mode").1
}

/// A container's `/etc/hosts`.
fn hosts_of(lab: &Lab<'_>, container: &str) -> String {
    let path = lab.person.run(&["inspect", "--format", "{{.HostsPath}}", container]);
    fs::read_to_string(path.ok().line()).expect("a hosts file")
}

/// A name of a running container ends, and another begins, at once and for all members; the
/// container itself keeps its host name and finds itself by it.
fn renamed(world: &World) {
    let lab = world.like_the_oracle();
    lab.start("bb", &["--network-alias", "svc"], &SERVE);
    lab.start("other", &[], &SERVE);
    let rename = |old: &str, new: &str| {
        lab.person.run(&["rename", old, new]).ok();
    };
    rename("bb", "cc");
    let (seen, hosts) = (asked(&lab, "other", "cc,cc.lab,svc,bb"), hosts_of(&lab, "other"));
    let shown = lab.person.run(&["network", "inspect", "lab"]).ok().out();
    let own = lab.person.run(&[&["exec", "cc"], &SELF[..]].concat()).ok().out();
    // One that is renamed while it does not run has the new name when it does.
    lab.person.run(&["stop", "-t", "0", "other"]).ok();
    rename("other", "third");
    lab.person.run(&["start", "third"]).ok();
    let later = asked(&lab, "cc", "third");
    // By these names they are removed.
    rename("cc", "bb");
    rename("third", "other");
    let lines: Vec<&str> = seen.lines().collect();
    let at = "is 100.80.0.2";
    assert_eq!(lines[..3], [format!("cc {at}"), format!("cc.lab {at}"), format!("svc {at}")]);
    assert!(!lines[3].contains(at), "{seen}");
    let line = hosts.lines().find(|line| line.starts_with("100.80.0.2\t")).expect("a line");
    assert!(line.contains("\tcc svc ") && !line.contains("bb "), "{hosts}");
    assert!(shown.contains("\"cc\"") && !shown.contains("\"bb\""), "{shown}");
    assert_eq!(own, format!("bb {at}\n"));
    assert!(later.starts_with("third is 100.80.0."), "{later}");
}

/// A container finds itself by its host name, in a network with others and in one of its own, and
/// `inspect` shows that name.
fn own_name(world: &World) {
    let lab = world.like_the_oracle();
    let shown = |name: &str| {
        let done = lab.person.run(&["inspect", "--format", "{{.Config.Hostname}}", name]);
        done.ok().line()
    };
    lab.start("db", &[], &SERVE);
    let own = lab.person.run(&[&["exec", "db"], &SELF[..]].concat()).ok().out();
    assert_eq!((own.as_str(), shown("db").as_str()), ("db is 100.80.0.2\n", "db"));
    let mode = format!("--execmode={}", world.mode);
    if world.has_packets() {
        // A container that shares another one's network and hosts file has its host name.
        let network = ["run", "--name", "beside", &mode, "--network", "container:db", lab.image()];
        let done = lab.person.run(&[&network, &SELF[..]].concat());
        let beside = shown("beside");
        lab.person.run(&["rm", "-f", "beside"]).ok();
        assert_eq!((done.ok().out().as_str(), beside.as_str()), ("db is 100.80.0.2\n", "db"));
        return;
    }
    let port = format!("{}:95", port(world));
    for options in [&["--network", "private"][..], &["-p", &port]] {
        let first = ["run", "--name", "alone", &mode];
        let done = lab.person.run(&[&first, options, &[lab.image()], &SELF[..]].concat());
        let alone = shown("alone");
        lab.person.run(&["rm", "-f", "alone"]).ok();
        assert_eq!(done.ok().out(), "alone is 127.0.0.1\n", "{options:?}");
        assert_eq!(alone, "alone", "{options:?}");
    }
}

/// The host name that a container was given leads other members to it, as its own name does.
fn given_host_name(world: &World) {
    let lab = world.like_the_oracle();
    lab.start("db", &["-h", "box"], &SERVE);
    lab.start("web", &[], &SERVE);
    let seen = asked(&lab, "web", "box,box.,db");
    let at = "is 100.80.0.2";
    assert_eq!(seen, format!("box {at}\nbox. {at}\ndb {at}\n"));
    assert_eq!(asked(&lab, "db", "box"), format!("box {at}\n"));
    let own = lab.person.run(&[&["exec", "db"], &SELF[..]].concat()).ok().out();
    assert_eq!(own, format!("box {at}\n"));
    let line = hosts_of(&lab, "web");
    assert!(line.lines().any(|line| line.starts_with("100.80.0.2\tdb box ")), "{line}");
}

/// A port of the container at two places of the host: both lead to it, or it is refused.
fn published_twice(world: &World) {
    let lab = world.lab();
    let first = port(world);
    let (all, near) = (format!("{first}:95"), format!("127.0.0.1:{}:95", first + 1));
    let ports = ["-p", &*all, "-p", &*near];
    if world.has_packets() {
        lab.start("db", &ports, &SERVE);
        let format = "--format={{json .NetworkSettings.Ports}}";
        let shown = lab.person.run(&["inspect", format, "db"]).ok().out();
        for (address, port) in [("0.0.0.0", first), ("127.0.0.1", first + 1)] {
            let binding = format!(r#"{{"HostIp":"{address}","HostPort":"{port}"}}"#);
            assert!(shown.contains(&binding), "{shown}");
        }
        return;
    }
    let done = lab.run_with("db", &ports, &SELF);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_ne!(done.code(), 0, "{said}");
    assert!(said.contains("port 95/tcp of the container twice"), "{said}");
    assert!(said.contains("hint: publish it once, or use --execmode=N1"), "{said}");
}

/// `host-gateway` is the address by which the host is reached.
fn to_the_host(world: &World) {
    let lab = world.lab();
    let (option, asks) = (["--add-host", "box:host-gateway"], ["/bin/tool", "names", "box", "0"]);
    let shared = lab.run_on_host(&[&["--rm"], &option[..]].concat(), &asks).ok().out();
    assert_eq!(shared, "box is 127.0.0.1\n");
    if world.has_packets() {
        return;
    }
    let own = lab.run_with("one", &option, &asks);
    if let Ok(address) = own_address() {
        assert_eq!(own.ok().out(), format!("box is {address}\n"));
    } else {
        let said = String::from_utf8_lossy(&own.stderr).into_owned();
        assert!(said.contains("--add-host box:ADDRESS"), "{said}");
    }
}

/// Containers that start at once all stay in the network: none is taken for dead by another one
/// that joins.
fn started_at_once(world: &World) {
    const NAMES: [&str; 6] = ["a1", "a2", "a3", "a4", "a5", "a6"];
    let lab = world.lab();
    for round in 0..5 {
        thread::scope(|scope| {
            for name in NAMES {
                let lab = &lab;
                scope.spawn(move || lab.start(name, &[], &SERVE));
            }
        });
        let shown = lab.person.run(&["network", "inspect", "lab"]).ok().out();
        let left: Vec<&str> =
            NAMES.into_iter().filter(|name| !shown.contains(&format!("\"{name}\""))).collect();
        lab.person.run(&[&["rm", "-f"], &NAMES[..]].concat()).ok();
        assert!(left.is_empty(), "round {round}: {left:?} are not in {shown}");
    }
}
