//! Root's own system calls in a namespace with one id.
//!
//! With one id mapped the kernel refuses what package managers do all day: `chown` to an id that is
//! not mapped, `mknod` of a device, `setgroups`, `setuid` to another user. A filter holds these
//! calls back, and a small process outside the program's family, the *notifier*, answers them: they
//! succeed, ownership and device numbers are recorded where `export` and `commit` find them, and a
//! process that dropped its ids reads back what it set (`apt` checks).
//!
//! ```text
//!   program ──chown("f", 42, 42)──► filter ──► listener ──► notifier: gives f an attribute
//!      ▲                                                        │
//!      └──────────────────────── 0 ◄───────────────────────────┘
//! ```
//!
//! - The notifier is forked before the filter exists, so it is not held back itself. It is nobody's
//!   child, or the program would meet it: `strace` waits until it has no child left, with a flag
//!   that shows every kind. It shares the container's namespaces and root, has no descriptor of the
//!   program's, and ends when the last process under the filter has ended.
//! - Calls that only *read* ids are held back too, which costs a few microseconds each. While
//!   nobody has dropped his ids they are waved through to the kernel, whose answer (0) is right.
//! - Which ids a process has set is kept in the kernel, not in a table by pid: the soft limit
//!   `RLIMIT_RTTIME` (real-time programs only, otherwise infinite) of the process carries a number
//!   of ours. It is inherited by `fork`, survives `execve`, and dies with the process; no race with
//!   pids that are used again is possible.
//!
//! What it does not do: `stat` shows the true owner (the one mapped id), files made by a process
//! that dropped its ids belong to root in the record, a setuid program does not give root back to a
//! process that dropped it, and 32-bit programs are not emulated. It is no security boundary: every
//! process in the container has the caller's rights whatever ids it believes in.
//!
//! On kernels before 5.0, which have no listeners, the calls are answered with success by the
//! filter alone, and nothing is recorded.

mod files;
mod filter;
mod identity;
mod server;
mod table;

use crate::error::{Error, Result};
use crate::launch::descriptor;
use crate::plan::{Groups, Plan};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::seccomp::Listener;

/// A notifier that waits for its listener.
#[derive(Debug)]
pub(super) struct Notifier {
    socket: OwnedFd,
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { doing: doing.into(), errno: errno.into() }
}

impl Notifier {
    /// Forks the notifier. `None` if the plan asks for none, or if it is another user's program.
    ///
    /// Called as soon as we are in the container's user and mount namespaces, so that the notifier
    /// gets ready while the rest is set up; `pivot_root` moves its root along with ours. It must be
    /// before a pid namespace is made: as a process of that namespace it would become a child of
    /// its first process.
    pub(super) fn start(plan: &Plan, host: Option<&Host>) -> Result<Option<Self>> {
        let Some(host) = host.filter(|_| plan.emulate_root && plan.process.uid == 0) else {
            return Ok(None);
        };
        let groups = match &plan.process.groups {
            Groups::Set(groups) => Some(groups.clone()),
            Groups::Keep => None,
        };
        let (ours, theirs) = descriptor::sockets()?;
        let forked = sys::fork::fork_apart().map_err(call("fork the notifier"))?;
        if forked.is_some() {
            return Ok(Some(Self { socket: ours }));
        }
        drop(ours);
        be_notifier(theirs, host, table::name(plan), groups);
        sys::fork::exit_now(0);
    }

    /// Installs the filter and hands its listener over. From here on the calls of this process are
    /// answered by the notifier.
    pub(super) fn attach(self) -> Result<()> {
        let doing = "install the filter for root's calls";
        match sys::seccomp::install_with_listener(&filter::program(abi::bpf::USER_NOTIF)) {
            Ok(listener) => descriptor::send(&self.socket, listener.as_fd())
                .map_err(call("hand the listener to the notifier")),
            // Kernels before 5.0 know no listeners; a filter with another listener (5.x: at most
            // one) is already there when nested.
            Err(Errno::INVAL | Errno::BUSY) => {
                sys::seccomp::install(&filter::program(abi::bpf::ERRNO)).map_err(call(doing))
            }
            Err(errno) => Err(call(doing)(errno)),
        }
    }
}

/// Directories of the host that the notifier needs, opened before they vanish.
#[derive(Debug)]
pub(super) struct Host {
    /// The host's `/proc`.
    proc: OwnedFd,
    /// The container's directory.
    place: OwnedFd,
}

impl Host {
    /// Opens them.
    pub(super) fn open(plan: &Plan) -> Result<Self> {
        let open = |path: &std::path::Path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| Error::File {
                doing: "open".into(),
                path: path.into(),
                errno: errno.into(),
            })
        };
        Ok(Self { proc: open("/proc".as_ref())?, place: open(&plan.place)? })
    }
}

/// Everything the notifier does.
fn be_notifier(
    socket: OwnedFd,
    host: &Host,
    table: Option<&'static str>,
    groups: Option<Vec<u32>>,
) {
    // Away from the caller's terminal and job: a Ctrl-C is not for us.
    let _ = rustix::process::setsid();
    // It has directories of the host's, and who may trace in the container's user namespace must
    // not take them (`pidfd_getfd(2)`).
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"coracle-root");
    let Ok((socket, host)) = keep(socket, host) else { return };
    if let Some(listener) = descriptor::receive(&socket) {
        drop(socket);
        let table = table.map(|name| (host.place, name));
        server::serve(&Listener::from_fd(listener), host.proc, table, groups);
    }
}

/// Closes everything but these.
fn keep(socket: OwnedFd, host: &Host) -> Result<(OwnedFd, Host), Errno> {
    let proc = rustix::io::fcntl_dupfd_cloexec(&host.proc, 3)?;
    let place = rustix::io::fcntl_dupfd_cloexec(&host.place, 3)?;
    let [socket, proc, place] = sys::process::keep_only([socket, proc, place])?;
    Ok((socket, Host { proc, place }))
}
