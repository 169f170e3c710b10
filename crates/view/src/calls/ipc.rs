//! Decides `shmctl`, `semctl`, `msgctl`, as far as they concern owners.
//!
//! To the kernel all objects of the container belong to the caller on the host, and every user of
//! the guest is that caller. So such an object is shown as the asking user's own, which is what the
//! kernel takes it for. `IPC_SET` keeps the owners of the host: the kernel would let the caller
//! give its objects to any id of the host.

use super::arguments::Arguments;
use crate::CallContext;
use crate::errno::Result;
use crate::guest::Backend;
use crate::verdict::{After, Verdict};
use abi::calls::Op;

/// `IPC_SET`, without `IPC_64`.
const SET: u32 = 1;
const IPC_64: u32 = 0x100;
/// Size of the largest structure (`msqid64_ds`).
const LARGEST: usize = 120;
/// `struct ipc64_perm`: key, user, group, user and group of the maker.
const PERMISSION: usize = 20;
const USERS: [usize; 2] = [4, 12];
const GROUPS: [usize; 2] = [8, 16];

/// Decides a call. The filter catches only commands that set or show owners.
pub(super) fn enter<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let Some(identity) = context.world.identity else { return Ok(Verdict::Pass) };
    let at = if arguments.op() == Op::Semctl { 2 } else { 1 };
    let (command, buffer) = (arguments.int(at) & !IPC_64, arguments.word(at + 1));
    if !shows(arguments.op(), command) {
        return Ok(Verdict::Pass);
    }
    if command != SET {
        return Ok(Verdict::Watch(After::Owners { buffer }));
    }
    let mut bytes = [0; LARGEST];
    let length = context.backend.read_some(buffer, &mut bytes)?;
    if length < PERMISSION {
        return Ok(Verdict::Pass);
    }
    bytes[USERS[0]..USERS[0] + 4].copy_from_slice(&identity.host_uid.to_le_bytes());
    bytes[GROUPS[0]..GROUPS[0] + 4].copy_from_slice(&identity.host_gid.to_le_bytes());
    let mut call = *arguments.call;
    call.arguments[at + 1] = context.backend.scratch(&bytes[..length], 8)?;
    Ok(Verdict::Instead(call, After::Nothing))
}

/// Returns true if a command sets or shows owners.
const fn shows(op: Op, command: u32) -> bool {
    match op {
        Op::Shmctl => matches!(command, 1 | 2 | 13 | 15),
        Op::Msgctl => matches!(command, 1 | 2 | 11 | 13),
        _ => matches!(command, 1 | 2 | 18 | 20),
    }
}

/// Translates the owners that the kernel has written.
pub(super) fn leave<N: Backend>(context: &mut CallContext<'_, N>, buffer: u64, result: i64) {
    let Some(identity) = context.world.identity.filter(|_| result >= 0) else { return };
    let mut bytes = [0; PERMISSION];
    if context.backend.read(buffer, &mut bytes).is_err() {
        return;
    }
    let creds = &context.task.creds;
    let (user, group) = (creds.uid.effective, creds.gid.effective);
    let users = USERS.map(|at| (at, identity.host_uid, user));
    let groups = GROUPS.map(|at| (at, identity.host_gid, group));
    for (at, hosts, guests) in users.into_iter().chain(groups) {
        if bytes[at..at + 4] == hosts.to_le_bytes() {
            bytes[at..at + 4].copy_from_slice(&guests.to_le_bytes());
        }
    }
    // The kernel has just written there.
    let _ = context.backend.write(buffer, &bytes);
}
