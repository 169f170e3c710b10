//! A child that stays in the host's namespaces while its parent leaves them.
//!
//! Two things can only be done from outside: writing a map of several ids (`newuidmap`,
//! `newgidmap`, or real root), and connecting a network namespace (`pasta`, `slirp4netns`, the
//! switch). The assistant is forked before the parent leaves, does what it is asked over a socket,
//! and ends when the socket closes, which is before the program starts.

use super::network;
use crate::error::{Error, Result};
use crate::launch::{descriptor, fork};
use crate::plan::{Ids, Plan};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::fork::ForkResult;
use sys::userns::Maps;

/// Longest message.
const LIMIT: usize = 16 << 10;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Task {
    /// Write the maps of this process's user namespace.
    Maps(u32),
    /// Connect the network namespace of this process.
    Network(u32),
}

/// A running assistant.
#[derive(Debug)]
pub(in crate::engines) struct Assistant {
    socket: Option<OwnedFd>,
    pid: Pid,
}

/// The maps of a plan.
pub(in crate::engines) fn maps(ids: &Ids) -> Maps {
    let (uids, gids) = ids.lines();
    let lines = |all: &[crate::plan::IdRange]| {
        all.iter().map(|line| (line.inside, line.outside, line.count)).collect()
    };
    let helpers = match ids {
        Ids::Single { .. } => None,
        Ids::Range { helpers, .. } => helpers.clone(),
    };
    Maps { uids: lines(uids), gids: lines(gids), helpers }
}

/// An error of `sys` with the step it belongs to.
pub(in crate::engines) fn map_error(ids: &Ids, error: sys::userns::Error) -> Error {
    use sys::userns::Error as E;
    match error {
        E::Unshare(errno) => Error::Unshare { which: "user".into(), errno: errno.into() },
        E::Write { file, errno } => {
            let map = maps(ids).uids.iter().fold(String::new(), |mut text, (a, b, c)| {
                use std::fmt::Write;
                let _ = write!(text, "{}{a} {b} {c}", if text.is_empty() { "" } else { ", " });
                text
            });
            Error::IdMap { file, map, errno: errno.into() }
        }
        E::Helper { program, status, output } => {
            let output = if output.is_empty() { output } else { format!(": {output}") };
            Error::Helper { program, status, output }
        }
        E::Process(error) => Error::Call { doing: "start a process".into(), errno: error.into() },
        E::Vanished => Error::Vanished("no answer".into()),
    }
}

impl Assistant {
    /// Whether a plan needs one. Somebody else's user namespace has its maps already.
    pub(in crate::engines) fn needed(plan: &Plan) -> bool {
        let range = matches!(plan.ids, Ids::Range { .. }) && plan.namespaces.user_of.is_none();
        range || plan.network.needs_host()
    }

    /// Forks one.
    pub(in crate::engines) fn start(plan: &Plan) -> Result<Self> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| Error::call("make a socket pair", errno))?;
        match fork::child()? {
            ForkResult::Parent(pid) => Ok(Self { socket: Some(ours), pid }),
            ForkResult::Child => {
                drop(ours);
                serve(plan, &theirs);
                sys::fork::exit_now(0);
            }
        }
    }

    fn ask(&self, task: Task, given: &[BorrowedFd<'_>]) -> Result<()> {
        let lost = |errno: rustix::io::Errno| Error::Vanished(format!("the assistant: {errno}"));
        let Some(socket) = &self.socket else { return Err(lost(rustix::io::Errno::PIPE)) };
        let question = serde_json::to_vec(&task).unwrap_or_default();
        descriptor::send_with(socket, &question, given).map_err(lost)?;
        let mut answer = vec![0; LIMIT];
        let (length, _) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(socket, &mut answer[..], RecvFlags::empty())
        })
        .map_err(lost)?;
        serde_json::from_slice::<Result<()>>(&answer[..length])
            .map_err(|error| Error::Vanished(format!("the assistant: {error}")))?
    }

    /// Has the maps of a process's user namespace written.
    pub(in crate::engines) fn write_maps(&self, pid: u32) -> Result<()> {
        self.ask(Task::Maps(pid), &[])
    }

    /// Has the network namespace of a process connected. `devices`: what [`super::links`] has made
    /// in it.
    pub(in crate::engines) fn connect(&self, pid: u32, devices: &[OwnedFd]) -> Result<()> {
        let devices: Vec<_> = devices.iter().map(AsFd::as_fd).collect();
        self.ask(Task::Network(pid), &devices)
    }

    /// A child of the process that forked the assistant gives its copy up.
    pub(in crate::engines) fn forget(mut self) {
        self.socket = None;
        std::mem::forget(self);
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        self.socket = None;
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
        });
    }
}

fn serve(plan: &Plan, socket: &OwnedFd) {
    let mut buffer = vec![0; LIMIT];
    loop {
        let Some((length @ 1.., given)) = descriptor::receive_with(socket, &mut buffer) else {
            return;
        };
        let Ok(task) = serde_json::from_slice(&buffer[..length]) else { return };
        let answer = match task {
            Task::Maps(pid) => {
                maps(&plan.ids).write_for(pid).map_err(|error| map_error(&plan.ids, error))
            }
            Task::Network(pid) => network::connect(plan, pid, &given),
        };
        let answer = serde_json::to_vec(&answer).unwrap_or_default();
        if rustix::net::send(socket, &answer, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}
