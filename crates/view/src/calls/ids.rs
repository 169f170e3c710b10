//! Decides calls about the caller's own identity: user and group ids, supplementary groups,
//! capabilities, the file mode mask.
//!
//! All are answered from the thread's [`crate::identity::Credentials`]. The kernel executes none of
//! them except `umask`, which it has to know too. A C library makes such a call in every thread of
//! a process, so threads share nothing here.

use super::arguments::Arguments;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::identity::credentials::{GROUPS_MAX, KEEP};
use crate::identity::{Capability, Credentials, Groups, Ids};
use crate::verdict::{Call, Verdict};
use abi::calls::{Op, narrow_ids};

/// Decides a call of [`abi::calls::Class::Identity`]. A process that gets other ids for its rights
/// is not dumpable any more: it may hold what its new user must not see.
pub(super) fn rule<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let rights = |creds: &Credentials| {
        [creds.uid.effective, creds.uid.files, creds.gid.effective, creds.gid.files]
    };
    let before = rights(&context.task.creds);
    let verdict = decide(context, arguments);
    if rights(&context.task.creds) != before {
        context.task.dumpable = false;
    }
    verdict
}

fn decide<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let (op, call) = (arguments.op(), arguments.call);
    if op == Op::Umask {
        context.task.umask = call.arguments[0] as u32 & 0o777;
        context.task.fs_changed = true;
        return Ok(Verdict::Pass);
    }
    if context.world.identity.is_none() {
        return Ok(Verdict::Pass);
    }
    let width = Width::of(arguments);
    let id = |index: usize| width.take(call.arguments[index]);
    let creds = &mut context.task.creds;
    match op {
        Op::Getuid | Op::Getuid32 => return Ok(width.result(creds.uid.real)),
        Op::Geteuid | Op::Geteuid32 => return Ok(width.result(creds.uid.effective)),
        Op::Getgid | Op::Getgid32 => return Ok(width.result(creds.gid.real)),
        Op::Getegid | Op::Getegid32 => return Ok(width.result(creds.gid.effective)),
        Op::Getresuid | Op::Getresuid32 => {
            let ids = creds.uid;
            return width.write_three(context.backend, ids, call);
        }
        Op::Getresgid | Op::Getresgid32 => {
            let ids = creds.gid;
            return width.write_three(context.backend, ids, call);
        }
        Op::Setuid | Op::Setuid32 => creds.setuid(id(0))?,
        Op::Setgid | Op::Setgid32 => creds.setgid(id(0))?,
        Op::Setreuid | Op::Setreuid32 => creds.setreuid(id(0), id(1))?,
        Op::Setregid | Op::Setregid32 => creds.setregid(id(0), id(1))?,
        Op::Setresuid | Op::Setresuid32 => creds.setresuid([id(0), id(1), id(2)])?,
        Op::Setresgid | Op::Setresgid32 => creds.setresgid([id(0), id(1), id(2)])?,
        Op::Setfsuid | Op::Setfsuid32 => return Ok(width.result(creds.setfsuid(id(0)))),
        Op::Setfsgid | Op::Setfsgid32 => return Ok(width.result(creds.setfsgid(id(0)))),
        Op::Getgroups | Op::Getgroups32 => return getgroups(context, width, call),
        Op::Setgroups | Op::Setgroups32 => setgroups(context, width, call)?,
        Op::Capget => capget(context, call)?,
        Op::Capset => capset(context, call)?,
        _ => return Ok(Verdict::Pass),
    }
    Ok(Verdict::Done(0))
}

/// The width of ids in a call: 16 bits in i386's oldest calls.
#[derive(Clone, Copy)]
pub(super) struct Width {
    narrow: bool,
}

/// Shown for ids that do not fit into 16 bits (`fs.overflowuid`).
const OVERFLOW: u32 = 65_534;

impl Width {
    pub(super) fn of(arguments: &Arguments<'_>) -> Self {
        Self { narrow: narrow_ids(arguments.arch, arguments.op()) }
    }

    /// An id from the guest; -1 is [`KEEP`] in either width.
    pub(super) fn take(self, argument: u64) -> u32 {
        match argument as u32 {
            wide if !self.narrow => wide,
            narrow if narrow & 0xffff == 0xffff => KEEP,
            narrow => narrow & 0xffff,
        }
    }

    pub(super) fn fit(self, id: u32) -> u32 {
        if self.narrow && id > 0xffff { OVERFLOW } else { id }
    }

    fn result(self, id: u32) -> Verdict {
        Verdict::Done(i64::from(self.fit(id)))
    }

    const fn size(self) -> usize {
        if self.narrow { 2 } else { 4 }
    }

    fn write_three(self, guest: &mut impl Backend, ids: Ids, call: &Call) -> Result<Verdict> {
        for (at, id) in call.arguments.into_iter().zip([ids.real, ids.effective, ids.saved]) {
            guest.write(at, &self.fit(id).to_le_bytes()[..self.size()])?;
        }
        Ok(Verdict::Done(0))
    }
}

