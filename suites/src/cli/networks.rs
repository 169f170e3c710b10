//! Tests of networks with names: as objects, in records of containers, and with bad input.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::registry::{Place, place};
use crate::cli::{Case, coracle, printed, transcript};

pub(super) const CASES: &[(&str, Case)] = &[
    ("a_network_is_made_listed_and_removed", a_network_is_made_listed_and_removed),
    ("ipv6_is_asked_for", ipv6_is_asked_for),
    ("all_that_can_be_said_of_a_network", all_that_can_be_said_of_a_network),
    ("mistakes_when_a_network_is_made", mistakes_when_a_network_is_made),
    ("a_subnet_of_the_host_is_refused", a_subnet_of_the_host_is_refused),
    ("mistakes_with_networks_that_are_there", mistakes_with_networks_that_are_there),
    ("containers_are_made_in_networks", containers_are_made_in_networks),
    ("mistakes_when_a_container_is_made", mistakes_when_a_container_is_made),
    (
        "a_run_in_a_network_is_refused_around_a_tracer",
        a_run_in_a_network_is_refused_around_a_tracer,
    ),
    ("what_no_container_needs_is_pruned", what_no_container_needs_is_pruned),
    ("surroundings", surroundings),
];

fn mistake(home: &Path, words: &[&str]) -> String {
    let output = coracle(home, words);
    assert!(!output.status.success(), "{words:?}: {}", transcript(&output));
    assert!(output.stdout.is_empty(), "{words:?}: {}", transcript(&output));
    transcript(&output)
}

