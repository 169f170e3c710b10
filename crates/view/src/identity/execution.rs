//! Applies `execve` to a thread's credentials: setuid and setgid bits, capabilities, `AT_SECURE`.

use super::capabilities::{SECURE_KEEP_CAPS, SECURE_NO_ROOT};
use super::credentials::Credentials;
use super::record::Truth;
use linux_raw_sys::general::{S_ISGID, S_ISUID, S_IXGRP};

/// Result for the program that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executed {
    /// `AT_SECURE`: the program has gained ids or capabilities.
    pub secure: bool,
}

/// Changes `credentials` as executing `program` does. The program is the one whose code runs: for a
/// script its interpreter (the kernel ignores the bits of scripts), under an emulator the program
/// that is emulated. `ignore_bits` is for files in bindings that are mounted `nosuid`.
pub fn execute(credentials: &mut Credentials, program: &Truth, ignore_bits: bool) -> Executed {
    let before = (credentials.uid, credentials.gid);
    let mut set_user = None;
    if !credentials.no_new_privileges && !ignore_bits {
        if program.mode & S_ISUID != 0 {
            set_user = Some(program.uid);
            credentials.uid.effective = program.uid;
        }
        if program.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP {
            credentials.gid.effective = program.gid;
        }
    }
    let (uid, gid) = (&mut credentials.uid, &mut credentials.gid);
    let changed = uid.effective != before.0.effective || gid.effective != before.1.effective;
    uid.saved = uid.effective;
    uid.files = uid.effective;
    gid.saved = gid.effective;
    gid.files = gid.effective;
    let held = credentials.capabilities.permitted;
    let gained = capabilities(credentials, set_user, changed);
    if credentials.no_new_privileges {
        keep_to(credentials, held);
    }
    credentials.capabilities.secure &= !SECURE_KEEP_CAPS;
    let (uid, gid) = (credentials.uid, credentials.gid);
    let secure = changed || uid.real != uid.effective || gid.real != gid.effective || gained;
    Executed { secure }
}

/// With `no_new_privs` a program gets no capability that the thread did not hold; one that would
/// have is the real user's.
fn keep_to(credentials: &mut Credentials, held: u64) {
    if credentials.capabilities.permitted & !held == 0 {
        return;
    }
    let Credentials { uid, gid, capabilities, .. } = credentials;
    for ids in [uid, gid] {
        (ids.effective, ids.saved, ids.files) = (ids.real, ids.real, ids.real);
    }
    capabilities.permitted &= held;
    capabilities.effective &= held;
}

/// The transformation of capabilities(7) for a file without capabilities. Returns true if a user
/// who is not root gained some.
fn capabilities(credentials: &mut Credentials, set_user: Option<u32>, changed: bool) -> bool {
    let uid = credentials.uid;
    let sets = &mut credentials.capabilities;
    if changed {
        sets.ambient = 0;
    }
    let root_gains = sets.secure & SECURE_NO_ROOT == 0;
    let (mut permitted, mut effective) = (0, false);
    if root_gains && (uid.effective == 0 || uid.real == 0) {
        permitted = sets.bounding | sets.inheritable;
        effective = uid.effective == 0;
    }
    sets.permitted = permitted | sets.ambient;
    sets.effective = if effective { sets.permitted } else { sets.ambient };
    set_user == Some(0) && uid.real != 0 && root_gains
}
