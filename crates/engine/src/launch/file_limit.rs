//! Lifts the limit of file sizes (`ulimit -f`) while Coracle itself works, and restores it for
//! programs: a container's own files may be larger than what the caller lets programs write.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The caller's soft limit, where it was below the hard one.
static CALLERS: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one: the first step of the command.
pub fn lift() {
    let limit = getrlimit(Resource::Fsize);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(Resource::Fsize, raised).is_ok() {
        let _ = CALLERS.set(limit.current);
    }
}

/// The caller's soft limit, where it was lifted.
pub(crate) fn callers() -> Option<u64> {
    CALLERS.get().copied().flatten()
}

/// Sets the caller's soft limit in a process that Coracle has executed anew.
pub(crate) fn remember(limit: u64) {
    let _ = CALLERS.set(Some(limit));
}

/// Restores the caller's limit, for a program.
pub(crate) fn give_back() {
    if let Some(current) = CALLERS.get() {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let _ = setrlimit(Resource::Fsize, Rlimit { current: *current, maximum });
    }
}