/// A home with networks of these names and arguments.
fn home(networks: &[&[&str]]) -> TempDir {
    let home = TempDir::new().unwrap();
    for words in networks {
        let id = printed(home.path(), &[&["network", "create"], *words].concat());
        assert!(id.len() == 65 && id[..64].bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    home
}

fn inspected(home: &Path, name: &str) -> Value {
    let text = printed(home, &["network", "inspect", name]);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{text}");
    all[0].clone()
}

fn field(home: &Path, name: &str, format: &str) -> String {
    printed(home, &["inspect", "-f", format, name]).trim_end().to_owned()
}

fn a_network_is_made_listed_and_removed() -> Outcome {
    let home = home(&[]);
    let home = home.path();
    let none = printed(home, &["network", "ls"]);
    insta::assert_snapshot!(none, @r"
    NETWORK ID     NAME      DRIVER    SCOPE
    627269646765   bridge    bridge    local
    686f73740000   host      host      local
    6e6f6e650000   none      null      local
    ");
    let id = printed(home, &["network", "create", "lab", "--label", "team=red"]);
    let id = id.trim();
    let listed = |words: &[&str]| {
        let words = [&["network", "ls", "--format", "{{.Name}}"], words].concat();
        printed(home, &words).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["bridge", "host", "lab", "none"]);
    assert_eq!(listed(&["--filter", "driver=bridge"]), ["bridge", "lab"]);
    let short = format!("id={}", &id[..6]);
    for fits in ["name=la", &short, "label=team", "label=team=red", "type=custom"] {
        assert_eq!(listed(&["--filter", fits]), ["lab"], "{fits}");
    }
    assert_eq!(listed(&["--filter", "dangling=true"]), ["lab"]);
    assert_eq!(listed(&["--filter", "dangling=false"]), ["bridge", "host", "none"]);
    assert_eq!(listed(&["--filter", "scope=local", "--filter", "driver=null"]), ["none"]);
    assert_eq!(printed(home, &["network", "ls", "-q", "--filter", "name=lab"]).trim(), &id[..12]);
    let whole = ["network", "ls", "-q", "--no-trunc", "--filter", "name=lab"];
    assert_eq!(printed(home, &whole).trim(), id);
    let json: Value =
        serde_json::from_str(&printed(home, &["network", "ls", "--format=json", "-f", "name=lab"]))
            .unwrap();
    assert_eq!((&json["Name"], &json["IPv6"]), (&"lab".into(), &"false".into()), "{json}");

    let by_id = inspected(home, &id[..20]);
    assert_eq!(by_id, inspected(home, "lab"));
    assert_eq!((by_id["Id"].as_str(), by_id["Scope"].as_str()), (Some(id), Some("local")));
    assert_eq!((&by_id["Driver"], &by_id["EnableIPv6"]), (&"bridge".into(), &false.into()));
    assert!(by_id["Created"].as_str().is_some_and(|time| time.ends_with('Z')), "{by_id}");
    assert_eq!(by_id["Labels"]["team"], "red");
    assert_eq!(by_id["Containers"], serde_json::json!({}));
    let format = "{{range .IPAM.Config}}{{.Subnet}} {{.Gateway}}{{end}} {{.Internal}}";
    let shown = printed(home, &["network", "inspect", "-f", format, "lab"]);
    let (subnet, rest) = shown.split_once(' ').unwrap();
    let (base, bits) = subnet.split_once('/').unwrap();
    assert!(base.starts_with("100.") && base.ends_with(".0") && bits == "24", "{shown}");
    assert_eq!(rest, format!("{}1 false\n", base.trim_end_matches('0')));
    assert_eq!(field(home, "lab", "{{.Name}}"), "lab", "`inspect` finds it too");
    assert_eq!(printed(home, &["inspect", "--type=network", "-f", "{{.Id}}", "lab"]).trim(), id);

    printed(home, &["network", "create", "other"]);
    assert_eq!(printed(home, &["network", "rm", "lab", "other"]), "lab\nother\n");
    assert_eq!(listed(&[]), ["bridge", "host", "none"]);
    let events = ["events", "--since", "10m", "--until", "0s", "--filter", "type=network"];
    let told = printed(home, &[&events[..], &["--format", "{{.Action}} {{.Actor.ID}}"]].concat());
    assert!(told.starts_with(&format!("create {id}\n")), "{told}");
    assert!(told.contains(&format!("destroy {id}\n")), "{told}");
    let named = printed(home, &[&events[..], &["--filter", "network=lab"]].concat());
    assert_eq!(named.lines().count(), 2, "{named}");
    Ok(())
}

fn ipv6_is_asked_for() -> Outcome {
    let home = home(&[&["--ipv6", "random"], &["--ipv6", "--subnet=fd00:80::/80", "named"]]);
    let home = home.path();
    let format = "{{.EnableIPv6}} {{(index .IPAM.Config 1).Subnet}}";
    let shown = |name| printed(home, &["network", "inspect", "-f", format, name]);
    assert_eq!(shown("named"), "true fd00:80::/80\n");
    let random = shown("random");
    assert!(random.starts_with("true fd") && random.ends_with("::/64\n"), "{random}");
    let listed = ["network", "ls", "--format", "{{.Name}} {{.IPv6}}", "-f", "type=custom"];
    assert_eq!(printed(home, &listed), "named true\nrandom true\n");
    Ok(())
}

fn all_that_can_be_said_of_a_network() -> Outcome {
    let home = home(&[&[
        "--subnet=10.209.0.0/16",
        "--ip-range=10.209.4.0/24",
        "--gateway=10.209.9.9",
        "--aux-address=vip=10.209.4.1",
        "--aux-address=other",
        "--internal",
        "--attachable",
        "-d",
        "bridge",
        "--scope=host",
        "-o",
        "mine=x",
        "-o",
        "com.docker.network.bridge.enable_icc=true",
        "--label=a",
        "lab",
    ]]);
    let seen = inspected(home.path(), "lab");
    assert_eq!(
        seen["IPAM"]["Config"],
        serde_json::json!([
            {"Subnet": "10.209.0.0/16", "IPRange": "10.209.4.0/24", "Gateway": "10.209.9.9",
             "AuxiliaryAddresses": {"vip": "10.209.4.1", "other": "10.209.255.254"}}
        ])
    );
    assert_eq!((&seen["Internal"], &seen["Attachable"]), (&true.into(), &true.into()));
    assert_eq!((&seen["Options"]["mine"], &seen["Labels"]["a"]), (&"x".into(), &"".into()));
    // The second one gets other addresses by itself.
    printed(home.path(), &["network", "create", "second"]);
    let second = inspected(home.path(), "second");
    assert!(second["IPAM"]["Config"][0]["Subnet"].as_str().unwrap().starts_with("100."));
    Ok(())
}

fn mistakes_when_a_network_is_made() -> Outcome {
    let home = home(&[&["--subnet=10.209.0.0/16", "lab"]]);
    let home = home.path();
    let create = |words: &[&str]| mistake(home, &[&["network", "create"], words].concat());
    insta::assert_snapshot!(create(&["lab"]), @r"
    error: network with name lab already exists
      hint: use it, remove it (coracle network rm lab), or choose another name
    status 1
    ");
    insta::assert_snapshot!(create(&["--subnet=10.209.7.0/24", "x"]), @r"
    error: subnet 10.209.7.0/24 overlaps with 10.209.0.0/16 of network lab
      hint: choose another subnet; without --subnet a free one is taken
    status 1
    ");
    insta::assert_snapshot!(create(&["--subnet=10.1.2.3/24", "x"]), @r"
    error: '10.1.2.3/24' is not a usable subnet: it should be 10.1.2.0/24
      hint: write 10.1.2.0/24
    status 1
    ");
    insta::assert_snapshot!(create(&["--scope=galaxy", "x"]), @r"
    error: the scope 'galaxy' of a network is not supported by this version
      hint: there are host (containers of one machine meet) and cluster
    status 1
    ");
    insta::assert_snapshot!(create(&["--subnet=fd00:80::/64", "x"]), @r"
    error: --subnet fd00:80::/64 is of IPv6
      hint: give --ipv6 too, or leave it out
    status 1
    ");
    insta::assert_snapshot!(create(&["--ipv6", "--subnet=fd00:80::/97", "x"]), @r"
    error: 'fd00:80::/97' is not a usable subnet: it has fewer than 64 or more than 96 bits
      hint: write a private one with 64 to 96 bits, as fd00:80::/64
    status 1
    ");
    insta::assert_snapshot!(create(&["-d", "macvlan", "x"]), @r"
    error: there is no network driver 'macvlan'
      hint: bridge is the only one
    status 1
    ");
    insta::assert_snapshot!(create(&["host"]), @r#"
    error: "host" is not a usable name of a network: it is reserved
      hint: choose another one: letters, digits, '_', '.' and '-', first a letter or digit
    status 1
    "#);
    for (words, part) in [
        (
            &["--ipv6", "--subnet=fd00:7::/64", "--subnet=fd00:8::/64", "x"][..],
            "one subnet of IPv6",
        ),
        (&["--ipv6", "--subnet=fd00::1/64", "x"], "it should be fd00::/64"),
        (&["--ipv6", "--subnet=fe80::/64", "x"], "it is for link-local"),
        (&["--ipv6", "--subnet=::ffff:0:0/96", "x"], "it is for loopback"),
        (&["--ipv6", "--subnet=:/64", "x"], "it is not ADDRESS/BITS of IPv6"),
        (&["--ipv6", "--ip-range=fd00::/80", "x"], "--ip-range fd00::/80 is of IPv6"),
        (&["--subnet=10.1.0.0/31", "x"], "fewer than 8 or more than 30 bits"),
        (&["--subnet=10.0.0.0/7", "x"], "fewer than 8 or more than 30 bits"),
        (&["--subnet=lots", "x"], "it is not ADDRESS/BITS"),
        (&["--subnet=127.9.0.0/16", "x"], "it is for loopback"),
        (
            &["--subnet=10.1.0.0/24", "--subnet=10.2.0.0/24", "x"],
            "a network has one subnet of IPv4",
        ),
        (&["--gateway=10.1.0.1", "x"], "--gateway 10.1.0.1 belongs to no subnet"),
        (&["--ip-range=10.1.0.0/25", "x"], "--ip-range 10.1.0.0/25 belongs to no subnet"),
        (&["--subnet=10.1.0.0/24", "--gateway=10.2.0.1", "x"], "gateway 10.2.0.1 is not"),
        (&["--subnet=10.1.0.0/24", "--gateway=x", "x"], "'x' is not an IPv4 address"),
        (&["--subnet=10.1.0.0/24", "--ip-range=10.2.0.0/25", "x"], "is not a part of"),
        (
            &["--subnet=10.1.0.0/24", "--aux-address=v=10.2.0.1", "x"],
            "auxiliary address v is not usable: 10.2.0.1 is not an address of a host",
        ),
        (&["--aux-address=v=y", "x"], "'y' is not an IPv4 address"),
        (&["--aux-address=a b", "x"], "auxiliary address a b is not usable: the name is none"),
        (&["--aux-address=v", "--aux-address=v", "x"], "v is not usable: the name is there twice"),
        (&["--scope=swarm", "x"], "'swarm' of a network is not supported"),
        (&["-o", "com.docker.network.driver.mtu=1400", "x"], "mtu=1400 is not supported"),
        (&["--label", "=1", "x"], "has no key"),
        (&["my/net"], "only letters, digits"),
        (&["container:x"], "it is reserved"),
        (&["bridge"], "it is reserved"),
        (&[""], "it is empty"),
        (&["slots-x.json"], "it is reserved for a file"),
        (&["ä"], "must begin with a letter"),
    ] {
        let text = create(words);
        assert!(text.starts_with("error: ") && text.contains(part), "{words:?}: {text}");
        assert!(text.contains("\n  hint: "), "{words:?}: {text}");
    }
    assert_eq!(printed(home, &["network", "ls", "-q"]).lines().count(), 4, "nothing was made");
    Ok(())
}

/// A subnet to which the host has a route, if it has one.
fn a_subnet_of_the_host_is_refused() -> Outcome {
    let home = home(&[]);
    let text = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let route = text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::from_be);
        let (base, mask) = (number(1)?, number(7)?);
        let plain = (8..=30).contains(&mask.leading_ones()) && base >> 28 < 14;
        plain.then(|| format!("{}/{}", std::net::Ipv4Addr::from(base), mask.leading_ones()))
    });
    let Some(route) = route else {
        testkit::skip!("the host has no route");
    };
    let text = mistake(home.path(), &["network", "create", "--subnet", &route, "lab"]);
    let fact =
        format!("error: subnet {route} overlaps with {route}, to which this host has a route");
    assert!(text.starts_with(&fact) && text.contains("hint: choose another subnet"), "{text}");
    Ok(())
}

fn mistakes_with_networks_that_are_there() -> Outcome {
    let home = home(&[&["lab"]]);
    let home = home.path();
    printed(home, &["create", "--name", "here", "--network", "lab", "hello"]);
    printed(home, &["create", "--name", "plain", "--network", "host", "hello"]);
    insta::assert_snapshot!(mistake(home, &["network", "rm", "none"]), @r"
    error: none is a pre-defined network and cannot be removed
      hint: leave it out
    status 1
    ");
    insta::assert_snapshot!(mistake(home, &["network", "rm", "nothing"]), @r"
    error: network nothing not found
      hint: 'coracle network ls' lists all networks
    status 1
    ");
    assert_eq!(printed(home, &["network", "rm", "-f", "nothing"]), "");
    assert!(!coracle(home, &["network", "inspect", "nothing"]).status.success());
    let built_in = coracle(home, &["network", "inspect", "private"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&built_in.stderr), @r"
    error: 'private' is built in: with --network private each container has a network of its own
      hint: 'coracle inspect CONTAINER' shows it
    ");
    insta::assert_snapshot!(mistake(home, &["create", "-h", "bad name", "hello"]), @r"
    error: --hostname 'bad name': a host name has letters, digits, '-', '_' and '.', and not ' '
      hint: give a name as db-1 or db.example.org, of at most 64 characters
    status 125
    ");
    insta::assert_snapshot!(mistake(home, &["network", "connect", "lab", "here"]), @r"
    error: container here is in network lab already
      hint: to change its address there: coracle network disconnect lab here
    status 1
    ");
    insta::assert_snapshot!(mistake(home, &["network", "connect", "lab", "plain"]), @r"
    error: container plain shares the network of the host and cannot be in another one
      hint: make a container without that --network or --join
    status 1
    ");
    insta::assert_snapshot!(mistake(home, &["network", "disconnect", "lab", "plain"]), @r"
    error: container plain is not in network lab
      hint: 'coracle inspect plain' shows its networks
    status 1
    ");
    for words in [
        &["network", "connect", "lab", "nobody"][..],
        &["network", "connect", "nothing", "here"],
        &["network", "disconnect", "nothing", "here"],
        &["network", "connect", "--ip=10.0.0.1", "lab", "plain"],
        &["network", "connect", "--ip=x", "lab", "plain"],
        &["network", "connect", "--alias=a b", "lab", "plain"],
        &["network", "connect", "lab"],
        &["network", "ls", "--filter", "colour=red"],
        &["network", "ls", "--filter", "type=odd"],
        &["network", "prune", "-f", "--filter", "until=soon"],
        &["network", "frobnicate"],
    ] {
        let text = mistake(home, words);
        assert!(text.starts_with("error: ") && text.ends_with("status 1"), "{words:?}: {text}");
    }
    Ok(())
}

fn containers_are_made_in_networks() -> Outcome {
    let home = home(&[&["--subnet=10.209.0.0/16", "lab"], &["web"]]);
    let home = home.path();
    let lab = inspected(home, "lab")["Id"].as_str().unwrap().to_owned();
    let create = |words: &[&str]| {
        let words = [&["create"], words, &["hello"]].concat();
        printed(home, &words)
    };
    create(&["--name=a", "--network=lab", "--network-alias=db", "--ip=10.209.0.7"]);
    create(&["--name=b", "--network", &lab[..12], "--net", "name=web,alias=x,alias=y"]);
    create(&["--name=c"]);
    let mode = |name: &str| field(home, name, "{{.HostConfig.NetworkMode}}");
    assert_eq!((mode("a"), mode("b"), mode("c")), ("lab".into(), "lab".into(), "host".into()));
    let of_a = |format: &str| {
        field(home, "a", &format!("{{{{with .NetworkSettings.Networks.lab}}}}{format}{{{{end}}}}"))
    };
    assert_eq!(of_a("{{.NetworkID}}"), lab);
    assert_eq!(of_a("{{json .Aliases}} {{.IPAMConfig.IPv4Address}}"), "[\"db\"] 10.209.0.7");
    assert_eq!(of_a("<{{.IPAddress}}>"), "<>", "it does not run");
    let keys =
        field(home, "b", "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}");
    assert_eq!(keys.trim(), "lab web");
    let by = |filter: &str| {
        let format = "{{.Names}} {{.Networks}}";
        let listed = printed(home, &["ps", "-a", "--filter", filter, "--format", format]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(by("network=lab"), ["a lab", "b lab,web"]);
    assert_eq!(by("network=web"), ["b lab,web"]);
    assert_eq!(by(&format!("network={}", &lab[..10])), ["a lab", "b lab,web"]);
    assert_eq!(by("network=host"), ["c host"]);
    assert_eq!(by("network=nothing"), Vec::<String>::new());

    printed(home, &["network", "connect", "--alias=z", "web", "a"]);
    assert_eq!(by("network=web"), ["a lab,web", "b lab,web"]);
    assert_eq!(field(home, "a", "{{json .NetworkSettings.Networks.web.Aliases}}"), "[\"z\"]");
    printed(home, &["network", "disconnect", "lab", "a"]);
    assert_eq!(mode("a"), "web");
    printed(home, &["network", "disconnect", "web", "a"]);
    assert_eq!((mode("a"), by("network=none")), ("none".into(), vec!["a none".to_owned()]));
    printed(home, &["network", "connect", "lab", "a"]);
    printed(home, &["network", "connect", "web", "c"]);
    assert_eq!((mode("a"), mode("c")), ("lab".into(), "web".into()));
    // As in Docker, containers that do not run keep no network.
    assert_eq!(printed(home, &["network", "rm", "web"]), "web\n");
    assert_eq!(field(home, "c", "<{{.NetworkSettings.Networks.web.NetworkID}}>"), "<>");
    assert!(mistake(home, &["network", "disconnect", "web", "c"]).contains("--force"));
    printed(home, &["network", "disconnect", "--force", "web", "c"]);
    assert_eq!(mode("c"), "none");
    Ok(())
}

fn mistakes_when_a_container_is_made() -> Outcome {
    let six = ["--ipv6", "--subnet=10.210.0.0/24", "--subnet=fd00:80::/64", "six"];
    let home = home(&[&["--subnet=10.209.0.0/24", "lab"], &six]);
    let home = home.path();
    insta::assert_snapshot!(mistake(home, &["create", "--network", "web", "hello"]), @r"
    error: network web not found
      hint: coracle network create web
    status 125
    ");
    insta::assert_snapshot!(mistake(home, &["run", "--network=lab", "--network=host", "hello"]), @r"
    error: --network host cannot be combined with another network
      hint: give either it or networks with names
    status 125
    ");
    insta::assert_snapshot!(mistake(home, &["create", "--ip=10.209.0.1", "--network=lab", "hello"]), @r"
    error: address 10.209.0.1 is not possible in network lab: it is the gateway's
      hint: choose another one ('coracle network inspect lab' shows the subnet), or leave it out
    status 125
    ");
    insta::assert_snapshot!(mistake(home, &["create", "--ip6=fd00:80::7", "--network=six", "hello"]), @r"
    error: address fd00:80::7 is not possible in network six: it is not fd00:80::/64 with an address of 10.210.0.0/24 at its end
      hint: write one as fd00:80::ad2:fe, or only --ip 10.210.0.254
    status 125
    ");
    insta::assert_snapshot!(mistake(home, &["create", "--ip6=fd00:80::7", "--network=lab", "hello"]), @r"
    error: network lab has no IPv6 addresses
      hint: leave --ip6 out, or make a network with --ipv6
    status 125
    ");
    let id = inspected(home, "lab")["Id"].as_str().unwrap().to_owned();
    for (words, part) in [
        (&["--network=six", "--ip6=fd01::ad2:7"][..], "it is not fd00:80::/64 with"),
        (&["--network=six", "--ip6=fd00:80::ad2:1"], "it is the gateway's"),
        (
            &["--network=six", "--ip6=fd00:80::ad2:7", "--ip=10.210.0.8"],
            "the IPv6 address of 10.210.0.8 is fd00:80::ad2:8",
        ),
        (&["--network=name=six,ip6=x"], "'x' is not an IPv6 address"),
        (&["--ip6=fd00::1"], "--ip6 is possible only in a network with a name"),
        (&["--network=lab", "--ip=10.210.0.2"], "it is not in the subnet 10.209.0.0/24"),
        (&["--network=lab", "--ip=10.209.0.255"], "the first and the last address"),
        (&["--network=lab", "--ip=x"], "is not an IPv4 address"),
        (&["--network=lab", "--network=lab"], "given twice"),
        (&["--network=lab", "--network", &id], "given twice"),
        (&["--network=lab", "--network-alias=a b"], "is not a name"),
        (&["--network-alias=a"], "is possible only in a network with a name"),
        (&["--network=none", "--ip=10.209.0.2"], "is possible only in a network with a name"),
        (&["--network=a/b"], "not the name of a network"),
        (&["--network=name=lab,mac-address=0"], "mac-address= is not supported"),
        (&["--network=lab", "--network=container:x"], "cannot be combined"),
        (&["--network=lab", "--mac-address=0"], "has no option '--mac-address'"),
    ] {
        let text = mistake(home, &[&["create"], words, &["hello"]].concat());
        assert!(text.starts_with("error: ") && text.contains(part), "{words:?}: {text}");
        assert!(text.ends_with("status 125"), "{words:?}: {text}");
    }
    let cid = home.join("cid");
    let cidfile = format!("--cidfile={}", cid.display());
    mistake(home, &["create", "--network=web", &cidfile, "hello"]);
    assert!(!cid.exists());
    // Not even the image was fetched.
    assert_eq!(printed(home, &["ps", "-aq"]) + &printed(home, &["images", "-q"]), "");
    printed(home, &["create", "--name=here", "hello"]);
    insta::assert_snapshot!(mistake(home, &["run", "--network=web", "here"]), @r"
    error: network web not found
      hint: coracle network create web
    status 125
    ");
    Ok(())
}

/// A tracer in a container of its own has no networks with names.
fn a_run_in_a_network_is_refused_around_a_tracer() -> Outcome {
    let home = home(&[&["lab"]]);
    let home = home.path();
    let made = ["create", "--execmode=R3", "--name=here", "--network=lab", "-p=8080:80", "hello"];
    printed(home, &made);
    for words in [&["run", "--execmode=R3", "--network=lab", "hello"][..], &["start", "here"]] {
        let text = mistake(home, words);
        let refused = ["--network with a name is not possible with engine R3", "mode R3"];
        assert!(refused.iter().any(|part| text.contains(part)), "{text}");
    }
    Ok(())
}

fn what_no_container_needs_is_pruned() -> Outcome {
    let home = home(&[&["used"], &["--label=keep", "kept"], &["idle"]]);
    let home = home.path();
    printed(home, &["create", "--name=here", "--network=used", "hello"]);
    let dangling = ["network", "ls", "--filter", "dangling=1", "--format", "{{.Name}}"];
    assert_eq!(printed(home, &dangling), "idle\nkept\n");
    let refused = mistake(home, &["network", "prune"]);
    assert!(refused.starts_with("This removes all networks in which no container"), "{refused}");
    assert_eq!(printed(home, &["network", "prune", "-f", "--filter", "until=1h"]), "");
    let pruned = printed(home, &["network", "prune", "-f", "--filter", "label!=keep"]);
    assert_eq!(pruned, "Deleted Networks:\nidle\n\n");
    printed(home, &["rm", "here"]);
    let all = printed(home, &["system", "prune", "-f"]);
    assert!(all.starts_with("Deleted Networks:\nkept\nused\n\n"), "{all}");
    assert_eq!(printed(home, &["network", "prune", "-f"]), "");
    Ok(())
}

/// Commands of an ordinary user whose files nobody else may read, and without streams.
fn surroundings() -> Outcome {
    let Place { person, scratch: _scratch } = place("networks-surroundings")?;
    let run = |script: &str| {
        let script = script.replace("coracle", &person.program.display().to_string());
        let output = person.user.command("sh", &person.home).args(["-c", &script]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{script}: {}", transcript(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run("umask 077; coracle network create own");
    run("coracle network create a <&-; coracle network create b <&- >&- 2>&-");
    run("coracle network rm a b <&- >&-");
    run("mkdir -m 500 there; cd there; coracle network create stern");
    let names = run("cd /; coracle network ls -q --no-trunc | wc -l");
    assert_eq!(names.trim(), "5");
    run("umask 077; coracle network inspect own stern");
    run("umask 077; coracle create --name here --network own hello");
    // Several at once: one is made, the others are told so.
    run("for i in 1 2 3 4 5 6; do coracle network create race 2>/dev/null & done; wait");
    let listed = run("coracle network ls --filter name=race -q");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    Ok(())
}
