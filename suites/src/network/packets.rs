//! What only containers with network namespaces have: devices, the switch between them, and the
//! processes that keep both.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::skip::{Outcome, Skip};

use crate::network::containers::{Lab, World, processes};
use crate::network::outside::own_address;

/// A case of a mode.
type Case = fn(&World);
/// One that may have to be skipped.
type Helped = fn(&World) -> Outcome;

/// Those for which everything is there.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("names_and_devices", names_and_devices),
    ("bytes_arrive_unchanged", bytes_arrive_unchanged),
    ("noise_harms_nobody", noise_harms_nobody),
    ("members_come_and_go", members_come_and_go),
    ("several_networks", several_networks),
    ("shared_and_entered", shared_and_entered),
    ("isolated", isolated),
    ("agent_killed", agent_killed),
    ("ends_arrive", ends_arrive),
    ("kinds_are_not_mixed", kinds_are_not_mixed),
    ("nothing_is_left", nothing_is_left),
    ("killed_beside_the_program", killed_beside_the_program),
    ("left_behind", left_behind),
];

/// Those that need a program of the host.
pub(crate) const HELPED: &[(&str, Helped)] = &[
    ("published_ports", published_ports),
    ("helpers_end", helpers_end),
    ("in_an_oci_runtime", in_an_oci_runtime),
    ("with_tun_closed", with_tun_closed),
];

const SOON: Duration = Duration::from_secs(20);
const LAN: &str = "/bin/lan";
/// The first member's address, and the second's.
const FIRST: &str = "100.80.0.2";
const SERVE: [&str; 2] = [LAN, "serve"];
/// How much a stream carries in each direction.
const BYTES: &str = "104857600";

/// A network without a way out, whose first member serves.
fn served(world: &World) -> Lab<'_> {
    let lab = world.like_the_oracle();
    lab.start("db", &[], &SERVE);
    lab
}

fn lan(lab: &Lab<'_>, words: &[&str]) -> Finished {
    lab.run("caller", &[&[LAN], words].concat())
}

fn names_and_devices(world: &World) {
    let lab = served(world);
    let words = ["udp", "db", "tcp", "db", "udp", "DB.lab", "udp", "nobody", "ping", FIRST];
    let done = lan(&lab, &[&words[..], &["device", "eth0"]].concat());
    // A name that nobody has is another server's, which internal networks do not ask.
    let own = "100.80.0.3 mtu 65520 02:42:64:50:00:03";
    let expected = format!("{FIRST}\n{FIRST}\n{FIRST}\nerror 2\nalive\n{own}\n");
    assert_eq!(done.ok().out(), expected);
    let words = ["ping", FIRST, "shown", "/proc/net/arp", FIRST, "shown", "/etc/hosts", "db.lab"];
    let text = lan(&lab, &words).ok().out();
    assert!(text.contains("02:42:64:50:00:02"), "{text}");
    assert!(text.contains("100.80.0.2\tdb "), "{text}");
    // The name server has port 53 of the container's loopback.
    let done = lan(&lab, &["bound", "100.80.0.5", "53", "bound", "0.0.0.0", "53"]);
    assert_eq!(done.out(), "bound\n0.0.0.0: EADDRINUSE\n");
}

fn bytes_arrive_unchanged(world: &World) {
    let lab = served(world);
    let text = lan(&lab, &["datagrams", FIRST, "streams", FIRST, BYTES]).ok().out();
    assert_eq!(text, "1 1400 9000 32000 65507 unchanged\nunchanged\n");
}

fn noise_harms_nobody(world: &World) {
    let lab = served(world);
    let agent = processes(&lab.person, "coracle-names");
    let text = lan(&lab, &["noise", "20000", "ping", FIRST]).ok().out();
    assert_eq!(text, "made noise\nalive\n");
    assert_eq!(processes(&lab.person, "coracle-names"), agent);
}

