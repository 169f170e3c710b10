//! The emulated state of one thread of the guest: ids, umask, root, the binding of its directory.
//! `fork` and `clone` copy it; `execve` keeps it with the changes of credentials(7).

use crate::identity::Credentials;
use crate::text::Text;

/// The state of one thread.
///
/// A backend keeps one for each thread it knows. Threads made with `CLONE_FS` share root and umask:
/// a backend that keeps a state for each thread copies them to all of these after a change
/// ([`Task::fs_changed`]).
///
/// The order of the members in memory matters: the path is long, and only its beginning is used.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    /// `umask(2)`.
    pub umask: u32,
    /// The call that was just decided changed `root`, `umask` or `entered`.
    pub fs_changed: bool,
    /// Index of the binding by which the thread entered its working directory. It chooses a name
    /// where bindings overlap; elsewhere it says nothing, and it may be outdated.
    pub entered: u16,
    /// Ids, groups and capabilities, as the guest sees them.
    pub creds: Credentials,
    /// Seccomp filters that the guest itself has installed.
    pub filters: Filters,
    /// `PR_SET_DUMPABLE`, as the guest set it; false after a change of ids, and true again after
    /// `execve` ([`Task::executed`]).
    pub dumpable: bool,
    /// The root directory as `chroot(2)` inside the container set it: a guest path, `/` at first.
    pub root: Text,
}

/// The guest's own seccomp(2) state: what it would read if there were no filter of the container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filters {
    /// `SECCOMP_MODE_*`: 0 none, 1 strict, 2 filter.
    pub mode: u8,
    /// Number of filters.
    pub count: u32,
    /// The call that was just decided changed this for all threads of the process
    /// (`SECCOMP_FILTER_FLAG_TSYNC`): a backend that keeps a state for each thread copies it to all
    /// of them, together with `no_new_privileges`.
    pub synchronised: bool,
}

impl Filters {
    /// No filter.
    pub const NONE: Self = Self { mode: 0, count: 0, synchronised: false };
}

impl Clone for Task {
    fn clone(&self) -> Self {
        let mut task = Self::new(self.creds.clone(), self.umask);
        task.clone_from(self);
        task
    }

    /// Copies only the used bytes of the root's path.
    fn clone_from(&mut self, from: &Self) {
        let Self { umask, fs_changed, entered, creds, filters, dumpable, root } = from;
        self.umask = *umask;
        self.fs_changed = *fs_changed;
        self.entered = *entered;
        self.creds.clone_from(creds);
        self.filters = *filters;
        self.dumpable = *dumpable;
        self.root.copy(root);
    }
}

impl Task {
    /// The state of a container's first thread.
    pub const fn new(creds: Credentials, umask: u32) -> Self {
        Self {
            root: Text::ROOT,
            umask,
            fs_changed: false,
            entered: 0,
            creds,
            filters: Filters::NONE,
            dumpable: true,
        }
    }

    /// Remembers the binding by which the working directory is entered.
    pub(crate) fn enter(&mut self, binding: Option<usize>) {
        let entered = binding.and_then(|index| u16::try_from(index).ok()).unwrap_or(0);
        if self.entered != entered {
            (self.entered, self.fs_changed) = (entered, true);
        }
    }

    /// Resets what an `execve` resets, apart from credentials ([`crate::identity::execute`]).
    pub fn executed(&mut self) {
        self.dumpable = true;
    }
}
