//! Leaves the host's namespaces for new ones and for those of other containers.

use super::assistant::{Assistant, map_error, maps};
use super::enter;
use crate::error::{Error, Result};
use crate::plan::{Ids, Plan, Source};
use sys::namespace::{self, Kinds};

/// Leaves the namespaces that a plan wants others for, but for that of pids.
pub(super) fn leave_host(plan: &Plan, assistant: Option<&Assistant>) -> Result<()> {
    let wanted = &plan.namespaces;
    let mut new = Kinds::MOUNT;
    let mut joined: Vec<(u32, Kinds)> = Vec::new();
    for (source, kind) in [
        (wanted.ipc, Kinds::IPC),
        (wanted.uts, Kinds::UTS),
        (wanted.net, Kinds::NET),
        (wanted.cgroup, Kinds::CGROUP),
    ] {
        match source {
            Source::Host => {}
            Source::New => new = new.with(kind),
            Source::Of(pid) => joined.push((pid, kind)),
        }
    }
    if let Some(pid) = wanted.user_of {
        enter::kinds(pid, Kinds::USER)?;
        for (pid, kind) in joined {
            enter::kinds(pid, kind)?;
        }
        return unshare(new);
    }
    unshare(new.with(Kinds::USER))?;
    write_maps(&plan.ids, assistant)
}

/// Writes the id maps of the user namespace that this process has made. Whatever its id in there,
/// it has all capabilities until the program is executed.
pub(in crate::engines) fn write_maps(ids: &Ids, assistant: Option<&Assistant>) -> Result<()> {
    match assistant {
        Some(assistant) if matches!(ids, Ids::Range { .. }) => {
            assistant.write_maps(std::process::id())
        }
        _ => maps(ids).write_own().map_err(|error| map_error(ids, error)),
    }
}

/// Makes new namespaces for this process.
pub(in crate::engines) fn unshare(kinds: Kinds) -> Result<()> {
    namespace::unshare(kinds)
        .map_err(|errno| Error::Unshare { which: kinds.names(), errno: errno.into() })
}
