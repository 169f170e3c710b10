//! The capability sets of a thread, and the calls that change them: capabilities(7).

use crate::errno::{Errno, Result};
use linux_raw_sys::general as raw;

/// One capability, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability(pub u32);

impl Capability {
    /// Change owners.
    pub const CHOWN: Self = Self(raw::CAP_CHOWN);
    /// Read, write and search, whatever the mode is.
    pub const DAC_OVERRIDE: Self = Self(raw::CAP_DAC_OVERRIDE);
    /// Read and search.
    pub const DAC_READ_SEARCH: Self = Self(raw::CAP_DAC_READ_SEARCH);
    /// Act as the owner of every file.
    pub const FOWNER: Self = Self(raw::CAP_FOWNER);
    /// Keep setuid and setgid bits.
    pub const FSETID: Self = Self(raw::CAP_FSETID);
    /// Change groups.
    pub const SETGID: Self = Self(raw::CAP_SETGID);
    /// Change users.
    pub const SETUID: Self = Self(raw::CAP_SETUID);
    /// Change capabilities.
    pub const SETPCAP: Self = Self(raw::CAP_SETPCAP);
    /// Change the root.
    pub const SYS_CHROOT: Self = Self(raw::CAP_SYS_CHROOT);
    /// Administration; `trusted.*` attributes.
    pub const SYS_ADMIN: Self = Self(raw::CAP_SYS_ADMIN);
    /// Make device nodes.
    pub const MKNOD: Self = Self(raw::CAP_MKNOD);
    /// Set `security.capability`.
    pub const SETFCAP: Self = Self(raw::CAP_SETFCAP);

    const fn bit(self) -> u64 {
        1 << self.0
    }

    /// Checks a number from the guest.
    pub fn from_number(number: u64) -> Option<Self> {
        (number <= u64::from(LAST)).then_some(Self(number as u32))
    }
}

/// `CAP_LAST_CAP`.
const LAST: u32 = raw::CAP_CHECKPOINT_RESTORE;
/// The set of all capabilities.
pub const ALL: u64 = (1 << (LAST + 1)) - 1;
/// The capabilities that concern files: they follow the file system user id.
const FILES: u64 = Capability::CHOWN.bit()
    | Capability::DAC_OVERRIDE.bit()
    | Capability::DAC_READ_SEARCH.bit()
    | Capability::FOWNER.bit()
    | Capability::FSETID.bit()
    | 1 << raw::CAP_LINUX_IMMUTABLE
    | Capability::MKNOD.bit()
    | 1 << raw::CAP_MAC_OVERRIDE;

/// `SECBIT_NOROOT`: user 0 gains no capabilities by `execve`.
pub const SECURE_NO_ROOT: u32 = 1;
/// `SECBIT_NO_SETUID_FIXUP`: changes of the user ids change no capabilities.
pub const SECURE_NO_SETUID_FIXUP: u32 = 1 << 2;
/// `SECBIT_KEEP_CAPS`.
pub const SECURE_KEEP_CAPS: u32 = 1 << 4;
/// `SECBIT_NO_CAP_AMBIENT_RAISE`.
pub const SECURE_NO_AMBIENT_RAISE: u32 = 1 << 6;
const SECURE_ALL: u32 = 0xff;
const SECURE_LOCKS: u32 = 0xaa;

/// The five sets of a thread, and its secure bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// What the thread may do now.
    pub effective: u64,
    /// What the thread may make effective.
    pub permitted: u64,
    /// What a program with file capabilities may inherit.
    pub inheritable: u64,
    /// The limit of what the thread can ever get.
    pub bounding: u64,
    /// What a program without file capabilities keeps.
    pub ambient: u64,
    /// `SECBIT_*`.
    pub secure: u32,
}

impl Capabilities {
    /// The sets of user 0.
    pub const ROOT: Self = Self {
        effective: ALL,
        permitted: ALL,
        inheritable: 0,
        bounding: ALL,
        ambient: 0,
        secure: 0,
    };

    /// The sets of other users.
    pub const NONE: Self = Self { effective: 0, permitted: 0, ..Self::ROOT };

    /// Returns true if a capability is effective.
    pub const fn has(&self, capability: Capability) -> bool {
        self.effective & capability.bit() != 0
    }

