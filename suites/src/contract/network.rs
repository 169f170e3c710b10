//! Tests of networks: the host's by default, none, a private one with published ports, or one with
//! a name.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use testkit::command::{Input, find_program, run_with, until};
use testkit::image::Image;
use testkit::skip::Outcome;
use testkit::users::Setting;

use crate::contract::same::with_image;
use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("host_by_default", host_by_default),
    ("none", none),
    ("private_reaches_out", private_reaches_out),
    ("private_publishes", private_publishes),
    ("all_ports_are_published", all_ports_are_published),
    ("publishing_needs_a_private_network", publishing_needs_a_private_network),
    ("publishing_makes_a_private_network", publishing_makes_a_private_network),
    ("what_is_not_published_is_not_listed", what_is_not_published_is_not_listed),
    ("ports_of_root", ports_of_root),
    ("without_default_route", without_default_route),
    ("another_helper_where_one_fails", another_helper_where_one_fails),
    ("published_without_a_helper", published_without_a_helper),
    ("a_network_with_members_stays", a_network_with_members_stays),
    ("a_running_container_keeps_its_networks", a_running_container_keeps_its_networks),
];

fn greeter() -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        if let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"hello from the host\n");
        }
    });
    (address, thread)
}

fn host_by_default(w: &World) -> Outcome {
    let (address, thread) = greeter();
    let done = w.guest(&[], &["connect", &address.to_string()]);
    assert_eq!(done.ok().line(), "connected hello from the host");
    let _ = thread.join();
    Ok(())
}

fn none(w: &World) -> Outcome {
    let interfaces = w.guest(&["--network=none"], &["interfaces"]).ok().line();
    assert_eq!(interfaces.split(' ').filter(|name| *name == "lo").count(), 1);
    assert!(!interfaces.contains("eth"), "{interfaces}");
    // The loopback is up, so that programs can connect to themselves.
    let mut run = w.start(&["--network=none"], &["listen", "127.0.0.1:0"]);
    run.expect("ready");
    run.signal(rustix::process::Signal::KILL);
    run.end(Duration::from_secs(5));
    let (address, _thread) = greeter();
    w.guest(&["--network=none"], &["connect", &address.to_string()]).expect(9);
    let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    Ok(())
}

fn helper() -> Result<(), testkit::skip::Skip> {
    if find_program("pasta").is_none() && find_program("slirp4netns").is_none() {
        testkit::skip!("neither pasta nor slirp4netns is installed");
    }
    // Both tools open this device; on some machines only root may.
    let tun = std::fs::metadata("/dev/net/tun").map(|meta| meta.permissions().mode() & 0o006);
    if tun.ok() != Some(0o006) {
        testkit::skip!("users may not open /dev/net/tun, which private networks are made with");
    }
    Ok(())
}

/// Whether an engine translates addresses, where others have network namespaces.
fn translates(w: &World) -> bool {
    ["I", "P", "F"].iter().any(|kind| w.engine.starts_with(kind))
}

fn private_reaches_out(w: &World) -> Outcome {
    if translates(w) {
        let (address, _thread) = greeter();
        w.guest(&["--network=private"], &["connect", &address.to_string()]).expect(9);
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        return Ok(());
    }
    helper()?;
    let interfaces = w.guest(&["--network=private"], &["interfaces"]).ok().line();
    assert!(interfaces.split(' ').count() > 1, "more than the loopback: {interfaces}");
    Ok(())
}

fn private_publishes(w: &World) -> Outcome {
    published(w, &["--network=private"])
}

