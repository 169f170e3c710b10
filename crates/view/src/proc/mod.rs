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
//!   `status` are copied and rewritten into a memory file when they are opened ([`open`]). The copy
//!   does not change afterwards: a process that keeps it open reads the state of that moment.
//! - **Owners.** A process's directory belongs to its emulated user ([`owner`]).
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
use crate::errno::Result;
use crate::guest::{Backend, Dir, Host, HostFd};
use crate::sockets::ids_of;
use crate::text::Text;
use crate::verdict::Verdict;
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
    let Some(made) = Made::of(&entry) else { return Ok(None) };
    if context.world.namespaces && matches!(made, Made::Mounts(_) | Made::Sockets) {
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
        Made::LoginId => plain(context, source, into),
    };
    if let Err(error) = written {
        context.backend.close(into);
        return Err(error);
    }
    Ok(into)
}

/// Copies the contents unchanged.
fn plain<N: Backend>(context: &mut CallContext<'_, N>, source: HostFd, into: HostFd) -> Result<()> {
    let mut lines = Lines::new(source);
    let mut output = Output::new(into);
    while let Some(line) = lines.next(context.backend, &mut context.buffers.input)? {
        output.push(context.backend, &mut context.buffers.output, &context.buffers.input[line])?;
    }
    output.flush(context.backend, &context.buffers.output)
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
    match (entry(pid, tid, host), context.world.identity) {
        (Some(entry), Some(ids)) if uid == ids.host_uid => ids_of(context, entry.process, uid, gid),
        _ => (uid, gid),
    }
}
