//! Tests of networks: the host's by default, none, or a private one with published ports.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use testkit::command::{find_program, until};
use testkit::skip::Outcome;

use crate::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("host_by_default", host_by_default),
    ("none", none),
    ("private_reaches_out", private_reaches_out),
    ("private_publishes", private_publishes),
    ("publishing_needs_a_private_network", publishing_needs_a_private_network),
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

fn private_reaches_out(w: &World) -> Outcome {
    helper()?;
    let interfaces = w.guest(&["--network=private"], &["interfaces"]).ok().line();
    assert!(interfaces.split(' ').count() > 1, "more than the loopback: {interfaces}");
    Ok(())
}

fn private_publishes(w: &World) -> Outcome {
    helper()?;
    let free =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port");
    let publish = format!("127.0.0.1:{}:7777", free.port());
    let c = w.detached(&["--network=private", "-p", &publish], &["listen", "0.0.0.0:7777", "100"]);
    c.said("ready");
    let ports =
        w.coracle(&["ps", "-a", "--filter", &format!("name={}", c.name), "--format={{.Ports}}"]);
    assert!(ports.ok().out().contains("7777"), "{ports:?}");
    let by = |filter: &str| {
        let listed = w.coracle(&["ps", "--filter", filter, "--format={{.Names}}"]).ok().out();
        listed.lines().any(|name| name == c.name)
    };
    assert!(by(&format!("publish={}", free.port())) && !by("publish=7777/udp"));
    assert!(by("expose=7770-7777") && !by("expose=7778") && by("network=private"));
    assert!(!by("network=host") && by("health=none"));
    // The address is that of the container's own device.
    let address = c.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}");
    assert_eq!(address, c.inspect("{{.NetworkSettings.IPAddress}}"));
    assert!(address.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_loopback()), "{address}");
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
