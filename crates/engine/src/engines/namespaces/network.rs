//! Connects a container's own network namespace through a program of the host.
//!
//! `pasta` (passt) copies the host's addresses and routes into the namespace and carries the
//! traffic over ordinary sockets. `slirp4netns` is the older way: a network 10.0.2.0/24 with
//! address translation. It is used where pasta does not start, as on a host without a default
//! route.
//! Neither ends by itself (pasta does for namespaces that are files, not for those of processes),
//! so a small process, their parent, waits until the container is empty and ends them. If it is
//! killed, the kernel ends them.
//!
//! Ports are listened on by the helper, as the user, so ports below 1024 need
//! `net.ipv4.ip_unprivileged_port_start`.
//!
//! Networks with names need no helper: where none can run, the switch leads their containers out,
//! and is given the sockets of their ports, which stay bound if it ends.

use super::beside::{detached, outlive};
use super::keeper;
use crate::error::{Error, Result};
use crate::launch::etc_files::write_file;
use crate::plan::{DNS_FORWARD, EtcFile, Network, Outside, Plan, SLIRP_DNS, WayOut};
use crate::spec::Publish;
use rustix::process::Signal;
use std::io::{Read, Seek, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The device in a container that has others too.
const OUTSIDE: &str = "out0";
/// What `ps` shows of the process beside a helper.
const NAME: &str = "coracle-way";
/// What it says of a helper that is ready.
const READY: &str = "1";
/// Between two looks whether a helper is ready.
const LOOK: Duration = Duration::from_millis(1);

/// Connects the network namespace of a process. Called in the host's namespaces. `devices`: those
/// of networks with names.
pub(super) fn connect(plan: &Plan, pid: u32, devices: &[OwnedFd]) -> Result<()> {
    match &plan.network {
        // Addresses are translated in the view, by engines without a network namespace.
        Network::Inherit | Network::Loopback | Network::Names(_) => Ok(()),
        Network::Helper(outside) => lead_out(plan, outside, None, pid),
        Network::Packets(packets) => {
            let sockets = match &packets.outside {
                Some(WayOut::Switch { publish, .. }) => listen(publish)?,
                Some(WayOut::Helper(_)) | None => Vec::new(),
            };
            if let Some(switch) = plan.network.place().and_then(|place| place.switch.as_ref()) {
                let greeting = match (&packets.outside, &switch.way_out) {
                    (Some(WayOut::Switch { .. }), Some(way_out)) => {
                        format!("{}{way_out}", switch.greeting)
                    }
                    _ => switch.greeting.clone(),
                };
                let all: Vec<_> = devices.iter().chain(&sockets).map(AsFd::as_fd).collect();
                keeper::start(plan, (switch, &greeting), pid, &all)?;
            }
            match &packets.outside {
                Some(WayOut::Helper(outside)) => lead_out(plan, outside, Some(OUTSIDE), pid),
                Some(WayOut::Switch { .. }) | None => Ok(()),
            }
        }
    }
}

/// Binds the host's ports that the switch leads to the container, in the order of their numbers.
fn listen(publish: &[Publish]) -> Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    for one in publish {
        for (port, _) in one.pairs() {
            let socket = match one.address {
                Some(address) => bind((address, port).into(), one.udp),
                // All addresses of both versions, where the host has both.
                None => bind((Ipv6Addr::UNSPECIFIED, port).into(), one.udp)
                    .or_else(|_| bind((Ipv4Addr::UNSPECIFIED, port).into(), one.udp)),
            };
            all.push(socket.map_err(|error| Error::Call {
                doing: format!("bind the host's port {port}"),
                errno: error.into(),
            })?);
        }
    }
    Ok(all)
}

