//! Adapts `/proc` to the guest: magic links, and files whose contents name paths or ids.
//!
//! The guest's `/proc` is the host's ([`crate::world::Kind::Proc`]), with rules for everything that
//! would show the host:
//!
//! - **Links.** `self` and `thread-self` are the caller's, not the backend's. `exe`, `cwd`, `root`,
//!   `fd/N`, `map_files/*` of any process name files: [`follow`] gives the guest's name of the
//!   target, or says that the kernel has to follow the link because the target (a pipe, a deleted
//!   file, a namespace) has no name.
//! - **Files.** `maps`, `smaps`, `numa_maps`, `net/unix`, `mounts`, `mountinfo`, `mountstats`,
//!   `status`, and `net/if_inet6` in networks with names are copied and rewritten into a memory
//!   file when they are opened ([`open`]). The copy does not change afterwards: a process that
//!   keeps it open reads the state of that moment.
//! - **Owners.** A process's directory belongs to its emulated user ([`owner`]), who decides with
//!   the mode who may open a file there (`allows`). What shows memory, descriptors or directories
//!   needs the right to inspect the process, too ([`crate::calls::others`]).
//!
//! Everything else is the kernel's: the guest consists of real processes with real arguments and
//! environments.

mod lines;
mod links;
mod maps;
mod mounts;
mod name;
mod status;
#[cfg(test)]
mod tests;

pub use links::{Target, follow};

use crate::CallContext;
use crate::calls::others;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host, HostFd};
use crate::identity::files::NO_FACTS;
use crate::identity::{Lists, Truth, Want, may};
use crate::sockets::{ids_of, interfaces};
use crate::task::Task;
use crate::text::Text;
use crate::verdict::Verdict;
use abi::calls::others::Right;
use lines::{Lines, Output};
use linux_raw_sys::general as raw;
use name::{Entry, entry};

/// A file whose contents are made for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Maps,
    NumaMaps,
    Sockets,
    Mounts(mounts::Form),
    Status,
    /// Accepts what is written to it, without any effect.
    LoginId,
    /// The addresses of interfaces that a container in networks with names sees.
    Addresses,
}

impl Made {
    /// Decides by the name in the directory of a process or thread.
    fn of(entry: &Entry<'_>) -> Option<Self> {
        Some(match entry.rest {
            b"maps" | b"smaps" => Self::Maps,
            b"numa_maps" => Self::NumaMaps,
            b"net/unix" => Self::Sockets,
            b"mounts" => Self::Mounts(mounts::Form::Mounts),
            b"mountinfo" => Self::Mounts(mounts::Form::Info),
            b"mountstats" => Self::Mounts(mounts::Form::Stats),
            b"status" => Self::Status,
            b"loginuid" => Self::LoginId,
            b"net/if_inet6" => Self::Addresses,
            _ => return None,
        })
    }
}

/// Opens a file under `/proc` if its contents are made for the guest: [`Verdict::Give`]. `host` is
/// the host path (`buffers.found[0]`), `flags` are `open`'s.
///
/// Calls that the kernel refuses (writing, another user's process, `O_DIRECTORY`) are left to it.
pub fn open<N: Backend>(
    context: &mut CallContext<'_, N>,
    host: &Text,
    flags: u32,
) -> Result<Option<Verdict>> {
    let (pid, tid) = (context.backend.pid(), context.backend.tid());
    let Some(entry) = entry(pid, tid, host.as_bytes()) else { return Ok(None) };
    if entry.process != pid {
        allows(context, host, &entry, Want::to_open(flags))?;
        if INSPECTED.contains(&name::cut(entry.rest).0) {
            let CallContext { backend, world, task, .. } = context;
            others::may(*backend, world, task, entry.process, Right::Inspect)
                .map_err(|_| Errno::EACCES)?;
        }
    }
    let Some(made) = Made::of(&entry) else { return Ok(None) };
    let is_kernels = match made {
        Made::Mounts(_) | Made::Sockets => context.world.namespaces,
        Made::Addresses => context.world.network.is_none(),
        _ => false,
    };
    if is_kernels {
        return Ok(None);
    }
    let writes = flags & raw::O_ACCMODE != raw::O_RDONLY;
    // Login programs write the user's id there; once it is set, only the host's root may change it.
    let wanted = (made == Made::LoginId) == writes
        && (made != Made::LoginId || context.world.identity.is_some());
    if !wanted || flags & (raw::O_PATH | raw::O_DIRECTORY) != 0 {
        return Ok(None);
    }
    let source = context.backend.open(Dir::Root, host.as_c_str(), raw::O_RDONLY, 0, 0)?;
    let copy = copy(context, made, &entry, source);
    context.backend.close(source);
    Ok(Some(Verdict::Give(copy?, flags & (raw::O_ACCMODE | raw::O_CLOEXEC | raw::O_NONBLOCK))))
}

/// Files of a process that only those see who may inspect it; see proc(5).
const INSPECTED: [&[u8]; 13] = [
    b"auxv",
    b"clear_refs",
    b"environ",
    b"fdinfo",
    b"io",
    b"map_files",
    b"maps",
    b"mem",
    b"numa_maps",
    b"pagemap",
    b"smaps",
    b"smaps_rollup",
    b"syscall",
];

