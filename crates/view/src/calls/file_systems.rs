//! Decides `statfs`: the file system of a name.
//!
//! The numbers are the host's; a read-only binding adds the read-only flag. The calling
//! architecture decides the layout: `struct statfs` of 64-bit machines, that of i386, or i386's
//! `struct statfs64`. The kernel answers `fstatfs` alone, because nothing in it has to be hidden.

use super::arguments::Arguments;
use super::support::{reach, with_place};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::paths::Intent;
use crate::verdict::Verdict;
use abi::calls::{Op, Role};
use abi::layout::stat::{EMPTY_STATFS, Statfs};

/// `statfs`, `statfs64`.
pub(super) fn statfs<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let at = arguments.position(Role::Statfs).ok_or(Errno::ENOSYS)?;
    let address = arguments.word(at);
    let form = Statfs::of(arguments.arch, arguments.op()).ok_or(Errno::ENOSYS)?;
    if arguments.op() == Op::Statfs64 && arguments.word(at - 1) != form.size() as u64 {
        return Err(Errno::EINVAL);
    }
    with_place(context, arguments, Intent::FOLLOW, |context, place| {
        let mut facts = EMPTY_STATFS;
        let (dir, path) = reach(context.buffers, place, 0);
        context.backend.statfs(dir, path, &mut facts)?;
        if place.read_only {
            const ST_RDONLY: i64 = 1;
            facts.f_flags |= ST_RDONLY;
        }
        let bytes = form.write(&facts).map_err(|_| Errno::EOVERFLOW)?;
        context.backend.write(address, &bytes[..form.size()])?;
        Ok(Verdict::Done(0))
    })
}