/// `-P` publishes what the image and `--expose` name, each at a free port of the host.
fn all_ports_are_published(w: &World) -> Outcome {
    if !w.has_overlay() && !translates(w) {
        testkit::skip!("this mode has no private networks");
    }
    if !translates(w) {
        helper()?;
    }
    // Without ports there is nothing to publish, and no network for it.
    w.guest(&["-P"], &["exit", "3"]).expect(3);
    let image = Image::new()
        .layer(testkit::guest::layer())
        .config("ExposedPorts", json!({ "7777/tcp": {}, "53/udp": {}, "7/sctp": {} }));
    let (w, image) = with_image(w, &image, "exposes");
    let one = Container::named(&w, &w.name("all"));
    let flags = ["--expose=9000-9001", "-p", "127.0.0.1::7777", "-P"];
    let run = ["run", "-d", "--name", &one.name, &w.mode()].map(str::to_owned);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let guest = [&*image, "/bin/guest", "listen", "0.0.0.0:9000", "1"];
    let done = w.coracle(&[&run[..], &flags, &guest].concat());
    assert!(done.ok().err().contains("7/sctp"), "{done:?}");
    one.said("ready");
    let listed = w.coracle(&["port", &one.name]).ok().out();
    let inside: Vec<&str> =
        listed.lines().filter_map(|line| Some(line.split_once(" -> ")?.0)).collect();
    assert_eq!(inside, ["7777/tcp", "53/udp", "9000/tcp", "9001/tcp"], "{listed}");
    let port = |inside: &str| -> u16 {
        let line = listed.lines().find(|line| line.starts_with(inside)).expect("a line");
        line.rsplit(':').next().expect("a port").parse().expect("a number")
    };
    assert!(!listed.contains(":0\n") && port("9000") != port("9001"), "{listed}");
    let filter = format!("name={}", one.name);
    let shown = w.coracle(&["ps", "--filter", &filter, "--format={{.Ports}}"]).ok().out();
    assert!(shown.contains(&format!(":{}->9000/tcp", port("9000"))), "{shown}");
    assert_eq!(one.inspect("{{.HostConfig.PublishAllPorts}}"), "true");
    assert_eq!(one.inspect("{{.HostConfig.NetworkMode}}"), "private");
    let bindings = one.inspect("{{json .NetworkSettings.Ports}}");
    assert!(bindings.contains(&port("9000").to_string()), "{bindings}");
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port("9000")));
    let reached = until(Duration::from_secs(20), || {
        TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()
    });
    assert!(reached.is_some(), "nothing listens at {at}");
    Ok(())
}

