//! The limit of file sizes (`ulimit -f`) while we work: what a container needs is larger than what
//! its caller may want programs to write.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The soft limit that the caller has given us, where it was below the hard one.
static CALLERS: OnceLock<Option<u64>> = OnceLock::new();

/// Goes up to the hard limit. For the program of ours that starts others, as its first step.
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

/// This is what the caller had, in a program that another of ours has started.
pub(crate) fn remember(limit: u64) {
    let _ = CALLERS.set(Some(limit));
}

/// The guest has the caller's limit.
pub(crate) fn give_back() {
    if let Some(current) = CALLERS.get() {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let _ = setrlimit(Resource::Fsize, Rlimit { current: *current, maximum });
    }
}
