//! What `run --explain` says of networks, and whether it is so when the container starts.

use testkit::command::Finished;

use crate::network::containers::{Lab, World};

/// A case of a mode.
type Case = fn(&World);

/// All of them.
pub(crate) const CASES: &[(&str, Case)] =
    &[("explained", explained), ("several_networks", several_networks)];

/// A text of the explanation: the first one behind this key.
fn said<'t>(explanation: &'t str, key: &str) -> Option<&'t str> {
    let rest = explanation.split_once(&format!("\"{key}\": "))?.1;
    Some(rest.lines().next()?.trim_end_matches(',').trim_matches('"'))
}

fn variables(done: &Finished) -> Vec<String> {
    let all = done.ok().out();
    all.lines().filter(|line| line.starts_with("UCX_")).map(str::to_owned).collect()
}

/// The address and the variables are those of the start, and nothing is changed before it.
fn explained(world: &World) {
    let lab = world.lab();
    let members = || lab.person.run(&["network", "inspect", "lab"]).ok().out();
    let before = members();
    let explain = ["--explain", "-p", "18080:80", "--network-alias", "other"];
    let text = lab.run_with("one", &explain, &["/bin/tool", "variables"]).ok().out();
    assert_eq!(members(), before, "the explanation has changed the network");
    assert_eq!(said(&text, "mode"), Some("names"), "{text}");
    assert_eq!(said(&text, "subnet"), Some("100.80.0.0/24"));
    assert_eq!(said(&text, "address"), Some("100.80.0.2"));
    assert_eq!(said(&text, "hostname"), Some("one"));
    assert_eq!(said(&text, "name-server"), Some("127.0.0.11"));
    assert!(text.contains("\"other\"") && text.contains("18080"), "{text}");
    assert_eq!(said(&text, "UCX_POSIX_USE_PROC_LINK"), Some("n"));
    let shown = variables(&lab.run("one", &["/bin/tool", "variables"]));
    for variable in &shown {
        let (name, value) = variable.split_once('=').expect("a variable");
        assert_eq!(said(&text, name), Some(value), "{text}");
    }
    assert!(!shown.is_empty());
    let own = ["-e", "UCX_POSIX_USE_PROC_LINK=y", "-e", "UCX_NET_DEVICES=all"];
    let own = variables(&lab.run_with("one", &own, &["/bin/tool", "variables"]));
    assert_eq!(own, ["UCX_POSIX_USE_PROC_LINK=y", "UCX_NET_DEVICES=all"]);
    no_network(&lab);
}

/// The host's network has none of this.
fn no_network(lab: &Lab<'_>) {
    let done = lab.run_on_host(&["--rm"], &["/bin/tool", "variables"]);
    assert_eq!(variables(&done), [""; 0]);
    let text = lab.run_on_host(&["--rm", "--explain"], &["/bin/tool"]).ok().out();
    assert_eq!(said(&text, "mode"), Some("host"), "{text}");
    assert_eq!(said(&text, "name-server"), Some("null"), "{text}");
}

/// A container sees its addresses in all of its networks.
fn several_networks(world: &World) {
    let lab = world.lab();
    lab.person.run(&["network", "create", "second", "--subnet", "100.81.0.0/20"]).ok();
    let options = ["--network", "second"];
    let text = lab.run_with("one", &options, &["/bin/interfaces"]);
    lab.person.run(&["network", "rm", "second"]).ok();
    let text = text.ok().out();
    let (library, _) = text.split_once("-- as musl").expect("more than one part");
    let shown: Vec<&str> = library.lines().filter(|line| line.contains(" mask ")).collect();
    let (first, second) = ("100.80.0.2 mask 255.255.255.0", "100.81.0.2 mask 255.255.240.0");
    let both = shown.iter().filter(|line| line.contains(first) || line.contains(second));
    assert_eq!(both.count(), 2, "{text}");
    // The loopback's, of both versions.
    assert_eq!(shown.len(), 4, "{text}");
}