fn published(w: &World, flags: &[&str]) -> Outcome {
    if !translates(w) {
        helper()?;
    }
    let free =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port");
    let publish = format!("127.0.0.1:{}:7777", free.port());
    let flags = [flags, &["-p", &publish, "--expose=9000/udp"]].concat();
    let c = w.detached(&flags, &["listen", "0.0.0.0:7777", "100"]);
    c.said("ready");
    let listed = w.coracle(&["port", &c.name]).ok().line();
    assert_eq!(listed, format!("7777/tcp -> 127.0.0.1:{}", free.port()));
    let ports =
        w.coracle(&["ps", "-a", "--filter", &format!("name={}", c.name), "--format={{.Ports}}"]);
    assert!(ports.ok().out().contains("7777"), "{ports:?}");
    let by = |filter: &str| {
        let listed = w.coracle(&["ps", "--filter", filter, "--format={{.Names}}"]).ok().out();
        listed.lines().any(|name| name == c.name)
    };
    assert!(by(&format!("publish={}", free.port())) && !by("publish=7777/udp"));
    assert!(by("expose=7770-7777") && !by("expose=7778") && by("network=private"));
    assert!(by("expose=9000/udp") && !by("expose=9000"));
    assert_eq!(c.inspect("{{json .Config.ExposedPorts}}"), r#"{"7777/tcp":{},"9000/udp":{}}"#);
    assert!(!by("network=host") && by("health=none"));
    // The address is that of the container's own device.
    let address = c.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
    assert_eq!(address, c.inspect("{{.NetworkSettings.IPAddress}}"));
    if translates(w) {
        assert_eq!(address, "", "the kernel knows no device of it");
    } else {
        let own = address.parse::<Ipv4Addr>();
        assert!(own.is_ok_and(|address| !address.is_loopback()), "{address}");
    }
    assert_eq!(c.inspect("{{.HostConfig.NetworkMode}}"), "private");
    // pasta of 2023 sometimes loses an answer when the other side closes at once.
    let greeting = until(Duration::from_secs(20), || {
        let mut stream = TcpStream::connect_timeout(&free, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(greeting.as_deref(), Some("hello from the guest\n"));
    Ok(())
}

fn publishing_needs_a_private_network(w: &World) -> Outcome {
    let done = w.guest(&["--network=none", "-p", "8080:80"], &["exit", "0"]);
    // As Docker: reported, not silently ignored.
    assert!([0, 125].contains(&done.code()) && done.err().contains("port"), "{done:?}");
    Ok(())
}

/// A port without a network means one of the container's own, or an error where none can be made.
fn publishing_makes_a_private_network(w: &World) -> Outcome {
    if w.has_overlay() || translates(w) {
        return published(w, &[]);
    }
    let done = w.guest(&["-p", "8080:80"], &["exit", "0"]);
    let said = done.expect(125).err();
    assert!(said.contains("--publish") && said.contains("--network=host"), "{said}");
    Ok(())
}

/// Where the container has the host's network, no command says that a port is published.
fn what_is_not_published_is_not_listed(w: &World) -> Outcome {
    let c = w.detached(&["--network=host", "-p", "8080:80"], &["say", "up", ";", "sleep", "100"]);
    c.said("up");
    assert_eq!(w.coracle(&["port", &c.name]).ok().out(), "");
    let name = format!("name={}", c.name);
    assert_eq!(w.coracle(&["ps", "--filter", &name, "--format={{.Ports}}"]).ok().line(), "");
    let format = "--format={{json .NetworkSettings.Ports}}";
    assert_eq!(w.coracle(&["inspect", format, &c.name]).ok().line(), "{}");
    Ok(())
}

/// A port that the caller may not have on the host is one error, before anything is started.
fn ports_of_root(w: &World) -> Outcome {
    if w.has_overlay() {
        helper()?;
    } else if !translates(w) {
        testkit::skip!("this mode publishes no ports");
    }
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first.ok().and_then(|text| text.trim().parse::<u16>().ok()).is_none_or(|first| first <= 80) {
        testkit::skip!("everyone may listen on port 80 of this host");
    }
    let done = w.guest(&["-p", "80:80"], &["exit", "0"]);
    let said = done.expect(125).err();
    assert!(said.contains("port 80") && said.contains("-p 8080:"), "{said}");
    assert_eq!(said.matches("error:").count(), 1, "{said}");
    Ok(())
}

/// Runs a command with a private network under further conditions; its interfaces.
fn interfaces(w: &World, setting: &Setting, around: &[&str]) -> String {
    let words = w.words(&["--network=private"], &["interfaces", ";", "read", "/etc/resolv.conf"]);
    let command = w.command_in(setting, &words);
    let Some((program, rest)) = around.split_first() else {
        return run_with(&mut { command }, Input::Null, LIMIT).ok().out();
    };
    let mut outer = std::process::Command::new(program);
    outer.args(rest).arg(command.get_program()).args(command.get_args()).env_clear();
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run_with(&mut outer, Input::Null, LIMIT).ok().out()
}

/// pasta takes addresses and routes of the host, which may have none.
fn without_default_route(w: &World) -> Outcome {
    both_helpers(w)?;
    if !rustix::process::getuid().is_root() {
        testkit::skip!("root alone makes a network namespace for another user");
    }
    let said = interfaces(w, &Setting::default(), &["unshare", "-n", "--"]);
    assert!(said.contains("tap0") && said.contains("nameserver 10.0.2.3"), "{said}");
    Ok(())
}

fn another_helper_where_one_fails(w: &World) -> Outcome {
    both_helpers(w)?;
    let directory = w.files.join("helpers-that-fail");
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("pasta");
    std::fs::write(&program, "#!/bin/sh\necho no luck >&2\nexit 1\n").expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let before = format!("export PATH={}:$PATH; ", directory.display());
    let said = interfaces(w, &Setting { before, ..Setting::default() }, &[]);
    assert!(said.contains("tap0") && said.contains("nameserver 10.0.2.3"), "{said}");
    Ok(())
}

/// Where no helper program can be had, ports are published all the same, by another mode or by the
/// switch of networks.
fn published_without_a_helper(w: &World) -> Outcome {
    if !["N1", "R1"].contains(&&*w.engine) && !translates(w) {
        testkit::skip!("this mode has no networks with names");
    }
    let directory = w.files.join("no-helpers");
    std::fs::create_dir_all(&directory).expect("a directory");
    for program in ["newuidmap", "newgidmap"] {
        if let Some(found) = find_program(program) {
            // Another case may have made it.
            let _ = std::os::unix::fs::symlink(found, directory.join(program));
        }
    }
    let before = format!("export PATH={}; ", directory.display());
    let setting = Setting { before, ..Setting::default() };
    let isolate: &[&str] = if w.engine == "N1" { &["--isolate"] } else { &["--network=bridge"] };
    for flags in [&[][..], isolate] {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
        let free = free.expect("a port");
        let c = Container::named(w, &w.name("no-helper"));
        let publish = format!("127.0.0.1:{}:7777", free.port());
        let flags = [&["--name", &c.name, "-p", &publish], flags].concat();
        let words = w.words_for(&["run", "-d"], &flags, &["listen", "0.0.0.0:7777", "100"]);
        run_with(&mut w.command_in(&setting, &words), Input::Null, LIMIT).ok();
        let greeting = until(Duration::from_secs(20), || {
            let mut stream = TcpStream::connect_timeout(&free, Duration::from_secs(1)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            (!text.is_empty()).then_some(text)
        });
        assert_eq!(greeting.as_deref(), Some("hello from the guest\n"), "{flags:?}");
        // What comes later is in the same network.
        assert!(c.exec(&[], &["connect", "127.0.0.1:7777"]).ok().out().contains("hello"));
        let members = w.coracle(&["network", "inspect", "bridge", "--format={{.Containers}}"]);
        assert!(members.ok().out().contains(&c.name), "{members:?}");
        w.coracle(&["rm", "-f", &c.name]).ok();
        let members = w.coracle(&["network", "inspect", "bridge", "--format={{.Containers}}"]);
        assert!(!members.ok().out().contains(&c.name), "{members:?}");
    }
    Ok(())
}

fn both_helpers(w: &World) -> Outcome {
    helper()?;
    if !w.has_overlay() {
        testkit::skip!("this mode has no private networks");
    }
    if find_program("pasta").is_none() || find_program("slirp4netns").is_none() {
        testkit::skip!("pasta and slirp4netns are not both installed");
    }
    Ok(())
}

/// A network of this case alone: its name, and its directory in the store.
fn lab(w: &World) -> (String, PathBuf) {
    let name = w.name("lab");
    w.coracle(&["network", "create", &name]).ok();
    let directory = w.store().join("networks").join(&name);
    (name, directory)
}

/// Members are written down here as the start of a container does.
fn a_network_with_members_stays(w: &World) -> Outcome {
    let (lab, directory) = lab(w);
    let c = w.detached(&["--network=host"], &["say", "up", ";", "sleep", "100"]);
    c.said("up");
    let id = c.inspect("{{.Id}}");
    let format = "{{range .IPAM.Config}}{{.Subnet}}{{end}}";
    let subnet = w.coracle(&["network", "inspect", "-f", format, &lab]).ok().line();
    let address = subnet.replace(".0/24", ".9");
    let entry = |id: &str, name: &str| {
        format!(r#"{{"id":"{id}","name":"{name}","address":"{address}","slot":0}}"#)
    };
    let dead = "0".repeat(64);
    let members = format!(r#"{{"members":[{},{}]}}"#, entry(&dead, "dead"), entry(&id, &c.name));
    w.file(&directory, "members-elsewhere.json", &members);
    let here: String = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' })
        .collect();
    w.file(&directory, &format!("members-{here}.json"), &members);
    let refused = w.coracle(&["network", "rm", &lab]).expect(1).err();
    let fact = format!("network {lab} has active endpoints ({}", c.name);
    assert!(refused.contains(&fact) && !refused.contains("dead"), "{refused}");
    let names = "{{range .Containers}}{{.Name}} {{.IPv4Address}};{{end}}";
    let seen = w.coracle(&["network", "inspect", "-f", names, &lab]).ok().line();
    assert_eq!(seen, format!("{} {address}/24;", c.name));
    w.coracle(&["stop", "-s", "KILL", &c.name]).ok();
    assert_eq!(w.coracle(&["network", "inspect", "-f", names, &lab]).ok().line(), "");
    assert_eq!(w.coracle(&["network", "rm", &lab]).ok().line(), lab);
    assert!(!directory.exists());
    Ok(())
}

fn a_running_container_keeps_its_networks(w: &World) -> Outcome {
    let (lab, _) = lab(w);
    let c = w.detached(&[], &["say", "up", ";", "sleep", "100"]);
    c.said("up");
    let refused = w.coracle(&["network", "connect", &lab, &c.name]).expect(1).err();
    assert!(refused.contains("is running, and its networks cannot be changed"), "{refused}");
    w.coracle(&["stop", "-s", "KILL", &c.name]).ok();
    w.coracle(&["network", "connect", &lab, &c.name]).ok();
    assert_eq!(c.inspect("{{.HostConfig.NetworkMode}}"), lab);
    let format = format!("{{{{(index .NetworkSettings.Networks \"{lab}\").IPAddress}}}}");
    let started = w.coracle(&["start", &c.name]);
    if w.engine == "R2" {
        // It has no networks with names, and says which modes have.
        let text = started.expect(1).err();
        assert!(text.contains("--network with a name is not possible with engine R2"), "{text}");
    } else {
        started.ok();
        let address = c.inspect(&format);
        assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{address}");
        w.coracle(&["stop", "-s", "KILL", &c.name]).ok();
    }
    assert_eq!(c.inspect(&format), "");
    w.coracle(&["network", "disconnect", &lab, &c.name]).ok();
    assert_eq!(c.inspect("{{.HostConfig.NetworkMode}}"), "none");
    w.coracle(&["network", "rm", &lab]).ok();
    Ok(())
}