/// Checks the right to use a file of another process that its owner and mode give: `EACCES`.
fn allows<N: Backend>(
    context: &mut CallContext<'_, N>,
    host: &Text,
    entry: &Entry<'_>,
    want: Want,
) -> Result<()> {
    if context.world.identity.is_none() || context.task.creds.overrides() {
        return Ok(());
    }
    let mut facts = NO_FACTS;
    context.backend.statx(Dir::Root, host.as_c_str(), 0, &mut facts)?;
    let (mut uid, mut gid) = owner_of(context, entry, facts.stx_uid, facts.stx_gid);
    // As the kernel has it: root's, but for directories that anybody may read.
    if u32::from(facts.stx_mode) != raw::S_IFDIR | 0o555 {
        let hide = &mut |task: &Task| {
            if !task.dumpable {
                (uid, gid) = (0, 0);
            }
        };
        context.backend.with_task(entry.process, hide);
    }
    let lists = Lists::NONE;
    let file = Truth { mode: facts.stx_mode.into(), uid, gid, device: (0, 0), lists };
    may(&context.task.creds, &file, want)
}

/// Checks what `access` asks of a file under `/proc`: `EACCES` for one of another process.
pub fn access<N: Backend>(context: &mut CallContext<'_, N>, host: &Text, mode: u32) -> Result<()> {
    let (pid, tid) = (context.backend.pid(), context.backend.tid());
    match entry(pid, tid, host.as_bytes()) {
        Some(entry) if entry.process != pid && mode != 0 => {
            allows(context, host, &entry, Want(mode))
        }
        _ => Ok(()),
    }
}

fn copy<N: Backend>(
    context: &mut CallContext<'_, N>,
    made: Made,
    entry: &Entry<'_>,
    source: HostFd,
) -> Result<HostFd> {
    let into = context.backend.memory_file(c"proc")?;
    let written = match made {
        Made::Maps => maps::rewrite(context, source, into, maps::Column::Maps),
        Made::NumaMaps => maps::rewrite(context, source, into, maps::Column::NumaMaps),
        Made::Sockets => maps::rewrite(context, source, into, maps::Column::Sockets),
        Made::Mounts(form) => mounts::write(context, source, into, form),
        Made::Status => status::rewrite(context, source, into, entry),
        Made::LoginId => select(context, source, into, |_| true),
        Made::Addresses => select(context, source, into, interfaces::is_shown),
    };
    if let Err(error) = written {
        context.backend.close(into);
        return Err(error);
    }
    Ok(into)
}

/// Copies lines unchanged.
fn select<N: Backend>(
    context: &mut CallContext<'_, N>,
    source: HostFd,
    into: HostFd,
    is_wanted: fn(&[u8]) -> bool,
) -> Result<()> {
    let mut lines = Lines::new(source);
    let mut output = Output::new(into);
    while let Some(line) = lines.next(context.backend, &mut context.buffers.input)? {
        let line = &context.buffers.input[line];
        if is_wanted(line) {
            output.push(context.backend, &mut context.buffers.output, line)?;
        }
    }
    output.flush(context.backend, &context.buffers.output)
}

/// Reads what the kernel tells of a descriptor of the calling thread (`fdinfo`); `path` is used for
/// its path.
pub(crate) fn about_descriptor(
    host: &mut impl Host,
    descriptor: i32,
    path: &mut Text,
    into: &mut [u8],
) -> Result<usize> {
    let descriptor = u32::try_from(descriptor).map_err(|_| Errno::EBADF)?;
    path.set(b"/proc/")?;
    path.push_number(host.tid())?;
    path.push(b"/fdinfo/")?;
    path.push_number(descriptor)?;
    let information = host.open(Dir::Root, path.as_c_str(), raw::O_RDONLY, 0, 0)?;
    let length = host.pread(information, into, 0);
    host.close(information);
    length
}

/// Returns true if a host path under `/proc` names a descriptor of the calling process.
pub fn is_own_descriptor(backend: &impl Host, host: &[u8]) -> bool {
    entry(backend.pid(), backend.tid(), host)
        .is_some_and(|entry| entry.process == backend.pid() && entry.rest.starts_with(b"fd/"))
}

/// The emulated owner of a file under `/proc` whose owner on the host is `uid` and `gid`: the
/// effective ids of the process that it describes. The files of a process that is not dumpable
/// (`PR_SET_DUMPABLE`) belong to root, for the guest as well.
pub fn owner<N: Backend>(
    context: &mut CallContext<'_, N>,
    host: &[u8],
    uid: u32,
    gid: u32,
) -> (u32, u32) {
    let (pid, tid) = (context.backend.pid(), context.backend.tid());
    match entry(pid, tid, host) {
        Some(entry) => owner_of(context, &entry, uid, gid),
        None => (uid, gid),
    }
}

fn owner_of<N: Backend>(
    context: &mut CallContext<'_, N>,
    entry: &Entry<'_>,
    uid: u32,
    gid: u32,
) -> (u32, u32) {
    match context.world.identity {
        Some(ids) if uid == ids.host_uid => ids_of(context, entry.process, uid, gid),
        _ => (uid, gid),
    }
}
