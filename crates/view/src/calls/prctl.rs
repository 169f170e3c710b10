//! Decides prctl(2) for options that concern emulated state.
//!
//! - `PR_SET_DUMPABLE` is only stored: a process that is not dumpable would hide its memory and its
//!   `/proc` from the backend, too.
//! - `PR_SET_NO_NEW_PRIVS` is always in force for the kernel; the guest reads back what it set.
//! - `PR_GET_SECCOMP` reports the guest's filters, not the container's.
//! - Capabilities are the emulated ones.

use super::filters;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::identity::capabilities::SECURE_KEEP_CAPS;
use crate::verdict::{Call, Verdict};
use linux_raw_sys::prctl as raw;

/// Decides a `prctl`.
pub(super) fn enter<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    let [option, second, third, fourth, fifth, _] = call.arguments;
    let creds = &mut context.task.creds;
    let done = |value: i64| Ok(Verdict::Done(value));
    match option as u32 {
        raw::PR_SET_SECCOMP => return filters::install(context, call),
        raw::PR_GET_SECCOMP => return done(i64::from(context.task.filters.mode)),
        raw::PR_SET_NO_NEW_PRIVS => {
            if [second, third, fourth, fifth] != [1, 0, 0, 0] {
                return Err(Errno::EINVAL);
            }
            creds.no_new_privileges = true;
            // The kernel must know it too: a filter of the guest needs it.
            return Ok(Verdict::Pass);
        }
        raw::PR_GET_NO_NEW_PRIVS => {
            if [second, third, fourth, fifth] != [0; 4] {
                return Err(Errno::EINVAL);
            }
            return done(i64::from(creds.no_new_privileges));
        }
        raw::PR_GET_DUMPABLE => return done(i64::from(context.task.dumpable)),
        raw::PR_SET_DUMPABLE => {
            if second > 1 {
                return Err(Errno::EINVAL);
            }
            context.task.dumpable = second == 1;
            return done(0);
        }
        _ => {}
    }
    if context.world.identity.is_none() {
        return Ok(Verdict::Pass);
    }
    let sets = &mut creds.capabilities;
    match option as u32 {
        raw::PR_GET_KEEPCAPS => done(i64::from(sets.secure & SECURE_KEEP_CAPS != 0)),
        raw::PR_SET_KEEPCAPS => sets.set_keep(second).and_then(|()| done(0)),
        raw::PR_GET_SECUREBITS => done(i64::from(sets.secure)),
        raw::PR_SET_SECUREBITS => sets.set_secure(second).and_then(|()| done(0)),
        raw::PR_CAPBSET_READ => sets.bounds(second).and_then(|is| done(i64::from(is))),
        raw::PR_CAPBSET_DROP => sets.drop_bound(second).and_then(|()| done(0)),
        raw::PR_CAP_AMBIENT => {
            if (fourth, fifth) != (0, 0) {
                return Err(Errno::EINVAL);
            }
            sets.ambient(second, third).and_then(done)
        }
        _ => Ok(Verdict::Pass),
    }
}