    /// Applies a change of the user ids; the arrays are the real, effective and saved ids before
    /// and after.
    pub fn user_changed(&mut self, before: [u32; 3], after: [u32; 3]) {
        if self.secure & SECURE_NO_SETUID_FIXUP != 0 {
            return;
        }
        let keeps = self.secure & SECURE_KEEP_CAPS != 0;
        if before.contains(&0) && !after.contains(&0) {
            if !keeps {
                self.permitted = 0;
                self.effective = 0;
            }
            self.ambient = 0;
        }
        match (before[1], after[1]) {
            (0, 0) => {}
            (0, _) => self.effective = 0,
            (_, 0) => self.effective = self.permitted,
            _ => {}
        }
    }

    /// Applies a change of the file system user id alone.
    pub fn files_user_changed(&mut self, before: u32, after: u32) {
        if self.secure & SECURE_NO_SETUID_FIXUP != 0 {
            return;
        }
        match (before, after) {
            (0, 0) => {}
            (0, _) => self.effective &= !FILES,
            (_, 0) => self.effective |= self.permitted & FILES,
            _ => {}
        }
    }

    /// capset(2) of the calling thread.
    pub fn set(&mut self, effective: u64, permitted: u64, inheritable: u64) -> Result<()> {
        let (effective, permitted, inheritable) =
            (effective & ALL, permitted & ALL, inheritable & ALL);
        let beyond = inheritable & !(self.inheritable | self.permitted) != 0
            && !self.has(Capability::SETPCAP);
        if beyond
            || inheritable & !(self.inheritable | self.bounding) != 0
            || permitted & !self.permitted != 0
            || effective & !permitted != 0
        {
            return Err(Errno::EPERM);
        }
        self.effective = effective;
        self.permitted = permitted;
        self.inheritable = inheritable;
        self.ambient &= permitted & inheritable;
        Ok(())
    }

    /// `PR_CAPBSET_READ`.
    pub fn bounds(&self, number: u64) -> Result<bool> {
        let capability = Capability::from_number(number).ok_or(Errno::EINVAL)?;
        Ok(self.bounding & capability.bit() != 0)
    }

    /// `PR_CAPBSET_DROP`.
    pub fn drop_bound(&mut self, number: u64) -> Result<()> {
        if !self.has(Capability::SETPCAP) {
            return Err(Errno::EPERM);
        }
        let capability = Capability::from_number(number).ok_or(Errno::EINVAL)?;
        self.bounding &= !capability.bit();
        Ok(())
    }

    /// `PR_CAP_AMBIENT`.
    pub fn ambient(&mut self, operation: u64, number: u64) -> Result<i64> {
        if operation == u64::from(linux_raw_sys::prctl::PR_CAP_AMBIENT_CLEAR_ALL) {
            if number != 0 {
                return Err(Errno::EINVAL);
            }
            self.ambient = 0;
            return Ok(0);
        }
        let bit = Capability::from_number(number).ok_or(Errno::EINVAL)?.bit();
        match operation as u32 {
            linux_raw_sys::prctl::PR_CAP_AMBIENT_IS_SET => {
                return Ok(i64::from(self.ambient & bit != 0));
            }
            linux_raw_sys::prctl::PR_CAP_AMBIENT_LOWER => self.ambient &= !bit,
            linux_raw_sys::prctl::PR_CAP_AMBIENT_RAISE => {
                let held = self.permitted & self.inheritable & bit != 0;
                if !held || self.secure & SECURE_NO_AMBIENT_RAISE != 0 {
                    return Err(Errno::EPERM);
                }
                self.ambient |= bit;
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    /// `PR_SET_SECUREBITS`.
    pub fn set_secure(&mut self, bits: u64) -> Result<()> {
        let locked = (self.secure & SECURE_LOCKS) >> 1;
        let new = bits as u32;
        if bits > u64::from(SECURE_ALL)
            || (self.secure ^ new) & locked != 0
            || self.secure & SECURE_LOCKS & !new != 0
            || !self.has(Capability::SETPCAP)
        {
            return Err(Errno::EPERM);
        }
        self.secure = new;
        Ok(())
    }

    /// `PR_GET_KEEPCAPS`.
    pub const fn keeps(&self) -> bool {
        self.secure & SECURE_KEEP_CAPS != 0
    }

    /// `PR_SET_KEEPCAPS`.
    pub fn set_keep(&mut self, keep: u64) -> Result<()> {
        if keep > 1 {
            return Err(Errno::EINVAL);
        }
        if self.secure & SECURE_KEEP_CAPS << 1 != 0 {
            return Err(Errno::EPERM);
        }
        self.secure &= !SECURE_KEEP_CAPS;
        if keep == 1 {
            self.secure |= SECURE_KEEP_CAPS;
        }
        Ok(())
    }
}
