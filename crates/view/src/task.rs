//! What belongs to one thread of the guest. Copied on `fork` and `clone`, kept by `execve` with the changes of credentials(7).

use crate::identity::Credentials;
use crate::text::Text;

/// One thread.
///
/// A backend keeps one for each thread it knows. `fs` (root and umask) is shared between threads made with `CLONE_FS`: a
/// backend that keeps threads apart copies it to all of them after a change ([`Task::fs_changed`]).
///
/// In this order in memory: the path is long, and only its beginning is used.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    /// `umask(2)`.
    pub umask: u32,
    /// `root` or `umask` changed in the call just decided.
    pub fs_changed: bool,
    /// Ids, groups and capabilities, as the guest knows them.
    pub creds: Credentials,
    /// Seccomp filters that the guest itself has installed.
    pub filters: Filters,
    /// `PR_SET_DUMPABLE`, as the guest set it; 1 again after `execve` ([`Task::executed`]).
    pub dumpable: bool,
    /// `chroot(2)` inside the container: a guest path, `/` at first.
    pub root: Text,
}

/// The guest's own seccomp(2) state: what it would read without our filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filters {
    /// `SECCOMP_MODE_*`: 0 none, 1 strict, 2 filter.
    pub mode: u8,
    /// How many filters.
    pub count: u32,
    /// The call just decided changed this for all threads of the process (`SECCOMP_FILTER_FLAG_TSYNC`): a backend that keeps threads
    /// apart copies it to all of them, `no_new_privileges` too.
    pub synchronised: bool,
}

impl Filters {
    /// None.
    pub const NONE: Self = Self { mode: 0, count: 0, synchronised: false };
}

impl Clone for Task {
    fn clone(&self) -> Self {
        let mut task = Self::new(self.creds.clone(), self.umask);
        task.clone_from(self);
        task
    }

    /// Copies what there is of the root's path, not all that there is room for.
    fn clone_from(&mut self, from: &Self) {
        let Self { umask, fs_changed, creds, filters, dumpable, root } = from;
        self.umask = *umask;
        self.fs_changed = *fs_changed;
        self.creds.clone_from(creds);
        self.filters = *filters;
        self.dumpable = *dumpable;
        self.root.copy(root);
    }
}

impl Task {
    /// The first thread of a container.
    pub const fn new(creds: Credentials, umask: u32) -> Self {
        Self {
            root: Text::ROOT,
            umask,
            fs_changed: false,
            creds,
            filters: Filters::NONE,
            dumpable: true,
        }
    }

    /// The thread runs another program: what `execve` resets, apart from credentials ([`crate::identity::execute`]).
    pub fn executed(&mut self) {
        self.dumpable = true;
    }
}
