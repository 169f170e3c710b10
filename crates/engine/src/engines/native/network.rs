//! A network of one's own, connected through a program of the host.
//!
//! `pasta` (passt) copies the host's addresses and routes into the namespace and carries the traffic over ordinary sockets; it goes into
//! the background when it is ready and ends when the namespace does. `slirp4netns` is the older way: a network 10.0.2.0/24 with address
//! translation; it stays in the foreground, so a small process of ours waits for the container and ends it.
//!
//! Ports are listened on by the helper, as the user, so ports below 1024 need `net.ipv4.ip_unprivileged_port_start`.

use crate::error::{Error, Result};
use crate::plan::{DNS_FORWARD, Network};
use crate::spec::Publish;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Connects the network namespace of a process. Called in the host's namespaces.
pub(super) fn connect(network: &Network, pid: u32) -> Result<()> {
    match network {
        Network::Inherit | Network::Loopback => Ok(()),
        Network::Helper { program, slirp: false, publish } => pasta(program, publish, pid),
        Network::Helper { program, slirp: true, publish } => slirp(program, publish, pid),
    }
}

fn failed(program: &Path, status: impl ToString, output: &str) -> Error {
    let output = output.trim();
    Error::Helper {
        program: program.into(),
        status: status.to_string(),
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

fn pasta_arguments(publish: &[Publish], pid: u32) -> Vec<String> {
    let mut words: Vec<String> =
        ["--config-net", "--quiet", "--dns-forward", DNS_FORWARD].map(String::from).to_vec();
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

fn pasta(program: &Path, publish: &[Publish], pid: u32) -> Result<()> {
    // Its standard error must be a file: the background process keeps it, and a pipe would not end.
    let output = Command::new(program)
        .args(pasta_arguments(publish, pid))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said().map_err(|error| failed(program, "not started", &error.to_string()))?)
        .status();
    match output {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(program, status, &heard())),
        Err(error) => Err(failed(program, "not started", &error.to_string())),
    }
}

thread_local! {
    /// What the helper printed last: an unnamed file in memory.
    static SAID: std::cell::RefCell<Option<std::fs::File>> = const { std::cell::RefCell::new(None) };
}

fn said() -> std::io::Result<Stdio> {
    let file: std::fs::File =
        rustix::fs::memfd_create("helper", rustix::fs::MemfdFlags::CLOEXEC)?.into();
    let copy = file.try_clone()?;
    SAID.set(Some(file));
    Ok(copy.into())
}

fn heard() -> String {
    use std::io::Seek;
    let Some(mut file) = SAID.take() else { return String::new() };
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.take(2000).read_to_string(&mut text));
    text
}

/// Starts slirp4netns under a watcher that lives as long as the container's process.
fn slirp(program: &Path, publish: &[Publish], pid: u32) -> Result<()> {
    let call = |doing: &str, errno: crate::Errno| Error::Call { doing: doing.into(), errno };
    let (ready, tell) = super::report::raw_pipe()?;
    let directory = std::env::temp_dir().join(format!("coracle-slirp-{pid}"));
    let socket = directory.join("api");
    match sys::event::fork().map_err(|error| call("fork a watcher", error.into()))? {
        sys::event::ForkResult::Child => {
            drop(ready);
            // Away from the caller's session and from its wait: reparented when this child ends.
            let _ = rustix::process::setsid();
            if matches!(sys::event::fork(), Ok(sys::event::ForkResult::Child)) {
                let code = watch(program, &directory, pid, tell);
                sys::process::exit_now(code);
            }
            sys::process::exit_now(0);
        }
        sys::event::ForkResult::Parent(child) => {
            drop(tell);
            let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        }
    }
    let mut message = String::new();
    let _ = std::fs::File::from(ready).read_to_string(&mut message);
    if message != "1" {
        return Err(failed(program, "not ready", &message));
    }
    let result = publish.iter().try_for_each(|one| slirp_forward(program, &socket, one));
    let _ = std::fs::remove_dir_all(&directory);
    result
}

/// Runs slirp4netns until the process ends.
fn watch(program: &Path, directory: &Path, pid: u32, tell: std::os::fd::OwnedFd) -> i32 {
    let _ = std::fs::create_dir(directory);
    let mut tell = std::fs::File::from(tell);
    let Ok((ready, ready_end)) = super::report::raw_pipe() else { return 1 };
    // The helper inherits the writing end under its own number.
    if rustix::io::fcntl_setfd(&ready_end, rustix::io::FdFlags::empty()).is_err() {
        return 1;
    }
    let child = Command::new(program)
        .args(["--configure", "--mtu=65520", "--disable-host-loopback", "--enable-ipv6"])
        .arg(format!("--ready-fd={}", ready_end.as_raw_fd()))
        .arg(format!("--api-socket={}", directory.join("api").display()))
        .arg(format!("--userns-path=/proc/{pid}/ns/user"))
        .arg(pid.to_string())
        .arg("tap0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    drop(ready_end);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ = tell.write_all(error.to_string().as_bytes());
            return 1;
        }
    };
    let mut byte = [0];
    let is_ready = matches!(std::fs::File::from(ready).read(&mut byte), Ok(1));
    let _ = tell.write_all(if is_ready { b"1" } else { b"it ended before it was ready" });
    drop(tell);
    if let (true, Some(pid)) = (is_ready, rustix::process::Pid::from_raw(pid as i32)) {
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            let mut fds = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
            let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None));
        } else {
            while rustix::process::test_kill_process(pid).is_ok() {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    0
}

/// Publishes ports through slirp4netns' socket: one JSON request per connection.
fn slirp_forward(program: &Path, socket: &Path, publish: &Publish) -> Result<()> {
    for offset in 0..publish.count.max(1) {
        let address = publish.address.map_or_else(|| "0.0.0.0".into(), |one| one.to_string());
        let request = serde_json::json!({
            "execute": "add_hostfwd",
            "arguments": {
                "proto": if publish.udp { "udp" } else { "tcp" },
                "host_addr": address,
                "host_port": publish.host.saturating_add(offset),
                "guest_port": publish.inside.saturating_add(offset),
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
        };
        assert_eq!(pasta_port(&range), "127.0.0.1/9000-9002");
        let words = pasta_arguments(&[one, range], 7).join(" ");
        assert!(words.contains("-t 8080:80 -u 127.0.0.1/9000-9002 -T none"), "{words}");
        assert!(words.ends_with(" 7"));
    }
}
