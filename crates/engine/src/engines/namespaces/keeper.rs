//! A process beside a container that keeps its devices for the switch.
//!
//! It is made by the assistant ([`super::assistant`]), stays in the host's namespaces, and has
//! nothing but the descriptors that [`super::links`] has made, and the sockets of published ports
//! where the switch has them. It gives them to the agent of the
//! host over a connection that lasts as long as the container: the kernel closes it when this
//! process ends, and the agent forgets the container. If the agent ends, which happens only where
//! it is killed, this process has another one started, and gives it the same descriptors.
//!
//! So every run has one, also where nothing else stays beside the program. A supervisor that finds
//! its run ended ends it; else it finds out by itself.

use super::beside::{Life, Seen, detached};
use crate::error::{Error, Result};
use crate::launch::descriptor::send_with;
use crate::launch::report::raw_pipe;
use crate::plan::{Plan, Switch};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `ps` shows.
const NAME: &str = "coracle-link";
/// How long a start waits for an agent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to reach one: at first, and at last. All containers of a host lose their agent
/// at once.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// What an agent answers that has taken the devices.
const TAKEN: &[u8] = b"+";

/// Makes the process; returns when the switch has the devices. Called in the host's namespaces.
/// `greeting`: what the switch is told with them.
pub(super) fn start(
    plan: &Plan,
    (switch, greeting): (&Switch, &str),
    pid: u32,
    devices: &[BorrowedFd<'_>],
) -> Result<()> {
    let (ready, tell) = raw_pipe()?;
    detached(|| keep(plan, (switch, greeting), pid, devices, tell))?;
    let mut answer = Vec::new();
    let _ = std::fs::File::from(ready).read_to_end(&mut answer);
    if answer == TAKEN {
        return Ok(());
    }
    Err(Error::Switch { why: String::from_utf8_lossy(&answer).into_owned() })
}

fn keep(
    plan: &Plan,
    (switch, greeting): (&Switch, &str),
    pid: u32,
    devices: &[BorrowedFd<'_>],
    tell: OwnedFd,
) {
    let kept: Vec<_> = devices.iter().copied().chain([tell.as_fd()]).collect();
    if sys::process::keep_these(&kept).is_err() {
        return;
    }
    sys::event::set_title(NAME, &format!("{NAME} {}", plan.container));
    let mut life = Life::of(&plan.place, pid);
    let mut tell = Some(std::fs::File::from(tell));
    let (since, mut pause) = (Instant::now(), PAUSES[0]);
    loop {
        match give((switch, greeting), devices) {
            Ok(connection) => {
                if let Some(mut tell) = tell.take() {
                    let _ = tell.write_all(TAKEN);
                    sys::event::trim_memory();
                    sys::event::release_code();
                }
                pause = PAUSES[0];
                if life.wait(Some(connection.as_fd()), None) == Seen::Empty {
                    return;
                }
            }
            Err(error) => {
                let is_final = error.kind() == io::ErrorKind::Other || since.elapsed() > PATIENCE;
                if let Some(mut tell) = tell.take_if(|_| is_final) {
                    let _ = tell.write_all(error.to_string().as_bytes());
                    return;
                }
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) {
                    begin(switch);
                }
            }
        }
        if life.wait(None, Some(pause)) == Seen::Empty {
            return;
        }
        pause = PAUSES[1].min(pause * 2);
    }
}

/// Gives the devices to the agent: the connection. An error of kind `Other` is its refusal.
fn give((switch, greeting): (&Switch, &str), devices: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // One that was stopped must not hold up a start for ever.
    let limit = Some(PATIENCE);
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, limit)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, limit)?;
    // The path may be longer than a socket's address.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = switch.socket.parent().unwrap_or(&switch.socket);
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let name = switch.socket.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    rustix::net::connect(&socket, &SocketAddrUnix::new(&short)?)?;
    send_with(&socket, greeting.as_bytes(), devices)?;
    let mut answer = [0; 512];
    let (length, _) = rustix::io::retry_on_intr(|| {
        rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())
    })
    .map_err(|errno| match errno {
        Errno::AGAIN => io::Error::from(io::ErrorKind::TimedOut),
        errno => errno.into(),
    })?;
    match answer.get(..length).unwrap_or_default() {
        TAKEN => Ok(socket),
        [] => Err(io::ErrorKind::ConnectionReset.into()),
        other => Err(io::Error::other(String::from_utf8_lossy(other).into_owned())),
    }
}

/// Starts an agent, and waits until it serves. Where there is one already, it ends at once.
fn begin(switch: &Switch) {
    let Ok((mut ours, theirs)) = io::pipe() else { return };
    let (word, store) = &switch.start;
    let mut command = Command::new("/proc/self/exe");
    command.arg(word).arg(store).current_dir("/").env_clear();
    command.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null());
    let _ = command.status();
    drop(command);
    let _ = ours.read(&mut [0; 1]);
}