fn members_come_and_go(world: &World) {
    let lab = world.like_the_oracle();
    lab.start("db", &["--ip", FIRST], &SERVE);
    for _ in 0..2 {
        lab.person.run(&["stop", "-t", "0", "db"]).ok();
        let call = ["/bin/tool", "call", FIRST, "7000"];
        let gone = lab.run_with("caller", &["--ip", "100.80.0.9"], &call);
        assert_eq!(gone.ok().out(), "EHOSTUNREACH\n");
        lab.person.run(&["start", "db"]).ok();
        assert_eq!(lan(&lab, &["ping", FIRST]).ok().out(), "alive\n");
    }
}

fn several_networks(world: &World) {
    let lab = served(world);
    let create = ["network", "create", "more", "--internal", "--subnet", "100.81.0.0/24"];
    lab.person.run(&create).ok();
    let more = ["--network", "more", "--ip", "100.80.0.77", "--network-alias", "both"];
    lab.start("both", &more[..2], &SERVE);
    let one = lab.run_with("caller", &more[2..], &[LAN, "device", "eth0", "udp", "both"]);
    let both = lab.person.run(&["exec", "both", LAN, "device", "eth0", "device", "eth1"]);
    // A container that does not run is put into one more, and taken out again.
    lab.person.run(&["stop", "-t", "0", "db"]).ok();
    lab.person.run(&["network", "connect", "more", "db"]).ok();
    lab.person.run(&["start", "db"]).ok();
    let meets = lab.person.run(&["exec", "db", LAN, "device", "eth1", "ping", "100.81.0.2"]);
    lab.person.run(&["stop", "-t", "0", "db"]).ok();
    lab.person.run(&["network", "disconnect", "more", "db"]).ok();
    lab.person.run(&["start", "db"]).ok();
    let left = lab.person.run(&["exec", "db", LAN, "device", "eth1"]);
    lab.person.run(&["rm", "-f", "both", "db"]);
    lab.person.run(&["network", "rm", "more"]).ok();
    assert!(one.ok().out().starts_with("100.80.0.77 mtu 65520 02:42:64:50:00:4d\n"), "{one:?}");
    let lines = "100.80.0.3 mtu 65520 02:42:64:50:00:03\n100.81.0.2 mtu 65520 02:42:64:51:00:02\n";
    assert_eq!(both.ok().out(), lines);
    assert_eq!(meets.ok().out(), "100.81.0.3 mtu 65520 02:42:64:51:00:03\nalive\n");
    assert_eq!(left.out(), "eth1: ENODEV\n");
}

fn shared_and_entered(world: &World) {
    let lab = served(world);
    let words = [LAN, "device", "eth0", "udp", "db", "shown", "/etc/hosts", "db.lab"];
    let shared = lab.person.run(
        &[&["run", "--rm", "--execmode=N1", "--network=container:db", lab.image()], &words[..]]
            .concat(),
    );
    let entered = lab.person.run(&[&["exec", "db"], &words[..]].concat());
    assert_eq!(shared.ok().out(), entered.ok().out());
    assert!(entered.out().starts_with("100.80.0.2 mtu 65520"), "{entered:?}");
    assert!(entered.out().contains("\n100.80.0.2\n100.80.0.2\tdb "), "{entered:?}");
}

/// A boundary gets the network and no descriptor.
fn isolated(world: &World) {
    let lab = served(world);
    let words = [LAN, "descriptors", "ping", FIRST, "streams", FIRST, "1048576"];
    let options = ["--isolate", "--cap-add=NET_RAW"];
    let text = lab.run_with("caller", &options, &words).ok().out();
    assert_eq!(text, "3 descriptors\nalive\nunchanged\n");
}

/// A network with a way out, which also publishes ports.
fn published_ports(world: &World) -> Outcome {
    if let Some(why) = world.person.no_tun() {
        return Err(Skip(why));
    }
    let lab = world.lab();
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
    let publish = format!("127.0.0.1:{port}:80");
    lab.start("web", &["-p", &publish], &["/bin/tool", "serve", "0.0.0.0", "80"]);
    let inside = lab.run("caller", &["/bin/tool", "call", FIRST, "80"]).ok().out();
    assert!(inside.contains("100.80.0.3:"), "{inside}");
    let host = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&host, SOON).expect("the published port");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    let mut text = String::new();
    io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
    assert!(text.contains(':'), "{text}");
    // Two containers do not publish the same.
    let again = lab.run_with("again", &["-p", &publish], &["/bin/tool", "serve", "0.0.0.0", "80"]);
    assert!(again.err().contains("already"), "{again:?}");
    Ok(())
}