fn getgroups<N: Backend>(
    context: &mut CallContext<'_, N>,
    width: Width,
    call: &Call,
) -> Result<Verdict> {
    let room = call.arguments[0] as i32;
    let groups = context.task.creds.groups.as_slice();
    if room < 0 || (room > 0 && (room as usize) < groups.len()) {
        return Err(Errno::EINVAL);
    }
    if room > 0 {
        let mut bytes = [0; GROUPS_MAX * 4];
        for (slot, group) in bytes.chunks_exact_mut(width.size()).zip(groups) {
            slot.copy_from_slice(&width.fit(*group).to_le_bytes()[..width.size()]);
        }
        context.backend.write(call.arguments[1], &bytes[..groups.len() * width.size()])?;
    }
    Ok(Verdict::Done(groups.len() as i64))
}

/// `NGROUPS_MAX`.
const KERNEL_GROUPS_MAX: u64 = 65_536;

fn setgroups<N: Backend>(
    context: &mut CallContext<'_, N>,
    width: Width,
    call: &Call,
) -> Result<()> {
    if !context.task.creds.has(Capability::SETGID) {
        return Err(Errno::EPERM);
    }
    let count = call.arguments[0] & 0xffff_ffff;
    if count > KERNEL_GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    // All are looked at before the number of those that are kept.
    let mut groups = Ok(Groups::NONE);
    let mut at = call.arguments[1];
    let mut left = count as usize;
    while left > 0 {
        let mut bytes = [0; GROUPS_MAX * 4];
        let bytes = &mut bytes[..left.min(GROUPS_MAX) * width.size()];
        context.backend.read(at, bytes)?;
        let number = |bytes: &[u8]| {
            bytes.iter().rev().fold(0_u32, |group, byte| group << 8 | u32::from(*byte))
        };
        let part = bytes.chunks_exact(width.size()).map(number);
        // -1 is not a valid group.
        if part.clone().any(|group| group == KEEP) {
            return Err(Errno::EINVAL);
        }
        let fits = count as usize <= GROUPS_MAX;
        groups = if fits { Groups::new(part) } else { Err(Errno::ENOMEM) };
        at = at.wrapping_add(bytes.len() as u64);
        left -= bytes.len() / width.size();
    }
    let groups = groups?;
    context.task.creds.setgroups(groups)
}

const CAPABILITIES_1: u32 = 0x1998_0330;
const CAPABILITIES_2: u32 = 0x2007_1026;
const CAPABILITIES_3: u32 = 0x2008_0522;

/// Reads the header of capget(2): the number of words of each set, and the process.
fn capability_header<N: Backend>(
    context: &mut CallContext<'_, N>,
    at: u64,
) -> Result<(usize, i32)> {
    let mut header = [[0; 4]; 2];
    context.backend.read(at, header.as_flattened_mut())?;
    let [version, pid] = header.map(u32::from_le_bytes);
    match version {
        CAPABILITIES_1 => Ok((1, pid as i32)),
        CAPABILITIES_2 | CAPABILITIES_3 => Ok((2, pid as i32)),
        _ => {
            context.backend.write(at, &CAPABILITIES_3.to_le_bytes())?;
            Err(Errno::EINVAL)
        }
    }
}

/// `capget`. For another process of this container it returns the caller's own sets.
fn capget<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<()> {
    let [header, data, ..] = call.arguments;
    let (words, pid) = match capability_header(context, header) {
        Err(Errno::EINVAL) if data == 0 => return Ok(()),
        result => result?,
    };
    if data == 0 {
        return Ok(());
    }
    if pid < 0 {
        return Err(Errno::EINVAL);
    }
    let pid = pid as u32;
    let own = pid == 0 || pid == context.backend.pid() || pid == context.backend.tid();
    if !own && !context.backend.program_of(pid, &mut context.buffers.spare[0]) {
        return Err(Errno::ESRCH);
    }
    let sets = &context.task.creds.capabilities;
    let mut bytes = [0; 24];
    for (word, half) in bytes.chunks_exact_mut(12).enumerate() {
        let sets = [sets.effective, sets.permitted, sets.inheritable];
        for (slot, set) in half.chunks_exact_mut(4).zip(sets) {
            slot.copy_from_slice(&((set >> (32 * word)) as u32).to_le_bytes());
        }
    }
    context.backend.write(data, &bytes[..words * 12])
}

fn capset<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<()> {
    let [header, data, ..] = call.arguments;
    let (words, pid) = capability_header(context, header)?;
    if pid != 0 && pid as u32 != context.backend.tid() && pid as u32 != context.backend.pid() {
        return Err(Errno::EPERM);
    }
    let mut bytes = [0; 24];
    context.backend.read(data, &mut bytes[..words * 12])?;
    let mut sets = [0_u64; 3];
    for (word, half) in bytes.chunks_exact(12).enumerate() {
        for (set, slot) in sets.iter_mut().zip(half.chunks_exact(4)) {
            let value = slot.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            *set |= value << (32 * word);
        }
    }
    let [effective, permitted, inheritable] = sets;
    context.task.creds.capabilities.set(effective, permitted, inheritable)
}