fn bind(place: SocketAddr, udp: bool) -> std::io::Result<OwnedFd> {
    if udp {
        let socket = UdpSocket::bind(place)?;
        socket.set_nonblocking(true)?;
        return Ok(socket.into());
    }
    let listener = TcpListener::bind(place)?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// Connects it with the outside. `device`: the name of the device there, if it matters.
fn lead_out(plan: &Plan, outside: &Outside, device: Option<&str>, pid: u32) -> Result<()> {
    let Outside { program, slirp, or_slirp, publish } = outside;
    let place = &plan.place;
    if *slirp {
        return self::slirp(program, publish, device, place, pid);
    }
    match (pasta(program, publish, device, place, pid), or_slirp) {
        (Err(first), Some(other)) => instead(plan, (other, publish, device), pid, first),
        (done, _) => done,
    }
}

/// Uses slirp4netns where pasta did not start.
fn instead(
    plan: &Plan,
    (program, publish, device): (&Path, &[Publish], Option<&str>),
    pid: u32,
    first: Error,
) -> Result<()> {
    // It answers name queries at another address.
    let lines = [DNS_FORWARD, SLIRP_DNS].map(|address| format!("nameserver {address}\n"));
    for file in plan.files.iter().filter(|file| file.text.contains(&lines[0])) {
        let text = file.text.replace(&lines[0], &lines[1]);
        write_file(plan, &EtcFile { text, ..file.clone() })?;
    }
    slirp(program, publish, device, &plan.place, pid).map_err(|second| match (first, second) {
        (Error::Helper { program, status, output }, second @ Error::Helper { .. }) => {
            Error::Helper { program, status, output: format!("{output}; then {second}") }
        }
        (_, second) => second,
    })
}

fn failed(program: &Path, status: &str, output: &str) -> Error {
    let output = output.trim();
    Error::Helper {
        program: program.into(),
        status: status.into(),
        output: if output.is_empty() { String::new() } else { format!(": {output}") },
    }
}

/// One `-t` or `-u` argument of pasta.
fn pasta_port(publish: &Publish) -> String {
    let range = |first: u16| match publish.count {
        0 | 1 => first.to_string(),
        count => format!("{first}-{}", first.saturating_add(count - 1)),
    };
    let ports = if publish.host == publish.inside {
        range(publish.host)
    } else {
        format!("{}:{}", range(publish.host), range(publish.inside))
    };
    match publish.address {
        Some(address) => format!("{address}/{ports}"),
        None => ports,
    }
}

fn pasta_arguments(publish: &[Publish], device: Option<&str>, note: &str, pid: u32) -> Vec<String> {
    let mut words: Vec<String> =
        ["--foreground", "--config-net", "--quiet", "--dns-forward", DNS_FORWARD, "--pid", note]
            .map(String::from)
            .to_vec();
    if let Some(device) = device {
        words.extend(["--ns-ifname".to_owned(), device.to_owned()]);
    }
    for (flag, udp) in [("-t", false), ("-u", true)] {
        let ports: Vec<_> = publish.iter().filter(|one| one.udp == udp).map(pasta_port).collect();
        if ports.is_empty() {
            words.extend([flag.to_owned(), "none".to_owned()]);
        }
        for port in ports {
            words.extend([flag.to_owned(), port]);
        }
    }
    // The container must not reach services of the host that listen on loopback only.
    words.extend(["-T", "none", "-U", "none", "--no-map-gw"].map(String::from));
    words.push(pid.to_string());
    words
}

fn pasta(
    program: &Path,
    publish: &[Publish],
    device: Option<&str>,
    place: &Path,
    pid: u32,
) -> Result<()> {
    let not_started = |error: std::io::Error| failed(program, "not started", &error.to_string());
    // It keeps its standard error, so that must be a file: a pipe would not end.
    let said = rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|errno| not_started(errno.into()))?;
    // By then it is in another user namespace, so its note must have a plain path.
    let note = place.join("run").join(format!("{pid}.pasta"));
    let _ = std::fs::remove_file(&note);
    let mut command = Command::new(program);
    command.args(pasta_arguments(publish, device, &note.to_string_lossy(), pid));
    let (ready, tell) = crate::launch::report::raw_pipe()?;
    detached(|| watch_pasta(command, said, &note, (place, pid), tell))?;
    let mut message = String::new();
    let _ = std::fs::File::from(ready).read_to_string(&mut message);
    if message == READY {
        return Ok(());
    }
    let (status, output) = message.split_once('\n').unwrap_or((&message, ""));
    Err(failed(program, if status.is_empty() { "not ready" } else { status }, output))
}

/// Runs pasta as long as somebody lives in the container.
fn watch_pasta(
    mut command: Command,
    said: OwnedFd,
    note: &Path,
    (place, pid): (&Path, u32),
    tell: OwnedFd,
) {
    let Ok([tell, said]) = sys::process::keep_only([tell, said]) else { return };
    let (mut tell, said) = (std::fs::File::from(tell), std::fs::File::from(said));
    let Ok(errors) = said.try_clone() else { return };
    let mut child = match spawn(command.stderr(errors), place) {
        Ok(child) => child,
        Err(error) => {
            let _ = write!(tell, "not started\n{error}");
            return;
        }
    };
    // It writes its number when it is ready.
    let is_ready = || std::fs::read(note).is_ok_and(|text| !text.is_empty());
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            _ if is_ready() => break None,
            _ => std::thread::sleep(LOOK),
        }
    };
    let _ = std::fs::remove_file(note);
    let _ = match ended {
        None => write!(tell, "{READY}"),
        Some(status) => write!(tell, "{status}\n{}", text_of(said)),
    };
    drop(tell);
    if ended.is_none() {
        outlive(place, pid);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Starts a helper, which ends with this process, however that ends: else nothing would end it, and
/// it would keep the host's ports.
fn spawn(command: &mut Command, place: &Path) -> std::io::Result<Child> {
    let id = place.file_name().unwrap_or_default().to_string_lossy();
    sys::event::set_title(NAME, &format!("{NAME} {id}"));
    sys::child::dies_with(command, Signal::KILL);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}

/// What was written into a file in memory.
fn text_of(mut file: std::fs::File) -> String {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.take(2000).read_to_string(&mut text));
    text
}

