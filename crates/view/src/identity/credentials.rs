//! The ids of a thread, and the calls that change them: credentials(7), setuid(2), setreuid(2),
//! setresuid(2), setfsuid(2), setgroups(2).

use super::capabilities::{Capabilities, Capability, SECURE_NO_SETUID_FIXUP};
use crate::errno::{Errno, Result};

/// -1: "do not change", and never a valid id.
pub const KEEP: u32 = u32::MAX;

/// The four ids of one kind, user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// Real id: the user who started the program.
    pub real: u32,
    /// Effective id: decides about privileges.
    pub effective: u32,
    /// Saved id: may become the effective one again.
    pub saved: u32,
    /// File system id: decides about files; follows the effective one.
    pub files: u32,
}

impl Ids {
    /// Four equal ids.
    pub const fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id, files: id }
    }

    /// Returns true if real, effective and saved id are this one.
    pub fn is_only(self, id: u32) -> bool {
        self.three() == [id; 3]
    }

    fn three(self) -> [u32; 3] {
        [self.real, self.effective, self.saved]
    }

    /// `setuid`, `setgid`.
    fn set(&mut self, id: u32, privileged: bool) -> Result<()> {
        if id == KEEP {
            return Err(Errno::EINVAL);
        }
        if privileged {
            *self = Self::all(id);
        } else if id == self.real || id == self.saved {
            self.effective = id;
            self.files = id;
        } else {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// `setreuid`, `setregid`.
    fn set_two(&mut self, real: u32, effective: u32, privileged: bool) -> Result<()> {
        let old = *self;
        let real_allowed = real == KEEP || real == old.real || real == old.effective;
        let effective_allowed = effective == KEEP || old.three().contains(&effective);
        if !(privileged || real_allowed && effective_allowed) {
            return Err(Errno::EPERM);
        }
        if real != KEEP {
            self.real = real;
        }
        if effective != KEEP {
            self.effective = effective;
        }
        if real != KEEP || (effective != KEEP && effective != old.real) {
            self.saved = self.effective;
        }
        self.files = self.effective;
        Ok(())
    }

    /// `setresuid`, `setresgid`.
    fn set_three(&mut self, new: [u32; 3], privileged: bool) -> Result<()> {
        let old = self.three();
        if !privileged && new.iter().any(|id| *id != KEEP && !old.contains(id)) {
            return Err(Errno::EPERM);
        }
        // A call that changes nothing leaves the file system id alone (since Linux 6.2).
        let same = new.iter().zip(old).all(|(id, old)| *id == KEEP || *id == old);
        if same && (new[1] == KEEP || new[1] == self.files) {
            return Ok(());
        }
        for (slot, id) in
            [&mut self.real, &mut self.effective, &mut self.saved].into_iter().zip(new)
        {
            if id != KEEP {
                *slot = id;
            }
        }
        self.files = self.effective;
        Ok(())
    }

    /// `setfsuid`, `setfsgid`.
    fn set_files(&mut self, id: u32, privileged: bool) {
        if id != KEEP && (privileged || id == self.files || self.three().contains(&id)) {
            self.files = id;
        }
    }
}

/// The greatest number of supplementary groups that are kept; the kernel has room for 65,536.
pub const GROUPS_MAX: usize = 256;

/// The group that the kernel shows for each that the namespace has no number for:
/// `/proc/sys/kernel/overflowgid`, which no host changes.
pub const UNMAPPED: u32 = 65_534;

/// Supplementary groups.
#[derive(Clone, Copy)]
pub struct Groups {
    length: usize,
    /// Some are the caller's own, and the kernel does not show their numbers.
    unmapped: bool,
    ids: [u32; GROUPS_MAX],
}

impl core::fmt::Debug for Groups {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice() && self.unmapped == other.unmapped
    }
}

impl Eq for Groups {}

impl Groups {
    /// No groups.
    pub const NONE: Self = Self { length: 0, unmapped: false, ids: [0; GROUPS_MAX] };

    /// Sorts the groups as the kernel does. More than [`GROUPS_MAX`] is `ENOMEM`.
    pub fn new(groups: impl IntoIterator<Item = u32>) -> Result<Self> {
        let mut made = Self::NONE;
        for group in groups {
            let slot = made.ids.get_mut(made.length).ok_or(Errno::ENOMEM)?;
            *slot = group;
            made.length += 1;
        }
        made.ids[..made.length].sort_unstable();
        Ok(made)
    }

    /// The same groups, of which some are the caller's own in a namespace that has no numbers for
    /// them ([`UNMAPPED`]). Which of them a file there has is known to the kernel alone: it lets
    /// the caller do what the group may, and the rules have to leave that to it.
    #[must_use]
    pub const fn with_unmapped(self, unmapped: bool) -> Self {
        Self { unmapped, ..self }
    }

    /// Whether some are such.
    pub const fn has_unmapped(&self) -> bool {
        self.unmapped
    }

    /// The groups, sorted.
    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..self.length]
    }
}

/// The identity of a thread: ids, groups, capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User ids.
    pub uid: Ids,
    /// Group ids.
    pub gid: Ids,
    /// Supplementary groups.
    pub groups: Groups,
    /// Capability sets.
    pub capabilities: Capabilities,
    /// `PR_SET_NO_NEW_PRIVS`, as the guest set it: `execve` grants no ids and capabilities.
    pub no_new_privileges: bool,
}