/// A helper ends with its container and with the processes beside that, in whatever order they are
/// killed: the next container gets the published port.
fn helpers_end(world: &World) -> Outcome {
    if let Some(why) = world.person.no_tun() {
        return Err(Skip(why));
    }
    let lab = world.lab();
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
    let publish = format!("127.0.0.1:{port}:80");
    let words = ["/bin/tool", "serve", "0.0.0.0", "80"];
    let start = ["run", "-d", "--execmode=N1", "--name=web", "-p", &publish];
    for isolate in [false, true] {
        for order in 0..4 {
            let more: &[&str] = if isolate { &["--isolate"] } else { &[] };
            lab.person.run(&[&start[..], more, &[lab.image()], &words].concat()).ok();
            lab.is_ready("web");
            let way = processes(&lab.person, "coracle-way");
            let id = lab.person.run(&["inspect", "--format={{.Id}}", "web"]).ok().line();
            let supervisors = holders(&format!("{id}/supervisor.lock"));
            assert!(way.len() == 1 && !supervisors.is_empty(), "{way:?} {supervisors:?}");
            let program = [lab.pid("web")];
            let killed: [&[u32]; 3] = match order {
                0 => [&supervisors, &way, &[]],
                1 => [&way, &supervisors, &[]],
                2 => [&supervisors, &[], &[]],
                _ => [&way, &program, &supervisors],
            };
            for pid in killed.into_iter().flatten() {
                // Some are gone by then.
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
            let free = || TcpListener::bind(("127.0.0.1", port)).ok().map(drop);
            assert!(until(SOON, free).is_some(), "port {port} is kept: {order} {isolate}");
            let state = || lab.person.run(&["inspect", "--format={{.State.Running}}", "web"]);
            let ended = until(SOON, || (state().ok().line() == "false").then_some(()));
            lab.person.run(&["rm", "-f", "web"]).ok();
            assert!(ended.is_some(), "the program lives on: {order} {isolate}");
        }
    }
    Ok(())
}

/// A container whose supervisor and link are killed has ended: it does not stay without a network.
fn killed_beside_the_program(world: &World) {
    let lab = world.like_the_oracle();
    for link_first in [true, false] {
        lab.start("db", &[], &["/bin/tool", "serve", "0.0.0.0", "80"]);
        let id = lab.person.run(&["inspect", "--format={{.Id}}", "db"]).ok().line();
        let (link, supervisors) =
            (processes(&lab.person, "coracle-link"), holders(&format!("{id}/supervisor.lock")));
        assert!(link.len() == 1 && !supervisors.is_empty(), "{link:?} {supervisors:?}");
        let order = if link_first { [&link, &supervisors] } else { [&supervisors, &link] };
        for pid in order.into_iter().flatten() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        let state = || lab.person.run(&["inspect", "--format={{.State.Running}}", "db"]);
        let ended = until(SOON, || (state().ok().line() == "false").then_some(()));
        assert!(ended.is_some(), "the program lives on: {link_first}");
        lab.person.run(&["rm", "-f", "db"]).ok();
    }
}

/// Processes that a killed supervisor's program leaves behind keep their network.
fn left_behind(world: &World) {
    let lab = served(world);
    let (id, first) =
        (lab.person.run(&["inspect", "--format={{.Id}}", "db"]).ok().line(), lab.pid("db"));
    for pid in holders(&format!("{id}/supervisor.lock")) {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
    let is_over = || {
        let stat = fs::read_to_string(format!("/proc/{first}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    };
    assert!(until(SOON, is_over).is_some(), "the program lives on");
    thread::sleep(Duration::from_secs(1));
    let state = lab.person.run(&["inspect", "--format={{.State.Running}}", "db"]).ok().line();
    let link = processes(&lab.person, "coracle-link").len();
    let heard = lan(&lab, &["ping", FIRST]).out();
    lab.person.run(&["rm", "-f", "db"]).ok();
    assert_eq!((&*state, link, &*heard), ("true", 1, "alive\n"));
    let none = until(SOON, || processes(&lab.person, "coracle-link").is_empty().then_some(()));
    assert!(none.is_some(), "a link is left");
}

/// The processes that have a file open whose path ends so.
fn holders(end: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let holds = |entry: &fs::DirEntry| {
        let files = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.to_string_lossy().ends_with(end))
    };
    all.filter(holds).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The process of the agent.
fn agent(lab: &Lab<'_>) -> u32 {
    let [agent] = processes(&lab.person, "coracle-names")[..] else {
        panic!("there is not one agent")
    };
    agent
}

/// Connections live, and new ones work again at once.
fn agent_killed(world: &World) {
    let lab = served(world);
    let agent = agent(&lab);
    thread::scope(|scope| {
        let talk = scope.spawn(|| lan(&lab, &["talk", FIRST, "60"]));
        thread::sleep(Duration::from_millis(500));
        let killed = lab.person.other("kill", &["-KILL", &agent.to_string()]);
        killed.ok();
        let talk = talk.join().expect("a run");
        assert_eq!(talk.ok().out(), "ready\ntalked\n");
    });
    let text = lab.person.run(&["exec", "db", LAN, "udp", "db"]).ok().out();
    assert_eq!(text, format!("{FIRST}\n"));
    assert_eq!(lan(&lab, &["ping", FIRST]).ok().out(), "alive\n");
    let now = processes(&lab.person, "coracle-names");
    assert!(now.len() == 1 && now != [agent], "{now:?} after {agent}");
}

/// Who is connected to a container sees its end, also if the agent had no time until that container
/// had ended. The container's last packets are sent only once.
fn ends_arrive(world: &World) {
    const CALLERS: usize = 8;
    let lab = world.like_the_oracle();
    lab.start("db", &[], &["/bin/tool", "echo", "0.0.0.0", "9432"]);
    let agent = agent(&lab);
    let call = |number: usize| {
        let stay = ["/bin/tool", "stay", FIRST, "9432"];
        let mut command = lab.command(&format!("caller{number}"), &["-i", "--rm"], &stay);
        let mut caller = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("one");
        let mut lines = BufReader::new(caller.stdout.take().expect("its output")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "it is not connected");
        caller
    };
    let mut callers: Vec<_> = (0..CALLERS).map(call).collect();
    lab.person.other("kill", &["-STOP", &agent.to_string()]).ok();
    for caller in &mut callers {
        drop(caller.stdin.take());
    }
    let end = |mut caller: Child| until(SOON, || caller.try_wait().ok().flatten());
    let ends: Vec<_> = callers.into_iter().map(end).collect();
    lab.person.other("kill", &["-CONT", &agent.to_string()]).ok();
    assert!(ends.iter().all(|end| end.is_some_and(|status| status.success())), "{ends:?}");
    let ended = || (lab.log("db").matches("ended\n").count() == CALLERS).then_some(());
    assert!(until(SOON, ended).is_some(), "not {CALLERS} ends: {}", lab.log("db"));
}

fn kinds_are_not_mixed(world: &World) {
    let lab = served(world);
    let words = ["run", "--rm", "--execmode=P1", "--network=lab", lab.image(), LAN, "ping", FIRST];
    let done = lab.person.run(&words);
    let text = done.err();
    assert_ne!(done.code(), 0);
    assert!(text.contains("db, which is connected by packets"), "{text}");
    assert!(text.contains("hint: ") && text.contains("--execmode=N1"), "{text}");
    // The members are as before.
    assert_eq!(lan(&lab, &["ping", FIRST]).ok().out(), "alive\n");
}

/// Processes end with the containers they serve, however those end; the agent a little later.
fn nothing_is_left(world: &World) {
    let lab = if world.person.no_tun().is_some() { world.like_the_oracle() } else { world.lab() };
    lab.start("db", &[], &SERVE);
    lab.run_with("web", &["-d", "--log-driver=none"], &SERVE).ok();
    assert_eq!(processes(&lab.person, "coracle-link").len(), 2);
    lab.person.run(&["kill", "-s", "KILL", "db"]).ok();
    lab.person.run(&["stop", "-t", "0", "web"]).ok();
    lan(&lab, &["ping", "127.0.0.1"]).ok();
    for name in ["coracle-link", "coracle-way", "/usr/bin/pasta", "slirp4netns", "coracle-names"] {
        let none = until(SOON, || processes(&lab.person, name).is_empty().then_some(()));
        assert!(none.is_some(), "{name} is left: {:?}", processes(&lab.person, name));
    }
}

/// Where users may not open `/dev/net/tun`: which mode is taken, and that the switch leads out.
fn with_tun_closed(world: &World) -> Outcome {
    if !rustix::process::getuid().is_root() {
        return Err(Skip("only root can close /dev/net/tun".to_owned()));
    }
    let own = own_address()?;
    let lab = world.lab();
    let closed = lab.person.home.join("closed");
    fs::write(&closed, "").expect("a file");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).expect("a mode");
    let run = |words: &[&str]| {
        let command = lab.person.command(words);
        let mut there = Command::new("unshare");
        there.args(["--mount", "--propagation", "private", "--", "sh", "-c"]);
        there.arg("mount --bind \"$0\" /dev/net/tun && exec \"$@\"").arg(&closed);
        there.arg(command.get_program()).args(command.get_args()).env_clear();
        for (name, value) in command.get_envs() {
            value.map(|value| there.env(name, value));
        }
        run_with(&mut there, Input::Null, crate::network::LIMIT)
    };
    let explained = |options: &[&str]| {
        let words = [&["run", "--rm", "--explain"], options, &[lab.image(), LAN]].concat();
        serde_json::from_slice::<serde_json::Value>(&run(&words).ok().stdout).expect("a plan")
    };
    let taken = explained(&["--network=lab"])["engine"].to_string();
    assert!(!taken.starts_with("\"N"), "{taken} is taken where no helper can run");
    let plan = explained(&["--execmode=N1", "--network=lab"]).to_string();
    assert!(plan.contains("\"way-out\":\"switch: /dev/net/tun cannot be opened"), "{plan}");
    lab.person.run(&["network", "create", "within", "--internal"]).ok();
    let within = explained(&["--network=within"])["engine"].to_string();
    lab.person.run(&["network", "rm", "within"]).ok();
    assert_eq!(within, "\"N1\"");
    // Out, to a server of the host.
    let server = TcpListener::bind((own, 0)).expect("a port");
    let port = server.local_addr().expect("one").port();
    let answers = thread::spawn(move || {
        let (mut stream, from) = server.accept().expect("a client");
        io::Write::write_all(&mut stream, b"hello\n").map(|()| from.ip())
    });
    let asked = ["--execmode=N1", "--network=lab", lab.image()];
    let call = ["/bin/tool", "call", &own.to_string(), &port.to_string()];
    let done = run(&[&["run", "--rm"], &asked[..], &call].concat());
    assert!(done.ok().out().contains("hello") && done.err().is_empty(), "{done:?}");
    assert_eq!(answers.join().expect("a server").expect("an answer"), own);
    // In, by a published port.
    let publish = format!("-p={port}:80");
    let serve = ["/bin/tool", "serve", "0.0.0.0", "80"];
    run(&[&["run", "-d", "--name=web", &publish], &asked[..], &serve].concat()).ok();
    lab.is_ready("web");
    let host = SocketAddr::from((own, port));
    let mut stream = TcpStream::connect_timeout(&host, SOON).expect("the published port");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    let mut text = String::new();
    io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
    assert!(text.contains(&format!("{own}:")), "{text}");
    lab.person.run(&["rm", "-f", "web"]).ok();
    Ok(())
}

/// `runc` and the like make the namespace there, and the rest is the same.
fn in_an_oci_runtime(world: &World) -> Outcome {
    let lab = served(world);
    let words = [LAN, "device", "eth0", "udp", "db", "ping", FIRST, "streams", FIRST, "1048576"];
    let first = ["run", "--rm", "--execmode=R1", "--network=lab", lab.image()];
    let done = lab.person.run(&[&first[..], &words].concat());
    if done.err().contains("neither runc nor crun") {
        return Err(Skip("neither runc nor crun is installed".to_owned()));
    }
    let text = done.ok().out();
    assert!(text.ends_with("\n100.80.0.2\nalive\nunchanged\n"), "{text}");
    Ok(())
}
