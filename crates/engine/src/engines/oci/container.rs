//! Makes a container by way of a runtime, from a plan.
//!
//! | step | process |
//! |---|---|
//! | files in `/etc`, cgroup, `unshare` of user and mount namespace, id maps | starter |
//! | memory file system for the bundle; root mounted; `config.json` written | starter |
//! | `runc run --detach`: the other namespaces, mounts, the new root | runtime, the starter's child |
//! | takes streams and instructions, waits | first process of the container |
//! | the runtime has ended: record the process, connect its network, open the gate | starter |
//! | terminal, limits, ids, filters, `execve` | first process of the container |
//!
//! The starter ends then. The container's first process becomes a child of the process that forked
//! the starter, which has made itself a subreaper.

use super::bundle_dir::BundleDir;
use crate::engines::external::first_process::WORD;
use crate::engines::external::handed::{Handed, Order, memory, open, pipe};
use crate::engines::external::helper::{LAUNCHER, await_adoption};
use crate::engines::namespaces::assistant::Assistant;
use crate::engines::namespaces::leave::{unshare, write_maps};
use crate::engines::namespaces::{enter, execute, links};
use crate::error::{Error, Result};
use crate::launch::cgroup;
use crate::launch::etc_files::{give_to_root, write_all};
use crate::launch::members::by_namespace::{Owner, note};
use crate::launch::report::{self, StatusSender};
use crate::plan::{IdRange, Ids, Plan};
use crate::records::Records;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Gid, Pid, PidfdFlags, Uid};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use sys::namespace::Kinds;
use sys::process::FIRST;

/// Where a starter mounts the memory of its bundle, in the container's `run/`.
const BUNDLE: &str = "bundle";

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// A container for a runtime to make, and what its first process does.
pub(super) struct Container<'a> {
    /// What the runtime makes.
    pub(super) plan: &'a Plan,
    pub(super) first: Order<'a>,
}

/// Has a runtime start the container; returns the number of its first process. The caller was
/// forked for this.
pub(super) fn make(
    runtime: &Path,
    container: Container<'_>,
    records: Option<&Records>,
) -> Result<u32> {
    let Container { plan, first } = container;
    write_all(plan)?;
    if let Some(group) = &plan.cgroup {
        cgroup::enter(group)?;
    }
    let assistant = Assistant::needed(plan).then(|| Assistant::start(plan)).transpose()?;
    let program = open(Path::new("/proc/self/exe"), OFlags::RDONLY)?;
    let directory = plan.place.join("run").join(BUNDLE);
    super::bundle_dir::make(&directory)?;
    leave(plan, assistant.as_ref())?;
    give_to_root(&plan.files);
    let bundle = BundleDir::make(runtime, plan, &first, directory)?;
    let (gate, mut opener) = pipe()?;
    let (sender, mut receiver) = report::pipe()?;
    let said = memory("said", &[])?;
    let handed = Handed::new(program, OwnedFd::from(sender), gate, first)?;
    let pid = bundle.start(runtime, &handed, &said)?;
    drop(handed);
    let pidfd = Pid::from_raw(pid as i32)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    note(&plan.place, pid, Owner::Caller);
    let recorded = records.map_or(Ok(()), |records| records.add(pid));
    let connected = recorded.and_then(|()| match &assistant {
        Some(assistant) if plan.network.needs_host() => connect(plan, assistant, pid),
        _ => Ok(()),
    });
    if connected.is_ok() {
        await_adoption(pid);
        let _ = opener.write_all(&[1]);
    }
    drop((opener, assistant));
    let outcome = connected.and_then(|()| receiver.outcome().map(|_| pid));
    if outcome.is_err() {
        records.inspect(|records| records.remove(pid));
        // It may still use the container's directory, so its end is waited for.
        if let Some(pidfd) = pidfd {
            let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
            let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
            let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, Some(&patience)));
        }
    }
    outcome
}

/// Connects the network of the container's first process.
fn connect(plan: &Plan, assistant: &Assistant, pid: u32) -> Result<()> {
    // Devices are made by root of the namespace, in it.
    if plan.network.is_named() {
        enter::kinds(pid, Kinds::NET)?;
    }
    assistant.connect(pid, &links::make(plan)?)
}

/// Becomes the first process of a further program, in the container of the process `pid`. That has
/// the host's pids.
pub(super) fn enter(
    pid: u32,
    order: Order<'_>,
    sender: &StatusSender,
) -> Result<std::convert::Infallible> {
    let program = open(Path::new("/proc/self/exe"), OFlags::RDONLY)?;
    let words = [LAUNCHER, WORD];
    let failed = call("start the program in the container");
    let arguments = sys::process::Strings::new(&words).ok_or_else(|| failed(Errno::INVAL))?;
    let environment =
        sys::process::Strings::new::<&str>(&[]).ok_or_else(|| failed(Errno::INVAL))?;
    let (gate, mut opener) = pipe()?;
    let _ = opener.write_all(&[1]);
    let report = rustix::io::fcntl_dupfd_cloexec(sender, FIRST as i32).map_err(&failed)?;
    let handed = Handed::new(program, report, gate, order)?;
    enter::enter(pid)?;
    execute::bound(0)?;
    // A program of its own, which may be traced: this one was another user's before it entered.
    sys::process::hand_over(&handed.numbered()).map_err(&failed)?;
    Err(failed(sys::process::exec(c"/proc/self/fd/3", &arguments, &environment)))
}

/// Leaves the host's user and mount namespaces, as root of new ones.
fn leave(plan: &Plan, assistant: Option<&Assistant>) -> Result<()> {
    if let Some(pid) = plan.namespaces.user_of {
        enter::kinds(pid, Kinds::USER)?;
        unshare(Kinds::MOUNT)?;
    } else {
        unshare(Kinds::MOUNT.with(Kinds::USER))?;
        write_maps(&with_root(&plan.ids), assistant)?;
    }
    // A runtime asks for root. Where the caller keeps another number, that one is a subordinate id.
    if !rustix::process::geteuid().is_root() {
        let failed = call("become root of the user namespace");
        rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).map_err(&failed)?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).map_err(&failed)?;
    }
    Ok(())
}

/// The map of one id under which a runtime can work: it is root, whatever the program's user.
fn with_root(ids: &Ids) -> Ids {
    match ids {
        Ids::Single { uid, gid } => {
            Ids::Single { uid: IdRange { inside: 0, ..*uid }, gid: IdRange { inside: 0, ..*gid } }
        }
        Ids::Range { .. } => ids.clone(),
    }
}
