//! Translates ids of other processes: `SO_PEERCRED`, and `SCM_CREDENTIALS` in both directions.
//!
//! The kernel knows only the host's ids. For a process of this container, identified by its number,
//! its effective ids are shown. A process that is not known, or no longer, and runs under the
//! caller's id is shown as the container's user.

use super::inet;
use super::request::Request;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::identity::Capability;
use crate::task::Task;
use crate::verdict::{After, Verdict};
use abi::layout::UCRED;

const SOL_SOCKET: u32 = 1;
const SO_PEERCRED: u32 = 17;
const SO_PEERGROUPS: u32 = 59;
/// The kernel has no such option. This error is not among the common ones.
const ENOPROTOOPT: Errno = Errno(linux_raw_sys::errno::ENOPROTOOPT as u16);

/// `getsockopt`. The groups of a peer cannot be found, because the option does not return its
/// number. Kernels before 4.13 do not have the option, and programs then ask the user database.
pub(super) fn option<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
) -> Result<Verdict> {
    if let Some(network) = context.world.network
        && let Some(done) = inet::option(context, network, &request.arguments)?
    {
        return Ok(done);
    }
    if context.world.identity.is_none() || request.arguments[1] as u32 != SOL_SOCKET {
        return Ok(Verdict::Pass);
    }
    match request.arguments[2] as u32 {
        SO_PEERCRED => Ok(Verdict::Watch(After::Peer)),
        SO_PEERGROUPS => Err(ENOPROTOOPT),
        _ => Ok(Verdict::Pass),
    }
}

/// Translates a `struct ucred`, perhaps cut short, after the kernel has written it.
pub(super) fn told<N: Backend>(context: &mut CallContext<'_, N>, request: &Request) -> Result<()> {
    let (buffer, length) = (request.arguments[3], request.arguments[4]);
    let mut bytes = [0; 4];
    context.backend.read(length, &mut bytes)?;
    let there = UCRED.min(u32::from_le_bytes(bytes) as usize);
    let mut ucred = [0; UCRED];
    context.backend.read(buffer, &mut ucred[..there])?;
    // The part that was cut off holds the host's ids and is not shown.
    let shown = translated(context, ucred);
    context.backend.write(buffer, &shown[..there])
}

/// Translates the kernel's `struct ucred` for the guest. A peer that has never passed its ids
/// (process 0) stays so.
pub(super) fn translated<N: Backend>(
    context: &mut CallContext<'_, N>,
    ucred: [u8; UCRED],
) -> [u8; UCRED] {
    let word =
        |at: usize| u32::from_le_bytes([ucred[at], ucred[at + 1], ucred[at + 2], ucred[at + 3]]);
    let (uid, gid) = ids_of(context, word(0), word(4), word(8));
    let mut shown = ucred;
    shown[4..8].copy_from_slice(&uid.to_le_bytes());
    shown[8..].copy_from_slice(&gid.to_le_bytes());
    shown
}

/// Effective ids of a process to which the kernel gives `uid` and `gid`.
pub(crate) fn ids_of<N: Backend>(
    context: &mut CallContext<'_, N>,
    process: u32,
    uid: u32,
    gid: u32,
) -> (u32, u32) {
    let Some(ids) = context.world.identity else { return (uid, gid) };
    let of_task = |task: &Task| (task.creds.uid.effective, task.creds.gid.effective);
    if process == context.backend.pid() {
        return of_task(context.task);
    }
    let mut known = None;
    if context.backend.with_task(process, &mut |task| known = Some(of_task(task))) {
        return known.unwrap_or((uid, gid));
    }
    let user = if uid == ids.host_uid { ids.uid } else { uid };
    let group = if gid == ids.host_gid { ids.gid } else { gid };
    (user, group)
}

/// Translates a `struct ucred` from the guest for the kernel. `EPERM` if the guest may not claim
/// these ids.
pub(super) fn sent<N: Backend>(context: &CallContext<'_, N>, ucred: &mut [u8]) -> Result<()> {
    let Some(ids) = &context.world.identity else { return Ok(()) };
    let Some(ucred) = ucred.first_chunk_mut::<UCRED>() else { return Ok(()) };
    let creds = &context.task.creds;
    let uid = u32::from_le_bytes([ucred[4], ucred[5], ucred[6], ucred[7]]);
    let gid = u32::from_le_bytes([ucred[8], ucred[9], ucred[10], ucred[11]]);
    let mine = |id: u32, of: crate::identity::Ids| [of.real, of.effective, of.saved].contains(&id);
    let user = mine(uid, creds.uid) || creds.has(Capability::SETUID);
    let group = mine(gid, creds.gid) || creds.has(Capability::SETGID);
    if !(user && group) {
        return Err(Errno::EPERM);
    }
    ucred[4..8].copy_from_slice(&ids.host_uid.to_le_bytes());
    ucred[8..].copy_from_slice(&ids.host_gid.to_le_bytes());
    Ok(())
}