/// Starts slirp4netns under a watcher that lives as long as the container.
fn slirp(
    program: &Path,
    publish: &[Publish],
    device: Option<&str>,
    place: &Path,
    pid: u32,
) -> Result<()> {
    let (ready, tell) = crate::launch::report::raw_pipe()?;
    let directory = place.join("run");
    let socket = PathBuf::from(format!("{pid}.slirp"));
    // A socket's path must be short, so it is used by a relative name.
    rustix::process::chdir(&directory).map_err(|errno| Error::File {
        doing: "enter".into(),
        path: directory.clone(),
        errno: errno.into(),
    })?;
    let device = device.unwrap_or("tap0");
    detached(|| watch((program, device), &socket, place, pid, tell))?;
    let mut message = String::new();
    let _ = std::fs::File::from(ready).read_to_string(&mut message);
    if message != READY {
        return Err(failed(program, "not ready", &message));
    }
    let result = publish.iter().try_for_each(|one| slirp_forward(program, &socket, one));
    let _ = std::fs::remove_file(&socket);
    result
}

/// Runs slirp4netns as long as somebody lives in the container.
fn watch((program, device): (&Path, &str), socket: &Path, place: &Path, pid: u32, tell: OwnedFd) {
    let Ok([tell]) = sys::process::keep_only([tell]) else { return };
    let mut tell = std::fs::File::from(tell);
    let Ok((ready, ready_end)) = crate::launch::report::raw_pipe() else { return };
    // The helper inherits the writing end under its own number.
    if rustix::io::fcntl_setfd(&ready_end, rustix::io::FdFlags::empty()).is_err() {
        return;
    }
    let mut command = Command::new(program);
    command
        .args(["--configure", "--mtu=65520", "--disable-host-loopback", "--enable-ipv6"])
        .arg(format!("--ready-fd={}", ready_end.as_raw_fd()))
        .arg(format!("--api-socket={}", socket.display()))
        .arg(format!("--userns-path=/proc/{pid}/ns/user"))
        .arg(pid.to_string())
        .arg(device)
        .stderr(Stdio::null());
    let child = spawn(&mut command, place);
    drop(ready_end);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ = tell.write_all(error.to_string().as_bytes());
            return;
        }
    };
    let mut byte = [0];
    let is_ready = matches!(std::fs::File::from(ready).read(&mut byte), Ok(1));
    let said = if is_ready { READY } else { "it ended before it was ready" };
    let _ = tell.write_all(said.as_bytes());
    drop(tell);
    if is_ready {
        outlive(place, pid);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Publishes ports through slirp4netns' socket: one JSON request per connection.
fn slirp_forward(program: &Path, socket: &Path, publish: &Publish) -> Result<()> {
    for (host, inside) in publish.pairs() {
        let address = publish.address.map_or_else(|| "0.0.0.0".into(), |one| one.to_string());
        let request = serde_json::json!({
            "execute": "add_hostfwd",
            "arguments": {
                "proto": if publish.udp { "udp" } else { "tcp" },
                "host_addr": address,
                "host_port": host,
                "guest_port": inside,
            }
        });
        let mut answer = String::new();
        let asked = UnixStream::connect(socket).and_then(|mut stream| {
            stream.write_all(request.to_string().as_bytes())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            stream.read_to_string(&mut answer)
        });
        if let Err(error) = asked {
            return Err(failed(program, "no answer", &error.to_string()));
        }
        if answer.contains("\"error\"") {
            return Err(failed(program, "port refused", &answer));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_pastas_words() {
        let one = Publish { host: 8080, inside: 80, count: 1, ..Publish::default() };
        assert_eq!(pasta_port(&one), "8080:80");
        let range = Publish {
            address: Some("127.0.0.1".parse().unwrap()),
            host: 9000,
            inside: 9000,
            count: 3,
            udp: true,
            ..Publish::default()
        };
        assert_eq!(pasta_port(&range), "127.0.0.1/9000-9002");
        let words = pasta_arguments(&[one, range], Some("out0"), "/note", 7).join(" ");
        assert!(words.contains("-t 8080:80 -u 127.0.0.1/9000-9002 -T none"), "{words}");
        assert!(words.ends_with(" 7"));
    }
}