impl Default for Credentials {
    fn default() -> Self {
        Self::ROOT
    }
}

impl Credentials {
    /// User 0, group 0, all capabilities.
    pub const ROOT: Self = Self {
        uid: Ids::all(0),
        gid: Ids::all(0),
        groups: Groups::NONE,
        capabilities: Capabilities::ROOT,
        no_new_privileges: false,
    };

    /// A user as `run --user` starts one: user 0 has all capabilities, others have none.
    pub const fn new(uid: u32, gid: u32, groups: Groups) -> Self {
        let capabilities = if uid == 0 { Capabilities::ROOT } else { Capabilities::NONE };
        Self { uid: Ids::all(uid), gid: Ids::all(gid), groups, capabilities, ..Self::ROOT }
    }

    /// Returns true if a capability is effective.
    pub const fn has(&self, capability: Capability) -> bool {
        self.capabilities.has(capability)
    }

    /// Returns true if no file's mode restricts the thread. Then rules need not look at modes,
    /// except for executing a file without any execute bit.
    pub const fn overrides(&self) -> bool {
        self.has(Capability::DAC_OVERRIDE)
            && self.has(Capability::DAC_READ_SEARCH)
            && self.has(Capability::FOWNER)
    }

    /// Calls `run` with the identity that `access(2)` checks: the real ids, and the capabilities
    /// that go with them.
    pub fn as_real<S, T>(
        context: &mut S,
        creds: impl Fn(&mut S) -> &mut Self,
        run: impl FnOnce(&mut S) -> T,
    ) -> T {
        let own = creds(context);
        let (uid, gid, capabilities) = (own.uid, own.gid, own.capabilities);
        let mut effective = capabilities.effective;
        if capabilities.secure & SECURE_NO_SETUID_FIXUP == 0 {
            effective = if uid.real == 0 { capabilities.permitted } else { 0 };
        }
        // Mostly both are the same; then nothing has to be written.
        if uid.files == uid.real && gid.files == gid.real && effective == capabilities.effective {
            return run(context);
        }
        (own.uid.files, own.gid.files) = (uid.real, gid.real);
        own.capabilities.effective = effective;
        let result = run(context);
        let own = creds(context);
        (own.uid, own.gid, own.capabilities) = (uid, gid, capabilities);
        result
    }

    /// Returns true if the thread belongs to a group, as far as files are concerned.
    pub fn in_group(&self, group: u32) -> bool {
        self.gid.files == group
            || self.groups.as_slice().binary_search(&group).is_ok()
            || group == UNMAPPED && self.groups.unmapped
    }

    fn change_user(&mut self, change: impl FnOnce(&mut Ids, bool) -> Result<()>) -> Result<()> {
        let before = self.uid;
        let privileged = self.has(Capability::SETUID);
        change(&mut self.uid, privileged)?;
        self.capabilities.user_changed(before.three(), self.uid.three());
        Ok(())
    }

    fn change_group(&mut self, change: impl FnOnce(&mut Ids, bool) -> Result<()>) -> Result<()> {
        let privileged = self.has(Capability::SETGID);
        change(&mut self.gid, privileged)
    }

    /// setuid(2).
    pub fn setuid(&mut self, id: u32) -> Result<()> {
        self.change_user(|ids, privileged| ids.set(id, privileged))
    }

    /// setgid(2).
    pub fn setgid(&mut self, id: u32) -> Result<()> {
        self.change_group(|ids, privileged| ids.set(id, privileged))
    }

    /// setreuid(2).
    pub fn setreuid(&mut self, real: u32, effective: u32) -> Result<()> {
        self.change_user(|ids, privileged| ids.set_two(real, effective, privileged))
    }

    /// setregid(2).
    pub fn setregid(&mut self, real: u32, effective: u32) -> Result<()> {
        self.change_group(|ids, privileged| ids.set_two(real, effective, privileged))
    }

    /// setresuid(2): real, effective, saved.
    pub fn setresuid(&mut self, new: [u32; 3]) -> Result<()> {
        self.change_user(|ids, privileged| ids.set_three(new, privileged))
    }

    /// setresgid(2).
    pub fn setresgid(&mut self, new: [u32; 3]) -> Result<()> {
        self.change_group(|ids, privileged| ids.set_three(new, privileged))
    }

    /// setfsuid(2): returns the old id, changed or not.
    pub fn setfsuid(&mut self, id: u32) -> u32 {
        let before = self.uid.files;
        self.uid.set_files(id, self.has(Capability::SETUID));
        self.capabilities.files_user_changed(before, self.uid.files);
        before
    }

    /// setfsgid(2).
    pub fn setfsgid(&mut self, id: u32) -> u32 {
        let before = self.gid.files;
        self.gid.set_files(id, self.has(Capability::SETGID));
        before
    }

    /// setgroups(2).
    pub fn setgroups(&mut self, groups: Groups) -> Result<()> {
        if !self.has(Capability::SETGID) {
            return Err(Errno::EPERM);
        }
        // The caller's stay with who keeps some of what there was.
        let old = self.groups.as_slice();
        let keeps = groups.as_slice().iter().any(|group| old.binary_search(group).is_ok());
        self.groups = groups.with_unmapped(self.groups.unmapped && keeps);
        Ok(())
    }
}
